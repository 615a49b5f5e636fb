"""Calls over HTTP whose answer is lost or cannot be read are said to be of unknown outcome, and are never repeated.

Nor does the server stay lost when it has forgotten the session, in whatever way it says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError

from standfast import MCPServerError
from standfast.mcp import MCPServerStreamableHttp
from tests.tools.mcp.helpers import faulty, lines, reached

UNKNOWN = {
    "die": "the connection failed",
    "cut": "the connection failed",
    "cut_body": "the connection was lost",
    "cut_stream": "its answer was cut off",
    "never_fetched": "its answer was cut off",
    "status_500": "HTTP 500",
    "status_502": "HTTP 502",
    "json_500": "HTTP 500",
    "endless_500": "HTTP 500",
    "endless": "cannot be read: .* message of more than 67108864 bytes",
    "endless_packed": "cannot be read: .* message of more than 67108864 bytes",
    "endless_event": "its answer was cut off",
    "accepted": "cannot be read: server answered a request with 202",
    "page": "cannot be read: Unexpected content type",
    "garbage": "cannot be read: Failed to parse JSON",
    "garbage_event": "cannot be read: Failed to parse SSE",
    "bad_shape": "cannot be read: content",
    "bad_schema": "cannot be read: Invalid structured content",
}
"""What a server may do in a call that it has carried out, and what is said of it."""

FORGETFUL = ["", "typescript", "example", "plain"]
"""How servers say that they do not know a session: the official packages, examples, others."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    notes = tmp_path_factory.mktemp("faulty") / "notes"
    with faulty(notes) as port:
        yield port, notes


def times(notes: Path, tool: str) -> int:
    """How often that was done."""
    return sum(line.split()[0] == tool for line in lines(notes))


@pytest.mark.parametrize("tool", UNKNOWN)
async def test_a_call_that_was_carried_out_is_not_repeated_and_said_to_be_unknown(tool: str, served: tuple[int, Path]):
    port, notes = served
    async with reached("http", port) as server:
        with pytest.raises(MCPServerError, match=f"{UNKNOWN[tool]}.*not known; it was not repeated") as told:
            await server.call_tool(tool, {})
        assert told.value.outcome_unknown
        assert await server.list_tools()  # it serves
    assert times(notes, tool) == 1


@pytest.mark.parametrize("tool", ["bad_shape", "bad_schema", "cut_body"])
async def test_it_is_the_same_over_the_older_transport(tool: str, served: tuple[int, Path]):
    port, notes = served
    before = times(notes, tool)
    async with reached("sse", port) as server:
        with pytest.raises(MCPServerError, match="not known; it was not repeated") as told:
            await server.call_tool(tool, {})
        assert told.value.outcome_unknown
        assert await server.list_tools()  # it serves
    assert times(notes, tool) == before + 1


async def test_a_status_and_a_reply_without_an_end_are_unknown_to_a_client_of_ones_own_too(served: tuple[int, Path]):
    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth)

    port, notes = served
    before = times(notes, "status_504")
    params: Any = {"url": f"http://127.0.0.1:{port}/mcp", "httpx_client_factory": client}
    async with MCPServerStreamableHttp(params, max_retry_attempts=2, client_session_timeout_seconds=60) as server:
        with pytest.raises(MCPServerError, match="not known; it was not repeated"):
            await server.call_tool("status_504", {})
        with pytest.raises(MCPServerError, match="message of more than 67108864 bytes"):
            await server.call_tool("endless_too", {})
        await server.call_tool("forgets_after", {})
        assert not (await server.call_tool("look", {})).is_error
    assert times(notes, "status_504") == before + 1


async def test_an_event_may_be_as_long_as_a_line_of_a_process(served: tuple[int, Path]):
    """An image is longer than the 1 MiB that `mcp` allows an event by default."""
    async with reached("http", served[0]) as server:
        result = await server.call_tool("large_event", {})
    assert len(result.content[0].text) == 2 * 1024 * 1024


async def test_a_status_that_refuses_is_told_as_a_refusal(served: tuple[int, Path]):
    async with reached("http", served[0]) as server:
        with pytest.raises(MCPError, match="HTTP 429"):
            await server.call_tool("status_429", {})


@pytest.mark.parametrize("tool", ["fetched_later", "twice"])
async def test_an_answer_that_comes_late_or_twice_is_one_answer(tool: str, served: tuple[int, Path]):
    port, notes = served
    async with reached("http", port) as server:
        assert not (await server.call_tool(tool, {})).is_error
    assert times(notes, tool) == 1


@pytest.mark.parametrize("mode", FORGETFUL)
async def test_a_server_that_has_forgotten_the_session_is_connected_again(mode: str, tmp_path: Path):
    """What a restart behind a load balancer does to every client."""
    notes = tmp_path / "notes"
    with faulty(notes, mode) as port:
        async with reached("http", port, max_retry_attempts=0) as server:
            await server.list_tools()
            for tool in ("forgets_before", "forgets_after", "look"):
                assert not (await server.call_tool(tool, {})).is_error
            assert len(await server.list_tools()) > 1
    assert [line.split()[0] for line in lines(notes)] == ["forgets_before", "forgets_after", "look"]


@pytest.mark.parametrize("tool", ["forgets_after", "dies_after"])
@pytest.mark.parametrize("mode", FORGETFUL)
async def test_an_answer_stands_though_the_server_is_gone_behind_it(tool: str, mode: str, tmp_path: Path):
    """`mcp` asks for the schema of a result behind the result; that this failed is nothing about the call."""
    notes = tmp_path / "notes"
    with faulty(notes, mode) as port:
        async with reached("http", port) as server:  # which has not listed its tools
            assert not (await server.call_tool(tool, {})).is_error
            assert await server.list_tools()
    assert [line.split()[0] for line in lines(notes)] == [tool]


async def test_a_server_that_hangs_does_not_keep_the_one_who_closes(tmp_path: Path):
    with faulty(tmp_path / "notes", "slow end") as port:
        server = reached("http", port)
        await server.connect()
        before = time.monotonic()
        async with asyncio.timeout(60):  # the stream may be silent for 300 s, and its end waited for as long
            await server.cleanup()
        assert time.monotonic() - before < 60
