"""A connection to one server: commands out, answers back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import redis.exceptions as failed
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.retry import Retry

from standfast._src.sessions.backends.redis.redis_errors import refused_error, unreachable, unusable
from standfast._src.sessions.backends.redis.resp import (
    AnswerReader,
    can_be_asked_without_waiting,
    pack_command,
    send_without_waiting,
    wait_in_kernel,
)
from standfast._src.sessions.backends.redis.sansio import Command, Exchange, run_exchange
from standfast._src.sessions.storage_helpers import build_no_answer_error

if TYPE_CHECKING:
    import socket

T = TypeVar("T")


class Link:
    """A connection to one server, for one thread at a time. What it is asked for together goes out in one write."""

    def __init__(self, url: str, **options: object) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self._connection: Connection | None = None
        self._socket: Any = None
        self._answers: AnswerReader | None = None
        self._is_lendable = False
        self.patience_s = math.inf
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them."""
        answers = self._answers or self._connect()
        return self._send_and_read(answers, len(commands), _pack_commands(commands), reading)

    def _send_and_read(self, answers: AnswerReader, count: int, data: bytes, reading: bool) -> list[Any]:
        """Send the rest of what is asked, and give so many answers to all of it."""
        try:
            if data:
                self._socket.sendall(data)
            return answers.several(count)
        except BlockingIOError as error:  # the kernel's word for it
            self.close()
            raise build_no_answer_error("Redis", "its time for an answer is up", reading=reading) from error
        except (failed.RedisError, OSError, ValueError) as error:  # ValueError: what came is no number
            self.close()
            raise build_no_answer_error("Redis", str(error), reading=reading) from error
        except BaseException:
            self.close()  # a late answer must not be taken for another one
            raise

    # --- without waiting ----------------------------------------------------------------------------------------------

    @property
    def line(self) -> socket.socket | None:
        """The socket, if one is open over which commands can be sent without waiting."""
        return self._socket if self._is_lendable else None

    def send_now(self, commands: Sequence[Command]) -> bytes:
        """Send commands as far as that goes without waiting; gives the rest."""
        return send_without_waiting(self._socket, _pack_commands(commands))

    def come(self, count: int, reading: bool) -> list[Any] | None:
        """So many answers, if they have come."""
        try:
            return None if self._answers is None else self._answers.come(count)
        except (failed.RedisError, ValueError) as error:
            self.close()
            raise build_no_answer_error("Redis", str(error), reading=reading) from error
        except BaseException:
            self.close()
            raise

    def read_answers(self, count: int, rest: bytes, reading: bool) -> list[Any]:
        """So many answers, waited for, when the rest has been sent."""
        if self._answers is None:  # it was closed, by an error that was told
            raise build_no_answer_error("Redis", "the connection was closed", reading=reading)
        return self._send_and_read(self._answers, count, rest, reading)

    # --- the connection -----------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """Connect, if there is no connection: until then nothing can have left."""
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
        self._answers, self._is_lendable = AnswerReader(self._socket), can_be_asked_without_waiting(self._socket)
        self.patience_s = (connection.socket_timeout or math.inf) / 4
        return self._answers

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        connection, self._connection, self._socket, self._answers = self._connection, None, None, None
        self._is_lendable = False
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]


class SentExchange(Generic[T]):
    """An exchange whose first commands were sent without waiting (see `_src.sessions.client.caller_loop_executor`)."""

    def __init__(self, link: Link, exchange: Exchange[T]) -> None:
        self._link, self._exchange = link, exchange
        self._asked = next(exchange)
        self._rest: bytes | None = link.send_now(self._asked[0])  # None: the answers to what was sent were taken
        self.patience_s = link.patience_s

    @property
    def is_sent(self) -> bool:
        """Whether all of it has left."""
        return not self._rest

    def take(self) -> T | None:
        """What came of it, if the answers are there and nothing more has to be asked."""
        commands, reading = self._asked
        found = None if self._rest else self._link.come(len(commands), reading)
        if found is None:
            return None
        self._rest = None
        try:
            self._asked = self._exchange.send(found)
        except StopIteration as end:
            result: T = end.value
            return result
        return None

    def finish(self) -> T:
        """What came of it, waited for."""
        return run_exchange(self._exchange, self._ask, self._asked)

    def _ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        rest, self._rest = self._rest, None
        return (
            self._link.ask(commands, reading) if rest is None else self._link.read_answers(len(commands), rest, reading)
        )


def _pack_commands(commands: Sequence[Command]) -> bytes:
    return pack_command(commands[0]) if len(commands) == 1 else b"".join(map(pack_command, commands))


def redis_address(url: str) -> str:
    """A URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]
