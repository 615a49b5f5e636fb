"""Servers that are not there, die, hang, flood or speak garbage: an error that says so, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from tools.mcp.helpers import a_port, alive, bare, children, first_line, gone, lines

from standfast import Agent, MCPServerError, RunContextWrapper, UserError, WrongLoopError
from standfast._kits.testing.leaks import no_leaks
from standfast.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp

CTX: RunContextWrapper[Any] = RunContextWrapper(None)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def text(result: Any) -> str:
    return str(result.content[0].text)


# --- not there, or no server -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"command": "no-such-program"}, r"no program 'no-such-program'.*params\['command'\]"),
        ({"command": sys.executable, "cwd": "/no/such/folder"}, r"no folder.*params\['cwd'\]"),
    ],
)
async def test_a_program_that_is_not_there_is_named_with_the_remedy(params: Any, says: str):
    async with no_leaks():
        with pytest.raises(MCPServerError, match=says):
            await MCPServerStdio(params).connect()


@pytest.mark.parametrize("kind", [MCPServerSse, MCPServerStreamableHttp])
async def test_a_server_that_nobody_runs_is_told_and_its_address_without_the_password(kind: Any):
    async with no_leaks():
        with a_port() as port, pytest.raises(MCPServerError, match="could not connect") as told:
            await kind({"url": f"http://me:secret@127.0.0.1:{port}/mcp?key=secret"}).connect()
    assert "secret" not in str(told.value)
    assert f"127.0.0.1:{port}/mcp" in str(told.value)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("ends at once", "ended with exit code 7"),
        ("speaks garbage", "lines that are no messages"),
        ("bytes", "bytes that are no utf-8.*encoding"),
    ],
)
async def test_what_is_no_server_is_refused_with_what_it_did(mode: str, says: str, notes: Path):
    async with no_leaks():
        with pytest.raises(MCPServerError, match=says):
            await bare(mode, notes).connect()
    assert not children()


async def test_a_line_without_an_end_does_not_fill_the_memory(notes: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("standfast._src.tools.mcp.processes.MESSAGE_LENGTH_MAX", 1_000_000)
    async with no_leaks():
        with pytest.raises(MCPServerError, match="message of more than 1000000"):
            await bare("line without an end", notes).connect()
    assert not children()


async def test_a_server_that_says_nothing_is_given_up_after_its_time(notes: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)  # its first question, in the newer protocol
    async with no_leaks():
        with pytest.raises(MCPServerError, match="did not answer in time"):
            await bare("says nothing", notes, client_session_timeout_seconds=0.2).connect()
    assert not children()


async def test_a_cancelled_connect_leaves_nothing(notes: Path):
    async with no_leaks():
        connecting = asyncio.create_task(bare("says nothing", notes).connect())
        while not children():
            await asyncio.sleep(0.01)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    assert not children()


@pytest.mark.parametrize("again", [False, True])
async def test_a_connect_cancelled_before_its_pipes_are_there_ends_with_the_server(notes: Path, again: bool):
    """asyncio would kill the guardian alone and wait for pipes that the server holds."""
    async with no_leaks():
        connecting = asyncio.create_task(bare("ignores its end", notes).connect())
        while not children():
            await asyncio.sleep(0)
        while not lines(notes):
            time.sleep(0.01)  # the loop stands still, as it does on a busy machine
        both = [int(number) for number in lines(notes)[0].split()]
        connecting.cancel()
        if again:
            await asyncio.sleep(0)
            connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(connecting, 30)
        assert await gone(*both)
    assert not children()


async def test_a_server_that_prints_by_mistake_works(notes: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "standfast"):
        async with bare("prints", notes) as server:
            assert [tool.name for tool in await server.list_tools()] == ["look", "die", "hang", "refuse"]
    assert "printed what is no message" in caplog.text


async def test_a_flood_of_notifications_does_not_drown_the_answer(notes: Path):
    async with no_leaks(), bare("floods", notes) as server:
        assert "seen" in text(await server.call_tool("look", {}))


async def test_an_answer_that_is_no_answer_is_an_error_of_the_servers(notes: Path):
    async with bare("answers garbage", notes) as server:
        with pytest.raises(MCPServerError, match="its answer cannot be read"):
            await server.call_tool("look", {})
    assert lines(notes) == ["look None"]
    async with bare("listing is no list", notes) as server:
        with pytest.raises(MCPServerError, match="its answer cannot be read"):
            await server.list_tools()


# --- lists and schemas -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("two of a name", "more than one tool called 'look'.*blocked_tool_names"),
        ("no object", r"its answer cannot be read: tools\.0\.inputSchema\.type: Input should be 'object'"),
        ("circular list", "lists tools without an end"),
    ],
)
async def test_tools_that_no_model_could_be_offered_are_refused_with_the_remedy(mode: str, says: str, notes: Path):
    async with bare(mode, notes) as server:
        with pytest.raises(UserError, match=says):
            await Agent(name="a", mcp_servers=[server]).get_all_tools(CTX)


async def test_a_list_may_have_a_bound(notes: Path):
    async with bare("endless list", notes, max_list_pages=3) as server:
        with pytest.raises(UserError, match="max_list_pages=3"):
            await server.list_tools()


async def test_a_list_without_an_end_has_one_of_ours(notes: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("standfast._src.tools.mcp.client.LISTED_MAX", 20)
    async with bare("endless list", notes) as server:
        with pytest.raises(MCPServerError, match="without an end"):
            await server.list_tools()


async def test_a_schema_that_cannot_be_strict_is_used_as_it_is(notes: Path):
    async with bare("free keys", notes) as server:
        agent = Agent(name="a", mcp_servers=[server], mcp_config={"convert_schemas_to_strict": True})
        (tool,) = await agent.get_all_tools(CTX)
    assert tool.strict_json_schema is False  # type: ignore[union-attr]
    assert tool.params_json_schema["additionalProperties"] is True  # type: ignore[union-attr]


# --- lost in a call --------------------------------------------------------------------------------------------------


async def test_a_server_that_dies_in_a_call_is_told_once_and_started_again_for_the_next(notes: Path):
    async with no_leaks(), bare("calm", notes, max_retry_attempts=3, retry_backoff_seconds_base=0.0) as server:
        with pytest.raises(MCPServerError, match=r"exit code 3.*not known; it was not repeated") as told:
            await server.call_tool("die", {})
        assert told.value.outcome_unknown
        assert "seen" in text(await server.call_tool("look", {}))
    assert lines(notes) == ["die None", "look None"]  # three retries were allowed; what nobody knows is not repeated
    assert not children()


async def test_a_call_that_takes_too_long_is_told_and_the_connection_stays(notes: Path):
    async with no_leaks(), bare("calm", notes, client_session_timeout_seconds=0.5, max_retry_attempts=2) as server:
        before = children()
        with pytest.raises(MCPServerError, match=r"did not answer in time.*not known"):
            await server.call_tool("hang", {})
        assert children() == before
    assert lines(notes) == ["hang None"]
    assert not children()


async def test_what_the_server_answers_is_repeated_as_often_as_the_application_says(notes: Path):
    async with bare("calm", notes, max_retry_attempts=2, retry_backoff_seconds_base=0.0) as server:
        with pytest.raises(MCPError, match="refused"):
            await server.call_tool("refuse", {})
    assert lines(notes) == ["refuse None"] * 3


async def test_a_server_killed_between_two_calls_is_not_noticed(notes: Path):
    async with bare("calm", notes) as server:
        first = int(text(await server.call_tool("look", {})).split()[-1])
        os.kill(first, signal.SIGKILL)
        assert await gone(first)
        while server.session is not None:  # until the loop has heard of it
            await asyncio.sleep(0.01)
        second = int(text(await server.call_tool("look", {})).split()[-1])
    assert second != first
    assert lines(notes) == ["look None"] * 2


async def test_reading_is_repeated_on_a_new_connection(notes: Path):
    async with bare("counts listings", notes) as server:
        (guardian,) = children()
        listed = [await server.list_tools()]
        os.killpg(guardian, signal.SIGKILL)
        listed.append(await server.list_tools())
    assert [len(tools) for tools in listed] == [4, 4]


async def test_calls_that_are_under_way_together_are_all_told(notes: Path):
    async with bare("calm", notes) as server:
        hanging = asyncio.create_task(server.call_tool("hang", {}))
        await first_line(notes)
        (guardian,) = children()
        os.killpg(guardian, signal.SIGKILL)
        with pytest.raises(MCPServerError, match="not known"):
            await hanging


# --- whose connection it is ------------------------------------------------------------------------------------------


async def test_a_server_that_was_never_connected_or_is_closed_says_so(notes: Path):
    server = bare("calm", notes)
    for _ in range(2):
        with pytest.raises(UserError, match=r"is not connected.*async with"):
            await server.list_tools()
        async with server:
            assert await server.list_tools()
        await server.cleanup()


async def test_it_may_be_connected_in_one_task_and_closed_in_another(notes: Path):
    async with no_leaks():
        server = bare("calm", notes)
        await asyncio.create_task(server.connect())
        await asyncio.create_task(server.connect())  # it is; nothing is started twice
        assert len(children()) == 1
        await asyncio.create_task(server.cleanup())
    assert not children()


async def test_a_server_that_is_closed_while_it_connects_stays_closed(notes: Path):
    async with no_leaks():
        server = bare("starts slowly", notes)
        connecting = asyncio.create_task(server.connect())
        while not children():
            await asyncio.sleep(0.01)
        await server.cleanup()
        with pytest.raises(UserError, match="is not connected"):
            await connecting
        assert server.session is None
    assert not children()


async def test_a_server_that_is_dropped_ends(notes: Path):
    async with no_leaks():
        server = bare("ignores its end", notes)
        await server.connect()
        both = [int(number) for number in (await first_line(notes)).split()]
        del server
        gc.collect()
        assert await gone(*both)


async def test_on_another_loop_it_is_refused_and_after_the_first_has_ended_it_connects_anew(notes: Path):
    server = bare("calm", notes)

    async def use() -> str:
        return text(await server.call_tool("look", {}))

    def elsewhere() -> str:
        return asyncio.run(use())

    await server.connect()
    with pytest.raises(WrongLoopError, match=r"same asyncio\.run"):
        await asyncio.to_thread(elsewhere)
    await server.cleanup()

    async def connect() -> None:
        await server.connect()

    def one_after_the_other() -> str:
        asyncio.run(connect())  # ends with the connection open: the child goes with the loop
        assert not children()
        return elsewhere()

    assert "seen" in await asyncio.to_thread(one_after_the_other)
    assert await gone(*children())


async def test_a_hung_server_and_its_helper_end_when_the_connection_closes(notes: Path):
    async with no_leaks(), bare("ignores its end", notes):
        both = [int(number) for number in (await first_line(notes)).split()]
        assert all(map(alive, both))
    assert await gone(*both)
    assert not children()


OTHER_LOOP = """
import asyncio, sys
sys.path[:0] = {path!r}
from pathlib import Path
import uvloop
from tools.mcp.helpers import bare, children

