"""Names: one name means one thing, and which of several tools are there at all."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.handoffs import Handoff
from standfast._src.base.errors import UserError
from standfast._src.tools.availability import filter_enabled
from standfast._src.tools.function_tool import FunctionTool
from standfast._src.tools.hosted_tools import HostedMCPTool, WebSearchTool
from standfast._src.tools.tool_names import function_style, resolve_names

CTX: RunContextWrapper[Any] = RunContextWrapper("app")


def tool(name: str, **options: Any) -> FunctionTool:
    async def run(ctx: Any, arguments: str) -> str:
        return arguments

    return FunctionTool(name, "", {}, run, **options)


def way(name: str) -> Handoff[Any, Any]:
    async def take_over(ctx: Any, arguments: str) -> Any: ...

    return Handoff(name, "", {}, take_over, "agent")


@pytest.mark.parametrize(
    ("name", "style"), [("Billing agent", "billing_agent"), ("A-b.c", "a_b_c"), ("Zoë 2", "zo__2"), ("ok", "ok")]
)
def test_names_become_what_providers_accept(name: str, style: str):
    assert function_style(name) == style


def test_without_collisions_everything_stays():
    tools, ways = [tool("a"), WebSearchTool(), tool("b")], [way("c")]
    assert resolve_names(tools, ways, "error") == (tools, ways)


def test_a_handoff_beats_a_tool_and_else_the_last_one_wins(caplog: pytest.LogCaptureFixture):
    first, second, loser, winner = tool("a"), tool("a"), tool("b"), way("b")
    with caplog.at_level(logging.WARNING, "standfast"):
        assert resolve_names([first, loser, second], [winner]) == ([second], [winner])
    assert "a, b" in caplog.text


def test_the_same_tool_listed_twice_is_one_tool():
    twice, other = tool("a"), tool("b")
    assert resolve_names([twice, other, twice], []) == ([other, twice], [])


def test_the_policy_error_refuses_by_name():
    with pytest.raises(UserError, match="called a"):
        resolve_names([tool("a"), tool("a")], [], "error")
    with pytest.raises(ValueError):
        resolve_names([], [], "shrug")  # type: ignore[arg-type]


def test_a_namespace_makes_another_name_and_hosted_tools_have_none():
    servers = [HostedMCPTool({"type": "mcp", "server_label": label}) for label in "ab"]
    tools = [tool("a"), tool("a", namespace="n"), *servers]
    assert resolve_names(tools, [], "error") == (tools, [])


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=3))
def test_every_name_is_left_exactly_once(names: list[str], ways: list[str]):
    kept_tools, kept_ways = resolve_names([tool(name) for name in names], [way(name) for name in ways])
    left = [each.name for each in kept_tools] + [each.tool_name for each in kept_ways]
    assert sorted(left) == sorted(set(names) | set(ways))
    assert {each.tool_name for each in kept_ways} == set(ways)


# --- is_enabled ------------------------------------------------------------------------------------------------------


async def test_tools_are_there_unless_they_say_no():
    async def later(ctx: RunContextWrapper[Any], agent: Any) -> bool:
        await asyncio.sleep(0)
        return bool(ctx.context == "app" and agent == "agent")

    tools = [
        tool("always"),
        tool("never", is_enabled=False),
        tool("sync yes", is_enabled=lambda ctx, agent: True),
        tool("sync no", is_enabled=lambda ctx, agent: False),
        tool("async", is_enabled=later),
        WebSearchTool(),
    ]
    found = await filter_enabled(tools, CTX, "agent")
    assert [each.name for each in found] == ["always", "sync yes", "async", "web_search"]


async def test_functions_are_asked_at_once():
    everyone = asyncio.Barrier(3)

    async def wait(ctx: Any, agent: Any) -> bool:
        await everyone.wait()
        return True

    tools = [tool(str(number), is_enabled=wait) for number in range(3)]
    async with asyncio.timeout(60):
        assert await filter_enabled(tools, CTX, None) == tools


async def test_one_that_raises_ends_the_asking_of_all():
    ended = []

    async def endless(ctx: Any, agent: Any) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return True

    async def broken(ctx: Any, agent: Any) -> bool:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await filter_enabled([tool("a", is_enabled=endless), tool("b", is_enabled=broken)], CTX, None)
    assert ended == [True]


async def test_one_that_raises_at_once_leaves_no_unstarted_coroutine_behind():
    async def never_started(ctx: Any, agent: Any) -> bool:
        raise AssertionError("started")

    def broken(ctx: Any, agent: Any) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await filter_enabled([tool("a", is_enabled=never_started), tool("b", is_enabled=broken)], CTX, None)
    gc.collect()  # an unstarted coroutine would be reported here, as an error


async def test_where_nobody_has_to_be_asked_nothing_is_awaited():
    tools = [tool("a"), WebSearchTool()]
    asking = filter_enabled(tools, CTX, None)
    with pytest.raises(StopIteration) as done:
        asking.send(None)
    assert done.value.value == tools
    assert done.value.value is not tools
