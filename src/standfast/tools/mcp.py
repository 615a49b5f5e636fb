"""The tools of MCP servers as function tools. The servers are the application's; any class with two methods will do.

Standfast does not connect to servers. What it takes from one is its list of tools and the way to call them; a server
that wants some of its calls approved says so, and then they are.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from standfast.agents.context import RunContextWrapper, ToolContext
from standfast.ground.errors import ModelBehaviorError, UserError
from standfast.tools.function import FunctionTool, Invoker, ToolNeedsApproval, default_tool_error_function
from standfast.tools.names import function_style
from standfast.tools.strict import ensure_strict_json_schema
from standfast.words.items import ToolOrigin, ToolOriginType, read, to_plain


class MCPServerLike(Protocol):
    """What standfast needs of an MCP server, connected by the application; the SDK's servers have it."""

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Sequence[Any]:
        """Its tools: name, description, inputSchema."""
        ...

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None) -> Any:
        """The result of a call: content, structuredContent."""
        ...


async def mcp_tools(
    servers: Sequence[MCPServerLike], config: Mapping[str, Any], ctx: RunContextWrapper[Any], agent: Any
) -> list[FunctionTool]:
    """Every tool of these servers, in their order; raises UserError if two have one name."""
    tools: list[FunctionTool] = []
    for server in servers:
        for described in await server.list_tools(ctx, agent):
            tools.append(_as_function_tool(server, described, config, agent))
    names = [tool.name for tool in tools]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UserError(
            f"more than one MCP server has a tool called {', '.join(doubled)}",
            "Set mcp_config={'include_server_in_tool_names': True}.",
        )
    return tools


def _as_function_tool(server: MCPServerLike, described: Any, config: Mapping[str, Any], agent: Any) -> FunctionTool:
    name: str = read(described, "name")
    schema = to_plain(read(described, "inputSchema") or {})
    schema.setdefault("properties", {})  # the provider wants it said, MCP does not
    strict = bool(config.get("convert_schemas_to_strict"))
    if strict:
        try:
            schema = ensure_strict_json_schema(schema)
        except UserError:
            strict = False  # best effort: the schema is used as it is

    async def run(ctx: ToolContext[Any], arguments: str) -> Any:
        return _output(server, await server.call_tool(name, _object(ctx.tool_name, arguments)))

    shown = f"{function_style(server.name)}__{name}" if config.get("include_server_in_tool_names") else name
    return FunctionTool(
        name=shown,
        description=read(described, "description") or "",
        params_json_schema=schema,
        on_invoke_tool=Invoker(run, None),
        strict_json_schema=strict,
        needs_approval=_approval(server, described, agent),
        failure_error_function=config.get("failure_error_function", default_tool_error_function),
        origin=ToolOrigin(ToolOriginType.MCP, mcp_server_name=server.name),
        title=read(described, "title"),
    )


def _approval(server: Any, described: Any, agent: Any) -> ToolNeedsApproval:
    """The server's policy: its own `needs_approval`, or that of the SDK's servers, who keep it elsewhere."""
    policy: Any = getattr(server, "needs_approval", None)
    if policy is None:
        of_sdk = getattr(server, "_get_needs_approval_for_tool", None)
        policy = of_sdk(described, agent) if of_sdk is not None else False
    elif callable(policy) and len(inspect.signature(policy).parameters) == 1:
        policy = policy(read(described, "name"))
    return policy if callable(policy) else bool(policy)


def _object(tool_name: str, arguments: str) -> dict[str, Any]:
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ModelBehaviorError(
            f"Invalid JSON input for tool {tool_name}: expected a JSON object", "Send one JSON object as the arguments."
        )
    return parsed


def _output(server: Any, result: Any) -> Any:
    structured = read(result, "structuredContent")
    if structured and getattr(server, "use_structured_content", False):
        return json.dumps(to_plain(structured))
    parts = [_part(content) for content in read(result, "content") or ()]
    return parts[0] if len(parts) == 1 else parts or "[]"


def _part(content: Any) -> dict[str, Any]:
    match read(content, "type"):
        case "text":
            return {"type": "text", "text": read(content, "text")}
        case "image":
            data = f"data:{read(content, 'mimeType')};base64,{read(content, 'data')}"
            return {"type": "image", "image_url": data}
        case _:
            return {"type": "text", "text": json.dumps(to_plain(content), default=str)}
