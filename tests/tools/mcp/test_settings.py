"""What a server is given: names and signatures of the SDK, filters, policies, the cache, wrong settings."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agents.mcp
import agents.mcp.manager
import agents.mcp.server
import agents.mcp.util
import pytest
from tools.mcp.helpers import bare, lines

import standfast.mcp
from standfast import Agent, InvalidSettingError, RunContextWrapper, Runner, SettingTypeError, UserError
from standfast._src.tools.mcp_names import names_with_servers, redact
from standfast.mcp import (
    MCPServer,
    MCPServerSse,
    MCPServerStdio,
    MCPServerStreamableHttp,
    MCPUtil,
    create_static_tool_filter,
)
from standfast.testing import ScriptedModel, final, function_call

CTX: RunContextWrapper[Any] = RunContextWrapper("app")
AGENT: Agent[Any] = Agent(name="clerk")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


# --- as in the SDK ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", ".server", ".manager", ".util"])
def test_every_name_of_the_sdks_modules_is_there(path: str):
    theirs = importlib.import_module(f"agents.mcp{path}")
    public = getattr(theirs, "__all__", None) or [
        name
        for name, value in vars(theirs).items()
        if getattr(value, "__module__", None) == theirs.__name__ and name[:1].isalpha() and len(name) > 1
    ]
    assert public
    ours = importlib.import_module(f"standfast.mcp{path}")
    assert [name for name in public if not hasattr(ours, name)] == []


METHODS = [
    (name, method)
    for name in (
        "MCPServer",
        "MCPServerStdio",
        "MCPServerSse",
        "MCPServerStreamableHttp",
        "MCPServerManager",
        "MCPUtil",
    )
    for method, _ in inspect.getmembers(getattr(agents.mcp, name), callable)
    if method == "__init__" or not method.startswith("_")
]


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_every_method_is_called_as_the_sdks(name: str, method: str):
    def shape(owner: Any) -> list[tuple[str, Any, str]]:
        parameters = inspect.signature(getattr(getattr(owner, name), method)).parameters.values()
        return [(one.name, one.kind, _default(one.default)) for one in parameters]

    assert shape(standfast.mcp) == shape(agents.mcp)


def _default(value: Any) -> str:
    if type(value).__name__ in ("_UnsetType", "Unset"):
        return "not set"  # each package has its own
    return getattr(value, "__name__", None) or repr(value)


@pytest.mark.parametrize("name", ["MCPServerStdioParams", "MCPServerSseParams", "MCPServerStreamableHttpParams"])
def test_params_have_the_sdks_fields(name: str):
    assert set(getattr(standfast.mcp, name).__annotations__) == set(getattr(agents.mcp, name).__annotations__)


@pytest.mark.parametrize("name", ["ToolFilterContext", "MCPToolMetaContext", "MCPToolCustomDataContext"])
def test_contexts_have_the_sdks_fields(name: str):
    ours, theirs = getattr(standfast.mcp, name), getattr(agents.mcp, name)
    assert list(ours.__dataclass_fields__) == list(theirs.__dataclass_fields__)


def test_names_with_a_server_in_them_are_the_sdks():
    listed = [
        ("files", ["read", "read.all", "a" * 80]),
        ("Files!", ["read", "???"]),
        ("sse: https://me:pw@host/x?key=1", ["read"]),
        ("files", ["read"]),
    ]
    servers = [
        (place, SimpleNamespace(name=name), [SimpleNamespace(name=tool) for tool in tools])
        for place, (name, tools) in enumerate(listed)
    ]
    taken = {"mcp_files__read_all"}
    theirs = agents.mcp.MCPUtil._build_prefixed_tool_name_overrides(servers, reserved_names=set(taken))  # type: ignore[arg-type]
    expected = [[theirs[place, number] for number in range(len(tools))] for place, (_, tools) in enumerate(listed)]
    assert names_with_servers(listed, taken) == expected


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "stdio: python",
        "sse: http://a:b@c:1/d?e#f",
        "https://u@h",
        "streamable_http: http://[::1]:8/x?y",
    ],
)
def test_a_name_for_people_has_no_password_in_it(name: str):
    assert redact(name) == agents.mcp.server.get_mcp_server_log_name(name)


# --- missing ---------------------------------------------------------------------------------------------------------

WITHOUT_MCP = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mcp", "mcp_types", "httpx2", "anyio"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize("name", ["MCPServerStdio", "MCPServerSse", "MCPServerStreamableHttp"])
def test_without_the_extra_the_command_that_installs_it_is_named(name: str):
    code = f"{WITHOUT_MCP}\nfrom standfast.mcp import {name}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert told.strip().endswith("Install it with: pip install 'standfast[mcp]'")


def test_what_needs_no_connection_needs_no_extra():
    names = "MCPServer, MCPServerManager, MCPUtil, ToolFilterContext, create_static_tool_filter, MCPToolMetaContext"
    code = f"{WITHOUT_MCP}\nfrom standfast.mcp import {names}\nprint('fine')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "fine\n"


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (None, ["look", "die", "hang", "refuse"]),
        (create_static_tool_filter(), ["look", "die", "hang", "refuse"]),
        (create_static_tool_filter(allowed_tool_names=["die", "look"]), ["look", "die"]),
        (create_static_tool_filter(blocked_tool_names=["die", "look"]), ["hang", "refuse"]),
        (create_static_tool_filter(["die", "look"], ["die"]), ["look"]),
        (lambda context, tool: tool.name in context.run_context.context + context.agent.name + context.server_name, []),
        (lambda context, tool: 1 / (tool.name != "look"), ["die", "hang", "refuse"]),
    ],
)
async def test_a_filter_says_which_tools_an_agent_gets(chosen: Any, kept: list[str], notes: Path):
    async with bare("calm", notes, tool_filter=chosen) as server:
        assert [tool.name for tool in await server.list_tools(CTX, AGENT)] == kept


async def test_a_filter_function_may_be_async_and_changes_nothing_by_looking(notes: Path):
    async def choose(context: Any, tool: Any) -> bool:
        tool.description = tool.input_schema["x"] = "changed"
        return bool(tool.name == "look")

    async with bare("calm", notes, tool_filter=choose, cache_tools_list=True) as server:
        for _ in range(2):
            (look,) = await server.list_tools(CTX, AGENT)
            assert (look.description, look.input_schema) == ("Looks.", {"type": "object", "properties": {}})
        with pytest.raises(UserError, match="needs the run and the agent"):
            await server.list_tools()


# --- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cached", "count"), [(False, 3), (True, 2)])
async def test_tools_are_asked_for_each_time_or_kept_until_somebody_says_so(cached: bool, count: int, notes: Path):
    async with bare("counts listings", notes, cache_tools_list=cached) as server:
        assert server.cached_tools is None
        await server.list_tools()
        listed = await server.list_tools()
        listed[0].name = "changed"
        server.invalidate_tools_cache()
        assert [tool.name for tool in await server.list_tools()] == ["look", "die", "hang", "refuse"]
        assert server.cached_tools is not None
        assert [tool.name for tool in server.cached_tools] == ["look", "die", "hang", "refuse"]
    assert len(lines(notes)) == count


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"require_approval": "sometimes"}, UserError),
        ({"require_approval": 3}, UserError),
        ({"require_approval": {"look": "maybe"}}, UserError),
        ({"require_approval": {"always": {"tool_names": "look"}}}, UserError),
        ({"require_approval": {"always": {"tool_names": ["a"]}, "never": {"tool_names": ["a"]}}}, UserError),
        ({"require_approval": {"always": {"tool_names": ["a"]}, "b": "never"}}, UserError),
        ({"tool_filter": ["look"]}, SettingTypeError),
        ({"tool_filter": {"allowed": ["look"]}}, SettingTypeError),
        ({"client_session_timeout_seconds": -1}, ValueError),
        ({"client_session_timeout_seconds": float("inf")}, ValueError),
        ({"client_session_timeout_seconds": "5"}, TypeError),
        ({"retry_backoff_seconds_max": float("nan")}, ValueError),
        ({"max_list_pages": 0}, InvalidSettingError),
        ({"max_list_pages": 1.5}, SettingTypeError),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(settings: Any, kind: Any):
    with pytest.raises(kind):
        MCPServerStdio({"command": "x"}, **settings)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (MCPServerStdio, {"comand": "x"}),
        (MCPServerStdio, {"command": "x", "arguments": []}),
        (MCPServerSse, {"url": "http://x", "header": {}}),
        (MCPServerSse, {"url": "http://x", "auth": ("me", "pw")}),
        (MCPServerStreamableHttp, {}),
        (MCPServerStreamableHttp, "http://x"),
    ],
)
def test_params_with_a_typing_error_are_refused(kind: Any, params: Any):
    with pytest.raises(SettingTypeError):
        kind(params)


async def test_an_http_client_of_the_wrong_library_is_refused_with_the_right_one():
    import httpx

    def make(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        return httpx.AsyncClient(headers=headers)

    for kind in (MCPServerSse, MCPServerStreamableHttp):
        with pytest.raises(UserError, match=r"httpx2\.AsyncClient"):
            await kind({"url": "http://127.0.0.1:9/x", "httpx_client_factory": make}).connect()


# --- a server of one's own -------------------------------------------------------------------------------------------


class Own(MCPServer):
    """A server that is reached in a way of its own."""

    name = "own"  # type: ignore[assignment]

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
        return [SimpleNamespace(name="look", input_schema={"type": "object"}, description=None, title="Look")]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        return SimpleNamespace(content=[], structured_content={"seen": arguments}, is_error=False)

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_a_server_of_ones_own_has_the_policies_and_says_what_it_has_not():
    server = Own(use_structured_content=True, require_approval="always")
    (tool,) = await MCPUtil.get_function_tools(server, False, CTX, AGENT)
    assert (tool.name, tool.description, tool.needs_approval) == ("look", "Look", True)  # type: ignore[union-attr]
    (described,) = await server.list_tools()
    assert await MCPUtil.invoke_mcp_tool(server, described, CTX, '{"at": "sky"}') == '{"seen": {"at": "sky"}}'
    asked = Own(require_approval=lambda context, agent, tool: False)
    assert MCPUtil.to_function_tool(described, asked, False).needs_approval is True  # no agent to ask about
    for call in (server.list_resources(), server.list_resource_templates(), server.read_resource("x")):
        with pytest.raises(NotImplementedError, match="Override it in Own"):
            await call


async def test_a_result_of_ones_own_server_that_cannot_be_read_is_told_as_unknown():
    """The call was made. That it failed would be read as leave to make it again."""

    class Odd(Own):
        async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
            return SimpleNamespace(content=7)

    model = ScriptedModel([[function_call("look", {}, call_id="c1")], final("done")])
    result = await Runner.run(Agent(name="a", model=model, mcp_servers=[Odd()]), "look")
    (output,) = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert "not known; it was not repeated" in str(output)
