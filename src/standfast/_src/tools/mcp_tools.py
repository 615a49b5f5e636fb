"""Tools of MCP servers as function tools for a model.

A server is anything with a name and two methods: the connecting classes of `standfast.mcp`, the SDK's, or a class of
the application. From here on a call is a tool call like any other; in addition, the call's `_meta` carries the key by
which the server can recognise a repeated call.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from standfast._src.agents.context import AnyAgent, RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import (
    MCPServerError,
    MCPToolCancellationError,
    ModelBehaviorError,
    SettingTypeError,
    UserError,
)
from standfast._src.base.json_values import copy_json
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ToolOrigin, ToolOriginType, read, to_plain
from standfast._src.sessions.signatures import has_parameter
from standfast._src.tools.function_tool import FunctionTool, FunctionToolCustomDataContext, Invoker, ToolNeedsApproval
from standfast._src.tools.hosted_tools import Tool
from standfast._src.tools.local_tool import ToolErrorFunction, default_tool_error_function
from standfast._src.tools.mcp_names import names_with_servers, redact
from standfast._src.tools.strict_schema import ensure_strict_json_schema

T = TypeVar("T")

MCPToolLike: TypeAlias = Any
"""A tool as a server lists it: `Tool` of either version of `mcp`, or a plain dict. `read` reads each."""

ReadResult: TypeAlias = str | dict[str, Any] | list[dict[str, Any]]
"""A result for the model: text, a part or several parts."""

IDEMPOTENCY_KEY = "standfast/idempotency-key"
"""Name in a call's `_meta` of the key that is equal for every attempt at this call, and for no other call."""


class MCPServerLike(Protocol):
    """Interface of an MCP server for an agent: those of `standfast.mcp`, the SDK's, or a class of the application.

    Read where a server has them, under the SDK's names: `needs_approval`, `use_structured_content`,
    `failure_error_function`, `tool_meta_resolver`, `custom_data_extractor`, `tool_input_guardrails` and
    `tool_output_guardrails`.
    """

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    async def list_tools(self, run_context: Any = None, agent: AnyAgent = None) -> Sequence[MCPToolLike]:
        """Return its tools: name, description, inputSchema."""
        ...

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None) -> Any:
        """The result of a call: content, structuredContent."""
        ...


@dataclass(frozen=True)
class MCPToolMetaContext:
    """Argument of a server's `tool_meta_resolver`: the call for the `_meta`."""

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class MCPToolCustomDataContext:
    """Argument of a server's `custom_data_extractor`: the call, the server's result, and the output for the model."""

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    tool_display_name: str
    arguments: Mapping[str, Any]
    result_meta: Mapping[str, Any] | None
    structured_content: Mapping[str, Any] | None
    is_error: bool
    tool_output: Any


