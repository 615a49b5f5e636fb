"""A connection to one server: commands out, answers back, waited for here or in an event loop."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import redis.exceptions as failed
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.retry import Retry

from standfast.backends.redis.errors import refused, unreachable
from standfast.backends.redis.exchange import Command, Exchange, driven
from standfast.sessions.answering import unanswered
from standfast.sessions.port import Answer

PEEKED_BYTES_MAX = 65_536
"""Longer answers are taken apart by redis-py, in a thread."""


class Link:
    """A connection to one server, for one thread at a time. What it is asked for together goes out in one write."""

    def __init__(self, url: str, **options: Any) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self._connection: Connection | None = None
        self.where = redis_address(url)
        self.lent: socket.socket | None = None
        """What can be sent and received on without waiting; None: there is no connection now, or TLS is spoken on it,
        which may have to wait for the other side before it can send."""

    def ask(self, commands: Sequence[Command], reading: bool, unsent: bytes | None = None) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them.

        `unsent`: what is left to send of them, where some of it has left already.
        """
        connection = self._connection or self._opened()
        try:
            packed = packed_all(commands) if unsent is None else unsent
            if packed:
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
        used = getattr(connection, "_sock", None)
        self.lent = used if type(used) is socket.socket and used.gettimeout() else None
        return found

    @staticmethod
    def _answer(connection: Connection) -> Any:
        try:
            return connection.read_response(disable_decoding=True)
        except failed.ResponseError as error:
            return error

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        connection, self._connection, self.lent = self._connection, None, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]


class Sent:
    """What was sent for an exchange without waiting, as an event loop waits for it (see `carrying.lending`)."""

    def __init__(self, link: Link, exchange: Exchange[list[Answer | Exception]]) -> None:
        assert link.lent is not None
        self.connection = link.lent
        self.answer_s = self.connection.gettimeout() or 0.0
        self._link, self._exchange = link, exchange
        self._commands, self._reading = next(exchange)
        packed = packed_all(self._commands)
        try:
            self._unsent: bytes | None = packed[os.write(self.connection.fileno(), packed) :]
        except OSError:  # nothing of it has left: there is no room now, or the connection is broken
            self._unsent = packed

    def arrived(self) -> list[Answer | Exception] | None:
        """The answers, if they are there and were the last; does not wait."""
        if self._unsent:
            return None
        try:
            found = read_now(self.connection, len(self._commands))
        except OSError:
            return None
        if found is None:
            return None
        try:
            self._commands, self._reading = self._exchange.send(found)
        except StopIteration as end:
            answers: list[Answer | Exception] = end.value
            return answers
        self._unsent = None  # more is to be asked, and nothing of it has left
        return None

    def awaited(self, *, is_overdue: bool) -> list[Answer | Exception]:
        """The answers, waiting for them."""
        if is_overdue:
            self._link.close()
            raise unanswered("Redis", "its time is over", reading=self._reading)

        def ask(commands: Sequence[Command], reading: bool) -> list[Any]:
            unsent, self._unsent = self._unsent, None
            return self._link.ask(commands, reading, unsent)

        return driven(self._exchange, ask, (self._commands, self._reading))


def read_now(connection: socket.socket, count: int) -> list[Any] | None:
    """So many answers, if they are there and of the usual kinds; None leaves all of them where they are."""
    data = connection.recv(PEEKED_BYTES_MAX, socket.MSG_PEEK)
    found, at = [], 0
    try:
        for _ in range(count):
            value, at = _value(data, at)
            found.append(value)
    except (LookupError, ValueError):  # it has not arrived whole, or it is an error, or something unasked for
        return None
    os.read(connection.fileno(), at)
    return found


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """The answer that begins at a place, and where it ends."""
    end = data.index(b"\r\n", at)
    kind, number, at = data[at], int(data[at + 1 : end] or 0), end + 2
    match kind:
        case 36 if number >= 0:  # $, a string
            if len(data) < at + number + 2:
                raise ValueError("not whole")
            return data[at : at + number], at + number + 2
        case 58:  # :, a number
            return number, at
        case 42 if number >= 0:  # *, an array
            found = []
            for _ in range(number):
                value, at = _value(data, at)
                found.append(value)
            return found, at
        case 36 | 42 | 95:  # $-1, *-1 and _: nothing
            return None, at
    raise LookupError("another kind")


def packed_all(commands: Sequence[Command]) -> bytes:
    """Commands as they are sent."""
    return b"".join(map(_packed, commands))


def _packed(command: Command) -> bytes:
    """A command as it is sent. redis-py's own way takes four times as long, which is a tenth of a whole append."""
    parts = [part if type(part) is bytes else str(part).encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def redis_address(url: str) -> str:
    """A URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]
