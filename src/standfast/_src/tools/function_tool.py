"""Python functions as tools: `FunctionTool`, and its factory `function_tool`.

A tool is data with one callable in it. The policy of a call (approval, guardrails, hooks, timeouts, failures) is not
here but in `invoke`, so that text and voice share it. Beyond the SDK's fields, a tool has a policy for a call that had
begun when the process crashed: run it again, ask a person, or tell the model that the outcome is unknown.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict, Unpack, overload

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.aio import maybe_await
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import InvalidSettingError, SettingTypeError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import RunItem, ToolApprovalItem, ToolOrigin
from standfast._src.items.tool_outputs import tool_output
from standfast._src.tools.docstrings import DocstringStyle
from standfast._src.tools.local_tool import (
    BY_IDEMPOTENCE,
    LocalTool,
    ToolCaller,
    ToolErrorFunction,
    ToolInvoker,
    ToolTimeoutBehavior,
    UnknownOutcomePolicy,
    check_callers,
    checked_policy,
    default_tool_error_function,
    failure_text,
)
from standfast._src.tools.output_types import DeclaredOutput, OutputAdapter, checked_output, declared_output
from standfast._src.tools.outputs import serialise_output
from standfast._src.tools.prepared_arguments import ArgumentMismatch, Prepared, Preparer, preparer_of
from standfast._src.tools.schema import FuncSchema, function_schema
from standfast._src.tools.strict_schema import ensure_strict_json_schema
from standfast._src.tools.tool_guardrails import ToolInputGuardrail, ToolOutputGuardrail
from standfast._src.tools.worker_threads import run_in_thread

ToolEnabled = bool | Callable[[RunContextWrapper[Any], Any], "bool | Awaitable[bool]"]
ToolNeedsApproval = bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]


@dataclass(frozen=True)
class FunctionToolCustomDataContext:
    """Argument of a `custom_data_extractor`: the call, and the output for the model."""

    tool_context: ToolContext[Any]
    tool: FunctionTool
    output: Any
    raw_item: Mapping[str, Any]


FunctionToolCustomDataExtractor = Callable[
    [FunctionToolCustomDataContext], "Awaitable[Mapping[str, Any] | None] | Mapping[str, Any] | None"
]
"""Makes data for the application that stays on the output item and is never sent to a model."""


@dataclass
class FunctionToolResult:
    """A finished call, as passed to a `tool_use_behavior` function."""

    tool: FunctionTool
    output: Any
    run_item: RunItem | None
    interruptions: list[ToolApprovalItem] = field(default_factory=list)
    agent_run_result: Any = None


class Invoker:
    """The `on_invoke_tool` of a tool made by standfast. `run` raises the function's errors; `__call__` applies the
    failure policy. An invoker belongs to one tool, so a copy of a tool gets its own.
    """

    __slots__ = ("prepare", "run", "tool", "wrapped")

    def __init__(
        self,
        run: ToolInvoker,
        wrapped: Callable[..., Any] | None,
        tool: FunctionTool | None = None,
        *,
        prepare: Preparer | None = None,
    ) -> None:
        self.run, self.wrapped, self.tool = run, wrapped, tool
        self.prepare = prepare
        """Reads arguments ahead of a call; None for a tool that is given the model's text itself."""

    def of(self, tool: FunctionTool) -> Invoker:
        """Return the same invoker for another tool: a copy of a tool follows its own failure policy."""
        return Invoker(self.run, self.wrapped, tool, prepare=self.prepare)

    def __deepcopy__(self, memo: dict[int, Any]) -> Invoker:
        # A deep copy of a tool runs the same function or object: a second object would have a state of its own.
        copied = Invoker(self.run, self.wrapped, prepare=self.prepare)
        copied.tool = deepcopy(self.tool, memo)
        return copied

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Return the function's result, or the failure policy's replacement."""
        try:
            return await self.run(ctx, arguments)
        except Exception as error:
            assert self.tool is not None
            return await failure_text(self.tool, ctx, error)


class _Wrapped:
    """`tool.__wrapped__`: the function given to `function_tool`; read-only, and absent on tools made otherwise."""

    def __get__(self, tool: FunctionTool | None, owner: type[Any] | None = None) -> Any:
        wrapped = getattr(tool.on_invoke_tool, "wrapped", None) if tool is not None else None
        if wrapped is None:
            raise AttributeError("__wrapped__: this tool was not made from a Python function")
        return wrapped

    def __set__(self, tool: FunctionTool, value: object) -> None:
        raise AttributeError("__wrapped__ is read-only: it would no longer be the function that runs")


@dataclass
class FunctionTool(LocalTool):
    """A function for a model to call.

    `function_tool` makes one from a Python function; use this class for all other cases.
    """

    may_end_run: ClassVar[bool] = True

    name: str
    """The name the model calls."""

    description: str
    """Description for the model."""

    params_json_schema: dict[str, Any]
    """The JSON schema of the arguments."""

    on_invoke_tool: ToolInvoker
    """Gets the context and the arguments as JSON text. What it returns is the output; what it raises ends the run."""

    strict_json_schema: bool = True
    """True if the provider enforces the schema; the schema is made strict on construction."""

    is_enabled: ToolEnabled = True
    """Condition for offering the tool: a bool, or a function of the context and the agent."""

    tool_input_guardrails: list[ToolInputGuardrail[Any]] | None = None
    """Asked one after the other before the call runs."""

    tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None = None
    """Asked one after the other before the model sees the output."""

    needs_approval: ToolNeedsApproval = False
    """Need for an approval: a bool, or a function of the context, the arguments and the call id."""

    timeout_seconds: float | None = None
    """Seconds that a call may take."""

    timeout_behavior: ToolTimeoutBehavior = "error_as_result"
    """Effect of a timeout: a text for the model, or the end of the run with `ToolTimeoutError`."""

    timeout_error_function: ToolErrorFunction | None = None
    """Makes the text about a timeout for the model, in place of the usual one."""

    defer_loading: bool = False
    """True if a provider with tool search hides the tool until found."""

    custom_data_extractor: FunctionToolCustomDataExtractor | None = field(default=None, kw_only=True)
    """Makes data for the application that stays on the output item and is never sent to a model."""

    allowed_callers: list[ToolCaller] | None = field(default=None, kw_only=True)
    """Allowed callers on a provider with programmatic tool calling."""

    output_json_schema: dict[str, Any] | None = field(default=None, kw_only=True)
    """The JSON schema of the output, for programmatic callers."""

    failure_error_function: ToolErrorFunction | None = field(default=None, kw_only=True)
    """Makes the text about the tool's error for the model; None ends the run instead."""

    idempotent: bool | None = field(default=None, kw_only=True)
    """True if running a call twice does no more than running it once."""

    on_unknown: UnknownOutcomePolicy = field(default=BY_IDEMPOTENCE, kw_only=True)
    """Policy for a call that had begun when the process crashed: "rerun" it (the default for idempotent tools),
    "ask" a person, or "report" to the model that its outcome is unknown (the default for all other tools)."""

    argument_mismatch: ArgumentMismatch = field(default="ask", kw_only=True)
    """Policy for a call whose tool would get other values than the model wrote (`"5000"` for an int, an unknown key,
    a default), if a function decides about it (`needs_approval`, input guardrails): "ask" a person, without asking
    the function, or "refuse" it and let the model read the reason."""

    namespace: str | None = field(default=None, kw_only=True, repr=False)
    """The group of tools it belongs to, on a provider that knows namespaces; see `tool_namespace`."""

    namespace_description: str | None = field(default=None, kw_only=True, repr=False)
    """Description of the namespace for the model."""

    origin: ToolOrigin | None = field(default=None, kw_only=True, repr=False)
    """Source of the tool, if not a Python function."""

    title: str | None = field(default=None, kw_only=True, repr=False)
    """A name for people."""

    output_adapter: OutputAdapter | None = field(default=None, kw_only=True, repr=False)
    """The pydantic `TypeAdapter` of the declared output type, where a type was declared and not a schema."""

    agent_tool: Any = field(default=None, kw_only=True, repr=False)
    """The `AgentTool` of a tool that runs an agent."""

    __wrapped__ = _Wrapped()

    def __post_init__(self) -> None:
        if isinstance(self.on_invoke_tool, Invoker):
            self.on_invoke_tool = self.on_invoke_tool.of(self)
        if self.strict_json_schema:
            self.params_json_schema = ensure_strict_json_schema(self.params_json_schema)
        _check_timeout(self)
        check_callers(self.name, self.allowed_callers)
        self.on_unknown = checked_policy(self.name, self.on_unknown, idempotent=self.idempotent)
        if self.argument_mismatch not in ("ask", "refuse"):
            raise InvalidSettingError(
                f"argument_mismatch={self.argument_mismatch!r} of tool {self.name!r} is not a policy",
                "Choose 'ask' or 'refuse'.",
            )

    def __copy__(self) -> FunctionTool:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        invoker = self.on_invoke_tool
        if getattr(invoker, "__self__", None) is self and inspect.ismethod(invoker):
            # A subclass may have given one of its own methods: the copy runs on its own state.
            copied.on_invoke_tool = invoker.__func__.__get__(copied, type(copied))
        FunctionTool.__post_init__(copied)
        return copied

    @property
    def qualified_name(self) -> str:
        """Name of the tool, prefixed by a namespace if any."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    def lookup_names(self) -> tuple[str, ...]:
        """Return the names with and without the namespace: not every model repeats it."""
        return self.qualified_name, self.name

    def target(self) -> str:
        """Return the agent or MCP server behind the function, if any."""
        if self.agent_tool is not None:
            return f"agent:{self.agent_tool.agent.name}"
        server = getattr(self.origin, "mcp_server_name", None)
        return "function" if server is None else f"server:{server}"

    def prepare(self, arguments: str) -> Prepared:
        """Convert the arguments as a call will; an invoker of the application gets the text unchanged."""
        reads_ahead = self.on_invoke_tool.prepare if isinstance(self.on_invoke_tool, Invoker) else None
        return super().prepare(arguments) if reads_ahead is None else reads_ahead(arguments)

    def runner(self) -> ToolInvoker:
        """Return the function without the failure policy: the caller applies the policy."""
        return self.on_invoke_tool.run if isinstance(self.on_invoke_tool, Invoker) else self.on_invoke_tool

    def item_output(self, value: object) -> str | list[Item]:
        """Convert a value for the model, by the declared schema if any."""
        if self.output_json_schema is None:
            return tool_output(value)
        return serialise_output(self.qualified_name, self.output_adapter, value)

    async def custom_data(self, ctx: ToolContext[Any], output: Any, raw_item: Mapping[str, Any]) -> Any:
        """Return what `custom_data_extractor` makes of an output."""
        if self.custom_data_extractor is None:
            return None
        seen = FunctionToolCustomDataContext(ctx, self, output, raw_item)
        return await maybe_await(self.custom_data_extractor(seen))


def _check_timeout(tool: FunctionTool) -> None:
    if tool.timeout_seconds is not None:
        check_seconds("the timeout of a tool", tool.timeout_seconds, is_ttl=True)
    if tool.timeout_behavior not in ("error_as_result", "raise_exception"):
        raise InvalidSettingError(
            f"timeout_behavior={tool.timeout_behavior!r} is no behavior",
            "Choose 'error_as_result' or 'raise_exception'.",
        )
    if tool.timeout_error_function is not None and not callable(tool.timeout_error_function):
        raise SettingTypeError("timeout_error_function cannot be called", "Give a function of context and error.")


def tool_namespace(*, name: str, description: str | None, tools: list[FunctionTool]) -> list[FunctionTool]:
    """Copy tools into a named group, for providers with namespaces."""
    if not name or not name.strip():
        raise UserError("a tool namespace has no name", "Give a non-empty name.")
    if not description or not description.strip():
        raise UserError(f"tool namespace {name!r} has no description", "Say what its tools are for.")
    grouped = []
    for tool in tools:
        if not isinstance(tool, FunctionTool):
            raise UserError(f"{describe_type(tool)} cannot be in a namespace", "Only function tools can.")
        if tool.name == name.strip():
            # Providers name a tool that search has found "name.name" in that case, which is what they reserve.
            raise UserError(
                f"tool {tool.name!r} has the name of its namespace", "Give the namespace, or the tool, another name."
            )
        copied = tool.__copy__()
        copied.namespace, copied.namespace_description = name.strip(), description.strip()
        grouped.append(copied)
    return grouped


_DEFAULT_FAILURE: Any = default_tool_error_function


class FunctionToolOptions(TypedDict, total=False):
    """The keyword arguments of `function_tool`, for type checkers."""

    name_override: str | None
    description_override: str | None
    docstring_style: DocstringStyle | None
    use_docstring_info: bool
    failure_error_function: ToolErrorFunction | None
    strict_mode: bool
    is_enabled: ToolEnabled
    needs_approval: ToolNeedsApproval
    tool_input_guardrails: list[ToolInputGuardrail[Any]] | None
    tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None
    timeout: float | None
    timeout_behavior: ToolTimeoutBehavior
    timeout_error_function: ToolErrorFunction | None
    defer_loading: bool
    custom_data_extractor: FunctionToolCustomDataExtractor | None
    allowed_callers: list[ToolCaller] | None
    output_type: Any
    output_json_schema: dict[str, Any] | None
    idempotent: bool | None
    on_unknown: UnknownOutcomePolicy | None
    argument_mismatch: ArgumentMismatch


@overload
def function_tool(func: Callable[..., Any], **options: Unpack[FunctionToolOptions]) -> FunctionTool: ...


@overload
def function_tool(**options: Unpack[FunctionToolOptions]) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def function_tool(
    func: Callable[..., Any] | None = None,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    docstring_style: DocstringStyle | None = None,
    use_docstring_info: bool = True,
    failure_error_function: ToolErrorFunction | None = _DEFAULT_FAILURE,
    strict_mode: bool = True,
    is_enabled: ToolEnabled = True,
    needs_approval: ToolNeedsApproval = False,
    tool_input_guardrails: list[ToolInputGuardrail[Any]] | None = None,
    tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None = None,
    timeout: float | None = None,
    timeout_behavior: ToolTimeoutBehavior = "error_as_result",
    timeout_error_function: ToolErrorFunction | None = None,
    defer_loading: bool = False,
    custom_data_extractor: FunctionToolCustomDataExtractor | None = None,
    allowed_callers: list[ToolCaller] | None = None,
    output_type: Any | None = None,
    output_json_schema: dict[str, Any] | None = None,
    idempotent: bool | None = None,
    on_unknown: UnknownOutcomePolicy | None = None,
    argument_mismatch: ArgumentMismatch = "ask",
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a Python function; use it bare or with arguments.

    The schema comes from the signature, the descriptions from the docstring. A first parameter annotated with
    `RunContextWrapper` or `ToolContext` gets the context. A sync function runs in a worker thread, which cannot be
    stopped, so `timeout` is refused for it. When the function raises, the model is told by `failure_error_function`;
    None ends the run instead. `idempotent` and `on_unknown` say what becomes of a call that had begun when the process
    died, and `argument_mismatch` what becomes of one whose arguments do not have the declared types, see
    `FunctionTool`.

    Args:
        func: The function; left out where the decorator has arguments.
        name_override: The name for the model, in place of the function's.
        description_override: The description for the model, in place of the docstring's.
        docstring_style: The style of the docstring: google, numpy or sphinx; found out if left out.
        use_docstring_info: False to give the model no docstring.
        failure_error_function: Function to word an exception for the model; None ends the run with the exception.
        strict_mode: False for a schema with free keys, not enforced by a provider.
        is_enabled: False, or a function of context and agent, to leave the tool out of a request.
        needs_approval: True, or a function of context, arguments and call id, to wait for a person.
        tool_input_guardrails: Checks of a call before it runs.
        tool_output_guardrails: Checks of an output before the model reads it.
        timeout: Seconds after which an async call is cancelled.
        timeout_behavior: `error_as_result` tells the model, `raise_exception` ends the run.
        timeout_error_function: Function to word the timeout for the model.
        defer_loading: True for a tool to be found by search.
        custom_data_extractor: Function to take data for the application from an output.
        allowed_callers: The callers of the tool: the model directly, or its programs.
        output_type: The type of the output, for programs of the model.
        output_json_schema: The same as a JSON schema.
        idempotent: True if a repeated call does no harm: after a crash it is repeated.
        on_unknown: The policy for a call cut by a crash: `rerun`, `ask` or `report`.
        argument_mismatch: The policy for arguments of other types than declared: ask a person, or refuse.

    Returns:
        A `FunctionTool`, or a decorator for a function.

    Example:
        @function_tool
        async def book_table(guests: int) -> str:
            "Book a table."
            return f"a table for {guests}"
    """

    if output_type is not None and output_json_schema is not None:
        raise UserError("a tool was given output_type and output_json_schema", "Give one: they say the same thing.")

    def make(function: Callable[..., Any]) -> FunctionTool:
        is_async = _is_async(function)
        if timeout is not None and not is_async:
            raise InvalidSettingError(
                f"{getattr(function, '__name__', function)!r} is a sync function and cannot be stopped by a timeout",
                "Make it async, or drop the timeout.",
            )
        schema = function_schema(
            function,
            docstring_style=docstring_style,
            name_override=name_override,
            description_override=description_override,
            use_docstring_info=use_docstring_info,
            strict_json_schema=strict_mode,
        )
        run = _runner_of(function, schema, is_async=is_async)
        declared = declared_output(
            function, callers=allowed_callers, output_type=output_type, output_json_schema=output_json_schema
        )
        return FunctionTool(
            name=schema.name,
            description=schema.description or "",
            params_json_schema=schema.params_json_schema,
            on_invoke_tool=Invoker(_wrap_output_check(run, schema, declared), function, prepare=preparer_of(schema)),
            strict_json_schema=strict_mode,
            is_enabled=is_enabled,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
            needs_approval=needs_approval,
            timeout_seconds=timeout,
            timeout_behavior=timeout_behavior,
            timeout_error_function=timeout_error_function,
            defer_loading=defer_loading,
            custom_data_extractor=custom_data_extractor,
            allowed_callers=allowed_callers,
            output_json_schema=declared.schema,
            output_adapter=declared.adapter,
            failure_error_function=failure_error_function,
            idempotent=idempotent,
            on_unknown=BY_IDEMPOTENCE if on_unknown is None else on_unknown,
            argument_mismatch=argument_mismatch,
        )

    return make if func is None else make(func)