async def main():
    async with bare("calm", Path({notes!r})) as server:
        try:
            await server.call_tool("die", {{}})
        except Exception as error:
            assert error.outcome_unknown
        assert "seen" in (await server.call_tool("look", {{}})).content[0].text
    assert not children()

uvloop.run(main())
"""


async def test_it_is_the_same_on_uvloop(notes: Path):
    code = OTHER_LOOP.format(path=sys.path, notes=str(notes))
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await program.wait() == 0
    assert lines(notes) == ["die None", "look None"]


FORKING = """
import asyncio, os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from tools.mcp.helpers import bare

async def main():
    server = bare("ignores its end", Path({notes!r}))
    await server.connect()
    if os.fork() == 0:
        time.sleep(600)
    print("connected", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


PROGRAM = """
import asyncio, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tools.mcp.helpers import bare

async def main():
    server = bare("ignores its end", Path({notes!r}))
    await server.connect()
    print("connected", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "by"),
    [(PROGRAM, signal.SIGKILL), (PROGRAM, signal.SIGTERM), (FORKING, signal.SIGKILL)],
    ids=["killed", "ended", "killed after a fork"],
)
async def test_a_program_that_is_killed_takes_its_servers_with_it(code: str, by: signal.Signals, notes: Path):
    """Also one that ignores the end of its input and every polite signal, and what it has started in turn; and though a
    fork of the program lives on."""
    code = code.format(path=sys.path, notes=str(notes))
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    with started as program:
        assert program.stdout is not None
        assert await asyncio.to_thread(program.stdout.readline) == b"connected\n"
        both = [int(number) for number in (await first_line(notes)).split()]
        assert all(map(alive, both))
        program.send_signal(by)
        program.wait()
        ended = await gone(*both)
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    assert ended
