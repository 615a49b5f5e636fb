"""Tools that others run: a provider, or an MCP server that the application has connected."""

from __future__ import annotations

import dataclasses
from typing import Any

import agents
import pytest

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import UserError
from standfast._src.tools import hosted_tools
from standfast._src.tools.invocation import invoke, needs_approval

CTX: RunContextWrapper[Any] = RunContextWrapper("app")


@pytest.mark.parametrize(
    "name",
    [
        "FileSearchTool",
        "WebSearchTool",
        "CodeInterpreterTool",
        "HostedMCPTool",
        "ImageGenerationTool",
        "ToolSearchTool",
    ],
)
def test_hosted_tools_have_the_sdks_fields(name: str):
    ours, theirs = getattr(hosted_tools, name), getattr(agents, name)
    described = [(field.name, field.default) for field in dataclasses.fields(theirs)]
    assert [(field.name, field.default) for field in dataclasses.fields(ours)] == described
    required = {"vector_store_ids": ["v"], "tool_config": {"type": "x"}}
    known = {field.name for field in dataclasses.fields(theirs)}
    arguments = {key: value for key, value in required.items() if key in known}
    assert ours(**arguments).name == theirs(**arguments).name


def test_anything_else_a_provider_has_passes_through():
    tool = hosted_tools.ProviderTool({"type": "brand_new", "size": 3})
    assert (tool.name, tool.tool_config) == ("brand_new", {"type": "brand_new", "size": 3})


@pytest.mark.parametrize("kind", ["computer_use_preview", "local_shell", "apply_patch", "custom"])
def test_a_tool_that_the_program_would_have_to_run_is_refused_before_a_model_can_ask_for_it(kind: str):
    with pytest.raises(UserError, match=r"run by the program.*function_tool"):
        hosted_tools.ProviderTool({"type": kind})


def test_the_advice_about_computer_use_is_no_dead_end():
    with pytest.raises(ImportError, match="function tools") as refused:
        from standfast import ComputerTool  # noqa: F401
    assert "ProviderTool" not in str(refused.value)


@pytest.mark.parametrize("config", [None, "mcp", {}, {"type": 3}])
def test_a_definition_without_a_type_is_refused(config: Any):
    with pytest.raises(UserError, match="no definition"):
        hosted_tools.HostedMCPTool(config)


@pytest.mark.parametrize("count", [-1, 51, True, "3"])
def test_a_search_for_an_impossible_number_of_results_is_refused(count: Any):
    with pytest.raises(UserError):
        hosted_tools.FileSearchTool(["v"], max_num_results=count)


# --- MCP -------------------------------------------------------------------------------------------------------------


class Server:
    """A server in the process: what an application would connect, without the wire."""

    def __init__(self, name: str, *tools: dict[str, Any], **attributes: Any) -> None:
        self.name, self.tools, self.calls = name, tools, []  # type: ignore[var-annotated]
        vars(self).update(attributes)

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
        return self.tools

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None) -> Any:
        self.calls.append((tool_name, arguments))
        return {
            "content": [{"type": "text", "text": f"{tool_name} ran"}, *vars(self).get("more", [])],
            "structuredContent": {"ran": tool_name},
        }


LOOK = {
    "name": "look",
    "description": "Look.",
    "inputSchema": {"type": "object", "properties": {"at": {"type": "string"}}},
}
FREE = {"name": "free", "inputSchema": {"type": "object", "additionalProperties": True}}


def call(name: str, arguments: str = "{}") -> ToolContext[Any]:
    return ToolContext(None, tool_name=name, tool_call_id="c", tool_arguments=arguments)


async def test_an_agent_has_the_tools_of_its_servers_before_its_own():
    server = Server("eyes", LOOK)
    agent = Agent(name="a", mcp_servers=[server], tools=[hosted_tools.WebSearchTool()])
    tools = await agent.get_all_tools(CTX)
    assert [tool.name for tool in tools] == ["look", "web_search"]
    look: Any = tools[0]
    assert (look.description, look.strict_json_schema) == ("Look.", False)
    assert look.origin.to_json_dict() == {"type": "mcp", "mcp_server_name": "eyes"}
    outcome = await invoke(look, call("look"), '{"at": "sky"}')
    assert outcome.item_output == [{"type": "input_text", "text": "look ran"}]
    assert server.calls == [("look", {"at": "sky"})]


