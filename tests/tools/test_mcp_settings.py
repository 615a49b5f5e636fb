"""An MCP server's own settings work in a run, on the SDK's server class and on any other with the same names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from agents.mcp import MCPServer as SdkServer

from standfast import Agent, RunConfig, StandfastError, ToolApprovalItem, ToolCallItem, ToolCallOutputItem, UserError
from standfast.testing import ScriptedModel, function_call
from tests.runs.whole_runs import go, outputs, said

TOOL = SimpleNamespace(
    name="look",
    title="Look around",
    description="Looks.",
    inputSchema={"type": "object", "properties": {}},
    annotations=None,
    meta={"of": "the tool"},
)


class _Answers:
    """What both kinds of servers here do: one tool, whose calls are noted, and may fail."""

    seen: list[Any]
    failing: BaseException | None = None

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
        return [TOOL]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        self.seen.append((tool_name, arguments, meta))
        if self.failing is not None:
            raise self.failing
        return SimpleNamespace(
            content=[SimpleNamespace(type="text", text="seen")],
            structuredContent={"count": 3},
            meta={"cost": 2},
            isError=False,
        )


class OfTheSdk(_Answers, SdkServer):  # type: ignore[misc]
    """A server of the SDK's class, without a wire."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.seen = []

    @property
    def name(self) -> str:
        return "eyes"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


class OfNobody(_Answers):
    """A server of the application's own class."""

    name = "eyes"

    def __init__(self, **settings: Any) -> None:
        self.seen = []
        vars(self).update(settings)


SERVERS = pytest.mark.parametrize("kind", [OfTheSdk, OfNobody], ids=["sdk", "own"])


def watching(server: Any, *replies: Any, **options: Any) -> Agent[Any]:
    model = ScriptedModel([[function_call("look", {}, call_id="c1")], *replies])
    return Agent(name="watcher", model=model, mcp_servers=[server], **options)


@SERVERS
async def test_a_servers_failure_function_is_asked_before_the_agents(kind: Any) -> None:
    server = kind(failure_error_function=lambda context, error: f"server says {error}")
    server.failing = OSError("no light")
    of_agent = {"failure_error_function": lambda context, error: f"agent says {error}"}
    result = await go(watching(server, said("ok"), mcp_config=of_agent), "look")
    assert ["server says" in text and "no light" in text for text in outputs(result.to_input_list())] == [True]


@SERVERS
async def test_without_one_the_agents_is_asked(kind: Any) -> None:
    server = kind()
    server.failing = OSError("no light")
    of_agent = {"failure_error_function": lambda context, error: f"agent says {error}"}
    result = await go(watching(server, said("ok"), mcp_config=of_agent), "look")
    assert ["agent says" in text for text in outputs(result.to_input_list())] == [True]


@SERVERS
async def test_none_ends_the_run(kind: Any) -> None:
    server = kind(failure_error_function=None)
    server.failing = OSError("no light")
    with pytest.raises(UserError, match="no light"):
        await go(watching(server), "look")


@SERVERS
@pytest.mark.parametrize("is_async", [False, True])
async def test_meta_is_resolved_for_each_call_and_laid_under_the_tools_own(kind: Any, is_async: bool) -> None:
    asked: list[Any] = []

    def resolve(context: Any) -> Any:
        asked.append((context.server_name, context.tool_name, context.arguments, context.run_context.context))
        return {"trace": "t1", "of": "the resolver"}

    async def resolve_later(context: Any) -> Any:
        return resolve(context)

    server = kind(tool_meta_resolver=resolve_later if is_async else resolve)
    await go(watching(server, said("ok")), "look", context="app")
    assert asked == [("eyes", "look", {}, "app")]
    ((name, arguments, meta),) = server.seen
    assert (name, arguments) == ("look", {})
    key = meta.pop("standfast/idempotency-key")
    assert key.endswith(":c1")  # which the server can know a repeated call by
    assert meta == {"trace": "t1", "of": "the tool"}


@SERVERS
async def test_what_is_no_meta_is_told_to_the_model_as_a_failure(kind: Any) -> None:
    server = kind(tool_meta_resolver=lambda context: "x")
    result = await go(watching(server, said("ok")), "look")
    assert ["tool_meta_resolver" in text for text in outputs(result.to_input_list())] == [True]
    assert server.seen == []


@SERVERS
async def test_custom_data_stays_on_the_output_item_and_reaches_no_model(kind: Any) -> None:
    def extract(context: Any) -> Any:
        return {
            "from": [context.server_name, context.tool_name, context.tool_display_name],
            "meta": dict(context.result_meta),
            "structured": dict(context.structured_content),
            "error": context.is_error,
        }

    agent = watching(kind(custom_data_extractor=extract), said("ok"))
    result = await go(agent, "look")
    made = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    assert [item.custom_data for item in made] == [
        {"from": ["eyes", "look", "look"], "meta": {"cost": 2}, "structured": {"count": 3}, "error": False}
    ]
    assert "cost" not in str(agent.model.calls[1].input)  # type: ignore[union-attr]


@SERVERS
async def test_a_call_cancelled_from_inside_is_a_failure_with_a_name(kind: Any) -> None:
    failures: list[Any] = []
    server = kind(failure_error_function=lambda context, error: failures.append(error) or "cancelled")
    server.failing = asyncio.CancelledError()
    result = await go(watching(server, said("ok")), "look")
    assert outputs(result.to_input_list()) == ["cancelled"]
    assert [type(error).__name__ for error in failures] == ["MCPToolCancellationError"]
    assert isinstance(failures[0], StandfastError)


@SERVERS
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_items_say_where_their_tool_comes_from_and_its_title(kind: Any, streamed: bool) -> None:
    result = await go(watching(kind(), said("ok")), "look", streamed=streamed)
    call, output = (
        next(item for item in result.new_items if isinstance(item, of)) for of in (ToolCallItem, ToolCallOutputItem)
    )
    assert (call.title, call.description) == ("Look around", "Looks.")
    assert call.tool_origin == output.tool_origin
    assert (call.tool_origin.type.value, call.tool_origin.mcp_server_name) == ("mcp", "eyes")


@SERVERS
async def test_a_question_says_where_its_tool_comes_from(kind: Any) -> None:
    settings = {"require_approval": "always"} if kind is OfTheSdk else {"needs_approval": True}
    paused = await go(watching(kind(**settings)), "look")
    (question,) = paused.interruptions
    assert isinstance(question, ToolApprovalItem)
    assert (question.tool_origin.type.value, question.tool_origin.mcp_server_name) == ("mcp", "eyes")


async def test_an_agents_tool_says_so_too() -> None:
    inner = Agent(name="inner", model=ScriptedModel([said("inside")]))
    model = ScriptedModel([[function_call("ask_inner", {"input": "x"}, call_id="c1")], said("ok")])
    outer = Agent(name="outer", model=model, tools=[inner.as_tool("ask_inner", "Asks.")])
    result = await go(outer, "go", run_config=RunConfig())
    call = next(item for item in result.new_items if isinstance(item, ToolCallItem))
    assert (call.tool_origin.type.value, call.tool_origin.agent_name) == ("agent_as_tool", "inner")