class MCPUtil:
    """Makes function tools of what MCP servers list, under the SDK's names."""

    @classmethod
    async def get_all_function_tools(
        cls,
        servers: Sequence[MCPServerLike],
        convert_schemas_to_strict: bool,
        run_context: RunContextWrapper[Any],
        agent: AnyAgent,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        include_server_in_tool_names: bool = False,
        reserved_tool_names: set[str] | None = None,
    ) -> list[Tool]:
        """Return all tools of these servers, in their order; raise UserError for two tools of equal name."""
        listed = [(server, await server.list_tools(run_context, agent)) for server in servers]
        names = [[str(read(one, "name")) for one in tools] for _, tools in listed]
        if include_server_in_tool_names:
            by_server = [(server.name, theirs) for (server, _), theirs in zip(listed, names, strict=True)]
            names = names_with_servers(by_server, reserved_tool_names or set())
        _refuse_doubled([(server.name, theirs) for (server, _), theirs in zip(listed, names, strict=True)])
        return [
            cls.to_function_tool(one, server, convert_schemas_to_strict, agent, failure_error_function, name)
            for (server, tools), theirs in zip(listed, names, strict=True)
            for one, name in zip(tools, theirs, strict=True)
        ]

    @classmethod
    async def get_function_tools(
        cls,
        server: MCPServerLike,
        convert_schemas_to_strict: bool,
        run_context: RunContextWrapper[Any],
        agent: AnyAgent,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        include_server_in_tool_names: bool = False,
        tool_name_override: Callable[[MCPToolLike], str] | None = None,
        reserved_tool_names: set[str] | None = None,
        server_index: int = 0,
    ) -> list[Tool]:
        """The tools of one server, named by `tool_name_override` if given; `server_index` is the SDK's and not used."""
        tools = await server.list_tools(run_context, agent)
        names = [str(read(one, "name")) for one in tools]
        if tool_name_override is not None:
            names = [tool_name_override(one) for one in tools]
        elif include_server_in_tool_names:
            (names,) = names_with_servers([(server.name, names)], reserved_tool_names or set())
        _refuse_doubled([(server.name, names)])
        return [
            cls.to_function_tool(one, server, convert_schemas_to_strict, agent, failure_error_function, name)
            for one, name in zip(tools, names, strict=True)
        ]

    @classmethod
    def to_function_tool(
        cls,
        tool: MCPToolLike,
        server: MCPServerLike,
        convert_schemas_to_strict: bool,
        agent: AnyAgent = None,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        tool_name_override: str | None = None,
    ) -> FunctionTool:
        """Convert a server's tool to a function tool. Without an agent, a policy function that needs one asks
        a person.
        """
        shown = tool_name_override or read(tool, "name")
        schema, is_strict = _schema_of(tool, server, strict=convert_schemas_to_strict)
        annotations = read(tool, "annotations")
        title = read(tool, "title") or read(annotations, "title")
        calls = _Calls(server, tool, shown)
        before, after = (getattr(server, f"tool_{side}_guardrails", None) for side in ("input", "output"))
        return FunctionTool(
            name=shown,
            description=read(tool, "description") or title or "",
            params_json_schema=schema,
            on_invoke_tool=Invoker(calls.run, None),
            strict_json_schema=is_strict,
            tool_input_guardrails=None if before is None else list(before),
            tool_output_guardrails=None if after is None else list(after),
            needs_approval=_approval(server, tool, agent),
            failure_error_function=_failure_function(server, failure_error_function),
            custom_data_extractor=calls.custom_data if getattr(server, "custom_data_extractor", None) else None,
            # The server's own word about its tool: a call that changes nothing more when repeated may be repeated.
            idempotent=True if is_repeatable(tool) else None,
            origin=ToolOrigin(ToolOriginType.MCP, mcp_server_name=redact(server.name)),
            title=title,
        )

    @classmethod
    async def invoke_mcp_tool(
        cls,
        server: MCPServerLike,
        tool: MCPToolLike,
        context: RunContextWrapper[Any],
        input_json: str,
        *,
        meta: dict[str, Any] | None = None,
        tool_display_name: str | None = None,
    ) -> ReadResult:
        """Call a tool of a server and return the model's text of its result."""
        calls = _Calls(server, tool, tool_display_name or read(tool, "name"))
        return _output(server, await calls.result(context, _object(calls.shown, input_json), meta))


def is_repeatable(tool: object) -> bool:
    """Return whether the server declares the tool idempotent or read-only."""
    annotations = read(tool, "annotations")
    return _either(annotations, "read_only_hint") is True or _either(annotations, "idempotent_hint") is True


def _refuse_doubled(listed: Sequence[tuple[str, Sequence[str]]]) -> None:
    seen: dict[str, str] = {}
    for server, names in listed:
        here = redact(server)
        for name in names:
            if name in seen and seen[name] == here and list(names).count(name) > 1:
                raise UserError(
                    f"MCP server {here!r} lists more than one tool called {name!r}",
                    "A model could not say which it means: correct the server, or leave the name out with its "
                    f"tool_filter={{'blocked_tool_names': [{name!r}]}}.",
                )
            if name in seen:
                raise UserError(
                    f"more than one MCP server has a tool called {name!r}: {seen[name]!r} and {here!r}",
                    "Set mcp_config={'include_server_in_tool_names': True}, or leave it out with a tool_filter.",
                )
            seen[name] = here


def _schema_of(described: object, server: MCPServerLike, *, strict: bool) -> tuple[dict[str, Any], bool]:
    """Return the schema of a tool's arguments, and whether it is strict: best effort, else the schema unchanged."""
    schema = to_plain(_either(described, "input_schema") or {})
    kind = schema.get("type", "object") if isinstance(schema, dict) else None
    if kind != "object" and kind != ["object"]:
        name = read(described, "name")
        raise UserError(
            f"tool {name!r} of MCP server {redact(server.name)!r} takes no object as its arguments, "
            "which no provider accepts",
            f"Correct the server, or leave the tool out with its tool_filter={{'blocked_tool_names': [{name!r}]}}.",
        )
    is_open = bool(schema)  # an empty schema says nothing, also not that other keys are welcome
    schema.setdefault("properties", {})  # the provider wants it said, MCP does not
    if not strict:
        return schema, False
    try:
        return ensure_strict_json_schema(schema if is_open else {}), True
    except UserError:
        return schema, False