async def test_arguments_that_are_no_object_do_not_reach_the_server():
    server = Server("eyes", LOOK)
    look: Any = (await Agent(name="a", mcp_servers=[server]).get_mcp_tools(CTX))[0]
    for arguments in ("[1]", "{", "3"):
        assert "expected a JSON object" in (await invoke(look, call("look"), arguments)).output
    assert server.calls == []


async def test_schemas_are_made_strict_where_that_is_asked_and_possible():
    agent = Agent(name="a", mcp_servers=[Server("s", LOOK, FREE)], mcp_config={"convert_schemas_to_strict": True})
    look, free = await agent.get_mcp_tools(CTX)
    assert (look.strict_json_schema, free.strict_json_schema) == (True, False)  # type: ignore[union-attr]
    assert look.params_json_schema["required"] == ["at"]  # type: ignore[union-attr]


async def test_two_servers_with_one_name_are_told_apart_or_refused():
    servers = [Server("One", LOOK), Server("Two", LOOK)]
    with pytest.raises(UserError, match="include_server_in_tool_names"):
        await Agent(name="a", mcp_servers=servers).get_all_tools(CTX)
    agent = Agent(name="a", mcp_servers=servers, mcp_config={"include_server_in_tool_names": True})
    tools = await agent.get_all_tools(CTX)
    assert [tool.name for tool in tools] == ["mcp_One__look", "mcp_Two__look"]
    await invoke(tools[1], call("mcp_Two__look"), "{}")  # type: ignore[arg-type]
    assert servers[1].calls == [("look", {})]


async def test_arguments_that_are_no_object_are_refused_when_they_are_offered():
    odd = {"name": "odd", "inputSchema": {"type": "array"}}
    with pytest.raises(UserError, match=r"no object as its arguments.*blocked_tool_names"):
        await Agent(name="a", mcp_servers=[Server("s", LOOK, odd)]).get_all_tools(CTX)


async def test_a_servers_word_that_a_tool_may_be_repeated_counts():
    hints = [
        {"readOnlyHint": True},
        {"idempotentHint": True},
        {"idempotentHint": False},
        {"destructiveHint": True},
        None,
    ]
    tools = [{**LOOK, "name": f"look{number}", "annotations": hint} for number, hint in enumerate(hints)]
    made: Any = await Agent(name="a", mcp_servers=[Server("s", *tools)]).get_mcp_tools(CTX)
    assert [tool.on_unknown for tool in made] == ["rerun", "rerun", "report", "report", "report"]


async def test_images_and_other_parts_and_structured_content_are_passed_on():
    parts = [{"type": "image", "mimeType": "image/png", "data": "AA=="}, {"type": "odd", "x": 1}]
    look: Any = (await Agent(name="a", mcp_servers=[Server("s", LOOK, more=parts)]).get_mcp_tools(CTX))[0]
    assert (await invoke(look, call("look"), "{}")).item_output == [
        {"type": "input_text", "text": "look ran"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_text", "text": '{"type": "odd", "x": 1}'},
    ]
    structured = Server("s", LOOK, use_structured_content=True)
    look = (await Agent(name="a", mcp_servers=[structured]).get_mcp_tools(CTX))[0]
    assert (await invoke(look, call("look"), "{}")).output == '{"ran": "look"}'


async def test_a_server_that_wants_calls_approved_gets_that():
    for attributes in (
        {"needs_approval": True},
        {"needs_approval": lambda tool_name: tool_name == "look"},
        {"_get_needs_approval_for_tool": lambda tool, agent: True},
    ):
        look: Any = (await Agent(name="a", mcp_servers=[Server("s", LOOK, **attributes)]).get_mcp_tools(CTX))[0]
        assert await needs_approval(look, call("look"), "{}") is True
    look = (await Agent(name="a", mcp_servers=[Server("s", LOOK)]).get_mcp_tools(CTX))[0]
    assert await needs_approval(look, call("look"), "{}") is False


async def test_a_servers_failure_is_told_to_the_model_or_ends_the_run():
    class Broken(Server):
        async def call_tool(self, tool_name: str, arguments: Any) -> Any:
            raise ConnectionError("gone")

    look: Any = (await Agent(name="a", mcp_servers=[Broken("s", LOOK)]).get_mcp_tools(CTX))[0]
    assert (await invoke(look, call("look"), "{}")).output == "The tool failed: gone"
    agent = Agent(name="a", mcp_servers=[Broken("s", LOOK)], mcp_config={"failure_error_function": None})
    look = (await agent.get_mcp_tools(CTX))[0]
    with pytest.raises(UserError, match="gone"):
        await invoke(look, call("look"), "{}")
