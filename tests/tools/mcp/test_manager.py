"""Several servers as one: those that are there are used, those that are not are told, and every one is closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tools.mcp.helpers import bare, children

from standfast import MCPServerError
from standfast._kits.testing.leaks import no_leaks
from standfast.mcp import MCPServer, MCPServerManager, MCPServerStdio

BOTH_WAYS = pytest.mark.parametrize("parallel", [False, True], ids=["in order", "at once"])


class Noted(MCPServer):
    """A server without a wire that notes what is done to it, and by which task."""

    def __init__(self, name: str, *, failing: list[Any] | None = None, slow_s: float = 0, stuck: bool = False) -> None:
        super().__init__()
        self._name, self._failing, self._slow_s, self._stuck = name, failing or [], slow_s, stuck
        self.done: list[str] = []
        self.tasks: set[Any] = set()

    @property
    def name(self) -> str:
        return self._name

    async def connect(self) -> None:
        self.tasks.add(asyncio.current_task())
        await asyncio.sleep(self._slow_s)
        if self._failing:
            raise self._failing.pop(0)
        self.done.append("connected")

    async def cleanup(self) -> None:
        self.tasks.add(asyncio.current_task())
        if self._stuck:
            await asyncio.sleep(600)
        self.done.append("closed")

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any: ...

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any: ...

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


@BOTH_WAYS
async def test_real_servers_are_connected_and_closed_and_a_missing_one_is_left_out(parallel: bool, tmp_path: Path):
    notes = tmp_path / "notes"
    there, missing = bare("calm", notes), MCPServerStdio({"command": "no-such-program"})
    async with no_leaks(), MCPServerManager([there, missing, there], connect_in_parallel=parallel) as manager:
        assert manager.all_servers == [there, missing]
        assert manager.active_servers == [there]
        assert manager.failed_servers == [missing]
        assert isinstance(manager.errors[missing], MCPServerError)
        assert len(await there.list_tools()) == 4
        assert len(children()) == 1
    assert manager.active_servers == []
    assert not children()


@BOTH_WAYS
async def test_each_server_is_connected_and_closed_by_one_task(parallel: bool):
    servers = [Noted("a"), Noted("b")]
    async with no_leaks(), MCPServerManager(servers, connect_in_parallel=parallel):
        pass
    assert [server.done for server in servers] == [["connected", "closed"]] * 2
    assert [len(server.tasks) for server in servers] == [1, 1]


@BOTH_WAYS
async def test_strict_raises_the_first_failure_and_closes_what_was_open(parallel: bool):
    there, missing = Noted("a"), Noted("b", failing=[OSError("away")])
    async with no_leaks():
        with pytest.raises(OSError, match="away"):
            async with MCPServerManager([there, missing], strict=True, connect_in_parallel=parallel):
                pytest.fail("entered")
    assert there.done == ["connected", "closed"]
    assert missing.done == ["closed"]  # what it began before it failed


@BOTH_WAYS
async def test_failed_servers_can_be_tried_again(parallel: bool):
    late = Noted("a", failing=[OSError("away"), OSError("still away")])
    other = Noted("b")
    async with no_leaks(), MCPServerManager([late, other], connect_in_parallel=parallel) as manager:
        assert await manager.reconnect() == [other]
        assert str(manager.errors[late]) == "still away"
        assert await manager.reconnect() == [late, other]
        assert (manager.failed_servers, manager.errors) == ([], {})
        assert other.done == ["connected"]
        assert await manager.reconnect(failed_only=False) == [late, other]
        assert other.done == ["connected", "closed", "connected"]


async def test_failed_servers_may_be_kept_among_the_active():
    missing = Noted("a", failing=[OSError("away")])
    async with MCPServerManager([missing], drop_failed_servers=False) as manager:
        assert manager.active_servers == [missing] == manager.failed_servers


@BOTH_WAYS
async def test_a_server_that_is_stuck_is_given_up_after_its_time(parallel: bool):
    stuck, fine = Noted("a", slow_s=600), Noted("b", stuck=True)
    manager = MCPServerManager(
        [stuck, fine], connect_timeout_seconds=0.05, cleanup_timeout_seconds=0.05, connect_in_parallel=parallel
    )
    async with no_leaks(), manager:
        assert manager.active_servers == [fine]
        assert isinstance(manager.errors[stuck], TimeoutError)
    assert isinstance(manager.errors[fine], TimeoutError)


async def test_connecting_at_once_does_not_wait_for_the_slowest():
    servers = [Noted("slow", slow_s=600), Noted("b"), Noted("c")]
    manager = MCPServerManager(servers, connect_timeout_seconds=None, connect_in_parallel=True)
    async with no_leaks():
        connecting = asyncio.create_task(manager.connect_all())
        while not all(server.done for server in servers[1:]):
            await asyncio.sleep(0)
        assert not connecting.done()
        connecting.cancel()
        await asyncio.wait({connecting})
        await manager.cleanup_all()
    assert [server.done for server in servers] == [["closed"], ["connected", "closed"], ["connected", "closed"]]


@pytest.mark.parametrize("suppressed", [True, False])
async def test_a_cancellation_while_it_connects_leaves_nothing_open(suppressed: bool):
    first, hanging = Noted("a"), Noted("b", slow_s=600)
    manager = MCPServerManager([first, hanging], suppress_cancelled_error=suppressed)
    async with no_leaks():
        connecting = asyncio.create_task(manager.connect_all())
        while not hanging.tasks:
            await asyncio.sleep(0)
        connecting.cancel()
        if suppressed:
            assert await connecting == [first]
            assert isinstance(manager.errors[hanging], asyncio.CancelledError)
            await manager.cleanup_all()
        else:
            with pytest.raises(asyncio.CancelledError):
                await connecting
    assert first.done == ["connected", "closed"]
    assert hanging.done == ["closed"]


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), True, "1"])
def test_times_that_mean_nothing_are_refused(seconds: Any):
    kind = TypeError if isinstance(seconds, bool | str) else ValueError
    with pytest.raises(kind):
        MCPServerManager([], connect_timeout_seconds=seconds)
    manager = MCPServerManager([])
    with pytest.raises(kind):
        manager.cleanup_timeout_seconds = seconds
