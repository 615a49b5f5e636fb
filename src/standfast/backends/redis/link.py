"""A connection to one server: commands out, answers back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.exceptions as failed
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.retry import Retry

from standfast.backends.redis.errors import refused, unreachable, unusable
from standfast.backends.redis.exchange import Command
from standfast.backends.redis.wire import Answers, packed, wait_in_kernel
from standfast.sessions.answering import unanswered


class Link:
    """A connection to one server, for one thread at a time. What it is asked for together goes out in one write."""

    def __init__(self, url: str, **options: Any) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self._connection: Connection | None = None
        self._socket: Any = None
        self._answers: Answers | None = None
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them."""
        answers = self._answers or self._opened()
        try:
            self._socket.sendall(packed(commands[0]) if len(commands) == 1 else b"".join(map(packed, commands)))
            return answers.several(len(commands))
        except BlockingIOError as error:  # the kernel's word for it
            self.close()
            raise unanswered("Redis", "its time for an answer is up", reading=reading) from error
        except (failed.RedisError, OSError, ValueError) as error:  # ValueError: what came is no number
            self.close()
            raise unanswered("Redis", str(error), reading=reading) from error
        except BaseException:
            self.close()  # a late answer must not be taken for another one
            raise

    def reach(self) -> None:
        """Connect, if there is no connection: until then nothing can have left."""
        if self._answers is None:
            self._opened()

    def _opened(self) -> Answers:
        # Not `make_connection()`: it counts what it ever made, and refuses for good after a hundred reconnects.
        try:
            connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)  # it may open a file
            connection.connect()
        except failed.ResponseError as error:
            raise refused(error) from error
        except (failed.RedisError, OSError) as error:
            raise unreachable(error, self.where) from error
        except (TypeError, ValueError) as error:
            raise unusable(error) from error
        # redis-py connects, says who this is and chooses the database; from here on its socket is spoken to directly.
        self._connection, self._socket = connection, connection._sock
        wait_in_kernel(self._socket, connection.socket_timeout)
        self._answers = Answers(self._socket)
        return self._answers

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        connection, self._connection, self._socket, self._answers = self._connection, None, None, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]


def redis_address(url: str) -> str:
    """A URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]
