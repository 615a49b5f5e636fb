"""Reading failures: what real libraries raise, against real sockets, and what their names alone must tell."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import AsyncIterator
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import openai
import pytest

from standfast._src.base.errors import ModelTimeoutError, StreamCutError
from standfast._src.models.error_reading import normalise_error
from standfast._src.models.retry import is_conversation_locked, not_taken


@contextlib.asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[int]:
    """A server that reads a request and says `answer`; with None it hangs up, with b"" it never answers."""
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer == b"":
            held.append(writer)
            return
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()
        for writer in held:
            writer.close()


def reply(status: str, body: str = "{}", **headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        "Connection: close",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def failure_of(port: int, *, read_s: float = 20.0) -> Exception:
    """What the OpenAI client raises when this server is asked for a response."""
    async with openai.AsyncOpenAI(
        api_key="k", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0, timeout=openai.Timeout(20.0, read=read_s)
    ) as client:
        try:
            await client.responses.create(model="m", input="hi")
        except Exception as error:
            return error
    raise AssertionError("the request should have failed")


async def unused_port() -> int:
    running = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = running.sockets[0].getsockname()[1]
    running.close()
    await running.wait_closed()
    return int(port)


# --- the real library, real sockets ----------------------------------------------------------------------------------


async def test_a_refused_connection_means_that_the_request_never_left():
    failure = normalise_error(await failure_of(await unused_port()))
    assert failure.is_network_error
    assert failure.never_sent
    assert not_taken(failure)


async def test_a_connection_that_breaks_after_the_request_is_no_evidence():
    async with server(None) as port:
        failure = normalise_error(await failure_of(port))
    assert failure.is_network_error
    assert not failure.never_sent
    assert not not_taken(failure)


async def test_a_server_that_does_not_answer_is_a_timeout_and_no_evidence():
    async with server(b"") as port:
        failure = normalise_error(await failure_of(port, read_s=0.1))
    assert failure.is_timeout
    assert not failure.never_sent
    assert not not_taken(failure)


async def test_a_refusal_says_when_to_come_back():
    async with server(reply("429 Too Many Requests", Retry_After="7", X_Request_Id="req_1")) as port:
        failure = normalise_error(await failure_of(port))
    assert (failure.status_code, failure.retry_after, failure.request_id) == (429, 7.0, "req_1")
    assert not failure.is_network_error
    assert not failure.is_timeout
    assert not_taken(failure)


async def test_a_locked_conversation_is_known_by_its_code():
    body = '{"error": {"code": "conversation_locked", "message": "wait"}}'
    async with server(reply("400 Bad Request", body)) as port:
        failure = normalise_error(await failure_of(port))
    assert is_conversation_locked(failure)


async def test_a_server_error_is_no_evidence():
    async with server(reply("503 Service Unavailable", Retry_After_Ms="1500")) as port:
        failure = normalise_error(await failure_of(port))
    assert (failure.status_code, failure.retry_after) == (503, 1.5)
    assert not not_taken(failure)


# --- by name ---------------------------------------------------------------------------------------------------------


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ConnectError", {"network", "never_sent"}),
        ("ConnectTimeout", {"network", "timeout", "never_sent"}),
        ("PoolTimeout", {"network", "timeout", "never_sent"}),
        ("ReadTimeout", {"network", "timeout"}),
        ("WriteTimeout", {"network", "timeout"}),
        ("ReadError", {"network"}),
        ("WriteError", {"network"}),
        ("RemoteProtocolError", {"network"}),
    ],
)
def test_transport_errors_are_known_through_the_wrapping_of_a_library(library, name, expected):
    inner = getattr(library, name)("x")
    for error in (inner, caused(RuntimeError("wrapped"), inner)):
        assert kinds_of(error) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), {"timeout"}),
        (builtins.ConnectionResetError(), {"network"}),
        (builtins.BrokenPipeError(), {"network"}),
        (builtins.ConnectionRefusedError(), {"network", "never_sent"}),
        (OSError(113, "No route to host"), {"network", "never_sent"}),
        (asyncio.IncompleteReadError(b"", 3), {"network"}),
        (ModelTimeoutError(3), {"timeout"}),
        (StreamCutError("cut", "again"), {"network"}),
        (asyncio.CancelledError(), {"abort"}),
        (KeyboardInterrupt(), {"abort"}),
        (FileNotFoundError("a file"), set()),
        (ValueError("a bug"), set()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_of_python_itself(error, expected):
    assert kinds_of(error) == expected


def kinds_of(error: BaseException) -> set[str]:
    failure = normalise_error(error)
    flags = {
        "abort": failure.is_abort,
        "network": failure.is_network_error,
        "timeout": failure.is_timeout,
        "never_sent": failure.never_sent,
    }
    return {name for name, value in flags.items() if value}


def test_what_merely_happened_before_is_not_a_cause():
    """An exception raised while another was handled says nothing about the request."""
    error = ValueError("something else")
    error.__context__ = ConnectionRefusedError()
    assert kinds_of(error) == set()


# --- when to come back -----------------------------------------------------------------------------------------------


def with_headers(**headers: str) -> Exception:
    error = RuntimeError("busy")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error.response = SimpleNamespace(status_code=503, headers=named)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "2.5"}, 2.5),
        ({"retry_after_ms": "250", "Retry_After": "9"}, 0.25),
        ({"Retry_After": "-1"}, None),
        ({"Retry_After": "nan"}, None),
        ({"Retry_After": "inf"}, None),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": formatdate(1_000_060, usegmt=True)}, 60.0),
        ({"Retry_After": formatdate(999_000, usegmt=True)}, 0.0),
        ({"Retry_After": formatdate(1_000_060, usegmt=True), "Date": formatdate(1_000_050, usegmt=True)}, 10.0),
        ({}, None),
    ],
)
def test_retry_after_in_every_form(headers: dict[str, str], seconds: float | None):
    assert normalise_error(with_headers(**headers), now_s=1_000_000).retry_after == seconds


def test_a_date_without_a_clock_is_ignored_unless_the_server_says_what_time_it_is():
    assert normalise_error(with_headers(Retry_After=formatdate(60, usegmt=True))).retry_after is None


def test_errors_of_strangers_are_read_by_their_attributes():
    class Odd(Exception):
        status = 429
        body: Any = {"error": {"code": "slow_down"}}  # noqa: RUF012 — an exception class of somebody else's

    failure = normalise_error(Odd("x"))
    assert (failure.status_code, failure.error_code, failure.message) == (429, "slow_down", "x")