def _is_async(function: Callable[..., Any]) -> bool:
    if inspect.isfunction(function) or inspect.ismethod(function):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _runner_of(function: Callable[..., Any], schema: FuncSchema, *, is_async: bool) -> ToolInvoker:
    """Return a runner that parses JSON arguments and calls the function. Not itself async: one await less on every
    call.
    """
    read, takes_context = schema.read, schema.takes_context

    def run_async(ctx: ToolContext[Any], arguments: str) -> Awaitable[Any]:
        args, kwargs = read(arguments)
        call: Awaitable[Any] = function(ctx, *args, **kwargs) if takes_context else function(*args, **kwargs)
        return call

    async def run_sync(ctx: ToolContext[Any], arguments: str) -> Any:
        args, kwargs = read(arguments)
        if takes_context:
            args.insert(0, ctx)
        result = await run_in_thread(function, *args, **kwargs)
        return await maybe_await(result)

    return run_async if is_async else run_sync


def _wrap_output_check(run: ToolInvoker, schema: FuncSchema, declared: DeclaredOutput) -> ToolInvoker:
    """Add a check of the result against the declared type; without a declared type return the runner unchanged."""
    adapter = declared.adapter
    if adapter is None:
        return run

    async def checked(ctx: ToolContext[Any], arguments: str) -> Any:
        return checked_output(schema.name, adapter, await run(ctx, arguments))

    return checked


tool = function_tool
"""The SDK's short name for `function_tool`, in its `decorators` module."""
