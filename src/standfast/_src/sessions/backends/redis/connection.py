"""Connection to one server: send commands, read answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.exceptions as failed
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.retry import Retry

from standfast._src.sessions.backends.redis.redis_errors import refused_error, unreachable, unusable
from standfast._src.sessions.backends.redis.resp import AnswerReader, pack_command, wait_in_kernel
from standfast._src.sessions.backends.redis.sansio import Command
from standfast._src.sessions.storage_helpers import build_no_answer_error


class Link:
    """Connection to a server, for one thread at a time. The commands of a request are sent in a single write."""

    def __init__(self, url: str, **options: object) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self._connection: Connection | None = None
        self._socket: Any = None
        self._answers: AnswerReader | None = None
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """Return the answers in order, with the server's errors among them."""
        answers = self._answers or self._connect()
        data = _pack_commands(commands)
        try:
            self._socket.sendall(data)
            return answers.several(len(commands))
        except BlockingIOError as error:  # the kernel's word for it
            self.close()
            raise build_no_answer_error("Redis", "its time for an answer is up", reading=reading) from error
        except (failed.RedisError, OSError, ValueError) as error:  # ValueError: the answer is not a number
            self.close()
            raise build_no_answer_error("Redis", str(error), reading=reading) from error
        except BaseException:
            self.close()  # a late answer must not be taken for another one
            raise

    # --- the connection -----------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """Connect if necessary: before a connection exists, nothing can have been sent."""
        if self._answers is None:
            self._connect()

    def _connect(self) -> AnswerReader:
        # Not `make_connection()`: it counts what it ever made, and refuses for good after a hundred reconnects.
        try:
            connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)  # it may open a file
            connection.connect()
        except failed.ResponseError as error:
            raise refused_error(error) from error
        except (failed.RedisError, OSError) as error:
            raise unreachable(error, self.where) from error
        except (TypeError, ValueError) as error:
            raise unusable(error) from error
        # redis-py connects, says who this is and chooses the database; from here on its socket is spoken to directly.
        self._connection, self._socket = connection, connection._sock
        wait_in_kernel(self._socket, connection.socket_timeout)
        self._answers = AnswerReader(self._socket)
        return self._answers

    def close(self) -> None:
        """Close the connection. The next request opens a new connection."""
        connection, self._connection, self._socket, self._answers = self._connection, None, None, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]


def _pack_commands(commands: Sequence[Command]) -> bytes:
    return pack_command(commands[0]) if len(commands) == 1 else b"".join(map(pack_command, commands))


def redis_address(url: str) -> str:
    """Return a URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]
