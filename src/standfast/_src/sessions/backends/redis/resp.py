"""Commands as bytes and answers from bytes, in both of Redis' protocols, over a socket that is connected already.

redis-py's own way takes four times as long for a command, and three times for an answer: a tenth of a whole append,
and a third of reading a long history.
"""

from __future__ import annotations

import socket
import struct
import sys
from functools import lru_cache
from typing import Any

import redis.exceptions as failed
from redis._parsers import BaseParser

from standfast._src.sessions.backends.redis.sansio import Command

READ_BYTES = 65_536
_LENGTHS = [b"\r\n$%d\r\n" % size for size in range(1024)]


def pack_command(command: Command) -> bytes:
    """Return the bytes of a command."""
    start = 3 + command[2] if command[0] == "EVALSHA" else 1
    parts = [b"*%d" % len(command), _before_arguments(command[:start])]
    for part in command[start:]:
        data = part if type(part) is bytes else str(part).encode()
        size = len(data)
        parts.append(_LENGTHS[size] if size < 1024 else b"\r\n$%d\r\n" % size)
        parts.append(data)
    parts.append(b"\r\n")
    return b"".join(parts)


@lru_cache(1024)
def _before_arguments(parts: Command) -> bytes:
    """The name of a command, or of a script with the keys of a session: the same each time."""
    strings = [part if type(part) is bytes else str(part).encode() for part in parts]
    return b"".join([b"\r\n$%d\r\n%b" % (len(data), data) for data in strings])


def wait_in_kernel(sock: socket.socket, timeout_s: float | None) -> None:
    """Let the kernel keep a socket's timeout: Python would ask with `poll` before each call whether it may begin.

    Not where the socket is wrapped (TLS): what is read there is not what comes over the wire.
    """
    if timeout_s and type(sock) is socket.socket and sys.platform != "win32":
        longest = struct.pack("ll", *divmod(max(1, round(timeout_s * 1e6)), 1_000_000))  # 0 would be without end
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, longest)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, longest)
        sock.settimeout(None)


class AnswerReader:
    """Reader of answers from a socket. After an incomplete answer the reader must be discarded."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data, self._at = b"", 0

    def next(self) -> Any:
        """Return the next answer, strings as bytes and errors as exceptions; raise an error of the connection."""
        while True:
            line = self._line()
            kind, rest = line[:1], line[1:]
            if kind == b"$":
                return self._bulk(rest)
            if kind in (b"*", b"~"):
                return None if rest == b"-1" else self.several(int(rest))
            if kind in (b"-", b"!"):
                return _error(rest if kind == b"-" else self._exactly(int(rest)))
            if kind in (b":", b"("):
                return int(rest)
            if kind == b"+":
                return rest
            if kind == b"%":
                flat = self.several(2 * int(rest))
                return dict(zip(flat[::2], flat[1::2], strict=True))
            if kind in _SIMPLE:
                return _SIMPLE[kind](rest)
            if kind == b"=":
                return self._exactly(int(rest))[4:]
            if kind != b">":
                raise failed.InvalidResponse(f"what is no answer came: {line[:100]!r}")
            self.several(int(rest))  # an unsolicited push message

    def several(self, count: int) -> list[Any]:
        """Return the next `count` answers. Most are strings that arrive whole; a history may have ten thousand."""
        found: list[Any] = []
        while len(found) < count:
            data, at = self._data, self._at
            if at == len(data):
                data, at = self._data, self._at = self._receive(READ_BYTES), 0
            end = data.find(b"\r\n", at)
            if end > at and data[at] == _BULK:
                stop = end + 2 + int(data[at + 1 : end])
                if end + 2 <= stop <= len(data) - 2:
                    found.append(data[end + 2 : stop])
                    self._at = stop + 2
                    continue
            found.append(self.next())
        return found

    def _bulk(self, size: bytes) -> bytes | None:
        return None if size == b"-1" else self._exactly(int(size))

    def _line(self) -> bytes:
        while (end := self._data.find(b"\r\n", self._at)) < 0:
            self._data, self._at = self._data[self._at :] + self._receive(READ_BYTES), 0
        start, self._at = self._at, end + 2
        return self._data[start:end]

    def _exactly(self, size: int) -> bytes:
        """Return the next `size` bytes, and skip the end of the line."""
        start, stop = self._at, self._at + size + 2
        if stop > len(self._data):
            parts = [self._data[start:]]
            missing = stop - len(self._data)
            while missing > 0:
                parts.append(self._receive(max(missing, READ_BYTES)))
                missing -= len(parts[-1])
            self._data, start, stop = b"".join(parts), 0, size + 2
        self._at = stop
        return self._data[start : stop - 2]

    def _receive(self, size: int) -> bytes:
        got: bytes = self._sock.recv(size)
        return got or _raise_closed()


def _raise_closed() -> bytes:
    raise failed.ConnectionError("the server closed the connection")


_BULK = ord("$")
_SIMPLE: dict[bytes, Any] = {b"_": lambda _: None, b",": float, b"#": lambda said: said == b"t"}


def _error(said: bytes) -> Exception:
    """Build redis-py's exception for an error; raise an error of the connection at once."""
    found: Exception = BaseParser.parse_error(said.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]
    if isinstance(found, failed.ConnectionError):
        raise found
    return found
