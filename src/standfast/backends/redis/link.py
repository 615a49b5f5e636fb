"""A connection to one server: commands out, answers back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.exceptions as failed
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.retry import Retry

from standfast.backends.redis.errors import refused, unreachable
from standfast.backends.redis.exchange import Command
from standfast.sessions.answering import unanswered


class Link:
    """A connection to one server, for one thread at a time. What it is asked for together goes out in one write."""

    def __init__(self, url: str, **options: Any) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self._connection: Connection | None = None
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them."""
        connection = self._connection or self._opened()
        try:
            packed = b"".join(map(_packed, commands))
            connection.send_packed_command([packed], check_health=False)  # type: ignore[no-untyped-call]
            return [self._answer(connection) for _ in commands]
        except (failed.RedisError, OSError) as error:
            self.close()
            raise unanswered("Redis", str(error), reading=reading) from error
        except BaseException:
            self.close()  # a late answer must not be taken for another one
            raise

    def _opened(self) -> Connection:
        # Not `make_connection()`: it counts what it ever made, and refuses for good after a hundred reconnects.
        connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)
        try:
            connection.connect()
        except failed.ResponseError as error:
            raise refused(error) from error
        except (failed.RedisError, OSError) as error:
            raise unreachable(error, self.where) from error
        found: Connection = connection
        self._connection = found
        return found

    @staticmethod
    def _answer(connection: Connection) -> Any:
        try:
            return connection.read_response(disable_decoding=True)
        except failed.ResponseError as error:
            return error

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]


def _packed(command: Command) -> bytes:
    """A command as it is sent. redis-py's own way takes four times as long, which is a tenth of a whole append."""
    parts = [part if type(part) is bytes else str(part).encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def redis_address(url: str) -> str:
    """A URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]
