"""Minimal HTTP/1.1 for a provider, with control over every byte.

A test of what happens when a connection is cut after byte 1,234 needs a server that can count to 1,234. Frameworks
buffer, frame and flush on their own account, so this file reads requests and writes replies itself: `read_request` for
one side, `Line` for the other. A `Line` counts all bytes it sends, status line included, and hangs up, or delays,
exactly at the place given by a fault.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HEAD_BYTES_MAX = 64 * 1024
# A client's headers are some hundred bytes; more means that the other side does not speak HTTP.


class HungUp(Exception):
    """The line was cut, by a fault or by the client; nothing more can be said on it."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A raw request: header names in lower case, the query as lists, the body as bytes."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read the next request of a connection; None after the client closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, _version = first.split(" ", 2)
    except ValueError:
        return None
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    try:
        body = await _read_body(reader, headers)
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        return None
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    return HttpRequest(method.upper(), unquote(parts.path), query, headers, body)


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return await reader.readexactly(int(headers.get("content-length", "0")))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)


class Line:
    """The way back to a client for a reply. Sends bytes, counts them, and stops at a given place."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        *,
        cut_at_byte: int | None = None,
        drip_bytes: int | None = None,
        drip_delay_s: float = 0.0,
    ) -> None:
        self._writer = writer
        self._cut_at_byte = cut_at_byte
        self._drip_bytes, self._drip_delay_s = drip_bytes, drip_delay_s
        self.sent_bytes = 0

    async def send(self, data: bytes) -> None:
        """Send all of it, or as much as the cut allows and then raise HungUp."""
        left = len(data) if self._cut_at_byte is None else max(0, self._cut_at_byte - self.sent_bytes)
        for piece in self._pieces(data[:left]):
            await self._put(piece)
        if left < len(data) or self.sent_bytes == self._cut_at_byte:
            self.hang_up()

    def hang_up(self) -> None:
        """End the connection here, in the middle of whatever was being said."""
        raise HungUp

    def _pieces(self, data: bytes) -> list[bytes]:
        size = self._drip_bytes or max(1, len(data))
        return [data[start : start + size] for start in range(0, len(data), size)]

    async def _put(self, piece: bytes) -> None:
        try:
            self._writer.write(piece)
            await self._writer.drain()
        except (ConnectionError, RuntimeError):
            raise HungUp from None
        self.sent_bytes += len(piece)
        if self._drip_bytes is not None:
            await asyncio.sleep(self._drip_delay_s)


def head(status: int, headers: dict[str, str]) -> bytes:
    """A status line and headers, as bytes."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def send_json(line: Line, status: int, value: object, headers: dict[str, str]) -> None:
    """Send a whole JSON reply with its length."""
    body = to_json(value)
    declared = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    await line.send(head(status, declared) + body)


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body; empty data is the end of the body."""
    return f"{len(data):x}\r\n".encode("ascii") + data + b"\r\n"


def sse(event: dict[str, Any] | str, *, name: str | None = None) -> bytes:
    """Encode a server-sent event."""
    label = f"event: {name}\n" if name else ""
    data = event if isinstance(event, str) else to_json(event).decode("utf-8")
    return f"{label}data: {data}\n\n".encode()


def to_json(value: object) -> bytes:
    """JSON as the service writes it: compact, and not escaped beyond need."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
