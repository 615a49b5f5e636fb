"""The tools of MCP servers as function tools. The servers are the application's; any class with two methods will do.

Standfast does not connect to servers. What it takes from one is its list of tools and the way to call them; a server
that wants some of its calls approved says so, and then they are.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from standfast.agents.context import RunContextWrapper, ToolContext
from standfast.ground.awaiting import maybe_await
from standfast.ground.errors import MCPToolCancellationError, ModelBehaviorError, SettingTypeError, UserError
from standfast.ground.jsonvalue import copy_json
from standfast.tools.function import (
    FunctionTool,
    FunctionToolCustomDataContext,
    Invoker,
    ToolErrorFunction,
    ToolNeedsApproval,
    default_tool_error_function,
)
from standfast.tools.names import function_style
from standfast.tools.strict import ensure_strict_json_schema
from standfast.words.items import ToolOrigin, ToolOriginType, read, to_plain


class MCPServerLike(Protocol):
    """What standfast needs of an MCP server, connected by the application; the SDK's servers have it.

    Read where a server has them, under the SDK's names: `needs_approval`, `use_structured_content`,
    `failure_error_function`, `tool_meta_resolver`, `custom_data_extractor`, `tool_input_guardrails` and
    `tool_output_guardrails`.
    """

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


@dataclass(frozen=True)
class MCPToolMetaContext:
    """What a server's `tool_meta_resolver` gets: the call whose `_meta` it makes."""

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class MCPToolCustomDataContext:
    """What a server's `custom_data_extractor` gets: the call, the server's result, and what the model will read."""

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    tool_display_name: str
    arguments: Mapping[str, Any]
    result_meta: Mapping[str, Any] | None
    structured_content: Mapping[str, Any] | None
    is_error: bool
    tool_output: Any


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

    shown = f"{function_style(server.name)}__{name}" if config.get("include_server_in_tool_names") else name
    calls = _Calls(server, described, shown)
    return FunctionTool(
        name=shown,
        description=read(described, "description") or "",
        params_json_schema=schema,
        on_invoke_tool=Invoker(calls.run, None),
        strict_json_schema=strict,
        tool_input_guardrails=getattr(server, "tool_input_guardrails", None),
        tool_output_guardrails=getattr(server, "tool_output_guardrails", None),
        needs_approval=_approval(server, described, agent),
        failure_error_function=_failure_function(server, config),
        custom_data_extractor=calls.custom_data if getattr(server, "custom_data_extractor", None) else None,
        origin=ToolOrigin(ToolOriginType.MCP, mcp_server_name=server.name),
        title=read(described, "title"),
    )


class _Calls:
    """The calls of one tool of a server, with the results that its `custom_data_extractor` is still to look at."""

    def __init__(self, server: Any, described: Any, shown: str) -> None:
        self._server, self._name, self._shown = server, read(described, "name"), shown
        meta = read(described, "meta")
        self._meta: dict[str, Any] = dict(meta) if isinstance(meta, Mapping) else {}
        self._results: dict[str, tuple[dict[str, Any], Any]] = {}

    async def run(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Call the tool and return what the model reads of its result."""
        given = _object(ctx.tool_name, arguments)
        meta = {**await self._resolved_meta(ctx, given), **self._meta}
        more = {"meta": meta} if meta else {}  # a server that knows no meta is called as before
        result = await self._uncancelled(self._server.call_tool(self._name, given, **more))
        if getattr(self._server, "custom_data_extractor", None):
            self._results[ctx.tool_call_id] = (given, result)
        return _output(self._server, result)

    async def _resolved_meta(self, ctx: ToolContext[Any], given: dict[str, Any]) -> dict[str, Any]:
        resolver = getattr(self._server, "tool_meta_resolver", None)
        if resolver is None:
            return {}
        meta = await maybe_await(resolver(MCPToolMetaContext(ctx, self._server.name, self._name, copy_json(given))))
        if meta is not None and not isinstance(meta, dict):
            raise SettingTypeError(
                f"the tool_meta_resolver of MCP server {self._server.name!r} returned a {type(meta).__name__}",
                "Return a dict, or None.",
            )
        return meta or {}

    async def _uncancelled(self, call: Any) -> Any:
        """The result; a cancellation that nobody here asked for came from the server's side, and is a failure."""
        try:
            return await call
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise MCPToolCancellationError(
                f"the call of tool {self._name!r} on MCP server {self._server.name!r} was cancelled from inside",
                "Look at the server and its connection; reconnect it and call again.",
            ) from error

    async def custom_data(self, data: FunctionToolCustomDataContext) -> Any:
        """Ask the server's `custom_data_extractor` about one finished call."""
        given, result = self._results.pop(data.tool_context.tool_call_id, ({}, None))
        return await maybe_await(
            self._server.custom_data_extractor(
                MCPToolCustomDataContext(
                    run_context=data.tool_context,
                    server_name=self._server.name,
                    tool_name=self._name,
                    tool_display_name=self._shown,
                    arguments=given,
                    result_meta=_mapping(read(result, "meta")),
                    structured_content=_mapping(read(result, "structuredContent")),
                    is_error=bool(read(result, "isError")),
                    tool_output=data.output,
                )
            )
        )


def _mapping(value: Any) -> dict[str, Any] | None:
    plain = to_plain(value)
    return plain if isinstance(plain, dict) else None


def _failure_function(server: Any, config: Mapping[str, Any]) -> ToolErrorFunction | None:
    """What tells the model of a failure: the server's function, else the agent's, else the usual one."""
    of_agent = config.get("failure_error_function", default_tool_error_function)
    of_sdk = getattr(server, "_get_failure_error_function", None)
    if of_sdk is not None:
        chosen: ToolErrorFunction | None = of_sdk(of_agent)
    else:
        chosen = getattr(server, "failure_error_function", of_agent)
    return chosen


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
    failed = read(result, "isError")  # then the text that says why is in the content
    if structured and not failed and getattr(server, "use_structured_content", False):
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