class _Calls:
    """Calls of a server's tool, with results kept for its `custom_data_extractor`."""

    def __init__(self, server: MCPServerLike, described: object, shown: str) -> None:
        self._server: Any = server  # what it may have besides is looked for where it is used
        self._name, self.shown = read(described, "name"), shown
        meta = read(described, "meta")
        self._meta: dict[str, Any] = dict(meta) if isinstance(meta, Mapping) else {}
        self._results: dict[str, tuple[dict[str, Any], Any]] = {}

    async def run(self, ctx: ToolContext[Any], arguments: str) -> ReadResult:
        """Call the tool and return the model's text of its result."""
        given = _object(ctx.tool_name, arguments)
        result = await self.result(ctx, given, self._meta)
        if getattr(self._server, "custom_data_extractor", None):
            self._results[ctx.tool_call_id] = (given, result)
        return _output(self._server, result)

    async def result(self, ctx: RunContextWrapper[Any], given: dict[str, Any], meta: Mapping[str, Any] | None) -> Any:
        """Return the server's answer. Its own meta overrides the resolver's, and the key of this call both."""
        asked = {**await self._resolved_meta(ctx, given), **(meta or {})}
        key = getattr(ctx, "idempotency_key", None)
        # A server that knows no meta is called as before.
        if key is not None and has_parameter(self._server.call_tool, "meta"):
            asked[IDEMPOTENCY_KEY] = key
        more = {"meta": copy_json(asked)} if asked else {}
        return await self._await_call(self._server.call_tool(self._name, given, **more))

    async def _resolved_meta(self, ctx: RunContextWrapper[Any], given: dict[str, Any]) -> dict[str, Any]:
        resolver = getattr(self._server, "tool_meta_resolver", None)
        if resolver is None:
            return {}
        meta = await maybe_await(resolver(MCPToolMetaContext(ctx, self._server.name, self._name, copy_json(given))))
        if meta is not None and not isinstance(meta, dict):
            raise SettingTypeError(
                f"the tool_meta_resolver of MCP server {redact(self._server.name)!r} returned {describe_type(meta)}",
                "Return a dict, or None.",
            )
        return meta or {}

    async def _await_call(self, call: Awaitable[T]) -> T:
        """Await a call; a cancellation from the server's side, not requested here, is a failure."""
        try:
            return await call
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise MCPToolCancellationError(
                f"the call of tool {self._name!r} on MCP server {redact(self._server.name)!r} was cancelled "
                "from inside",
                "Look at the server and its connection; reconnect it and call again.",
            ) from error

    async def custom_data(self, data: FunctionToolCustomDataContext) -> Any:
        """Call the server's `custom_data_extractor` for a finished call."""
        given, result = self._results.pop(data.tool_context.tool_call_id, ({}, None))
        return await maybe_await(
            self._server.custom_data_extractor(
                MCPToolCustomDataContext(
                    run_context=data.tool_context,
                    server_name=self._server.name,
                    tool_name=self._name,
                    tool_display_name=self.shown,
                    arguments=given,
                    result_meta=_to_dict(read(result, "meta")),
                    structured_content=_to_dict(_either(result, "structured_content")),
                    is_error=bool(_either(result, "is_error")),
                    tool_output=data.output,
                )
            )
        )


def _either(thing: object, name: str) -> Any:
    """Return a field by its Python name, as in `mcp` 2, or by its wire name, as in `mcp` 1 and plain dicts."""
    value = read(thing, name)
    if value is not None:
        return value
    first, *others = name.split("_")
    return read(thing, first + "".join(word.capitalize() for word in others))


def _to_dict(value: object) -> dict[str, Any] | None:
    plain = to_plain(value)
    return plain if isinstance(plain, dict) else None


def _failure_function(server: MCPServerLike, of_agent: ToolErrorFunction | None) -> ToolErrorFunction | None:
    """Return the function that describes a failure to the model: the server's, else the agent's."""
    of_sdk = getattr(server, "_get_failure_error_function", None)
    if of_sdk is not None:
        chosen: ToolErrorFunction | None = of_sdk(of_agent)
    else:
        chosen = getattr(server, "failure_error_function", of_agent)
    return chosen


def _approval(server: MCPServerLike, described: object, agent: object) -> ToolNeedsApproval:
    """Return the server's policy: its own `needs_approval`, or the private one of the SDK's servers."""
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


def _output(server: MCPServerLike, result: object) -> ReadResult:
    """Return the model's text of a result. An unreadable result does not mean that the call had no effect."""
    try:
        return _read_result(server, result)
    except Exception as error:
        told = MCPServerError(
            f"a tool of MCP server {redact(server.name)!r} was called, and its answer cannot be read: {error}",
            "Whether it took effect is not known; it was not repeated. Check before repeating it.",
        )
        told.outcome_unknown = True
        raise told from error


def _read_result(server: MCPServerLike, result: object) -> ReadResult:
    structured = _either(result, "structured_content")
    failed = _either(result, "is_error")  # then the text that says why is in the content
    if structured and not failed and getattr(server, "use_structured_content", False):
        return json.dumps(to_plain(structured))
    parts = [_part(content) for content in read(result, "content") or ()]
    return parts[0] if len(parts) == 1 else parts or "[]"


def _part(content: object) -> dict[str, Any]:
    match read(content, "type"):
        case "text":
            return {"type": "text", "text": read(content, "text")}
        case "image":
            data = f"data:{_either(content, 'mime_type')};base64,{read(content, 'data')}"
            return {"type": "image", "image_url": data}
        case _:
            return {"type": "text", "text": json.dumps(to_plain(content), default=str)}
