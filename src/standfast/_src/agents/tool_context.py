"""Context of a tool: the context of its run, and the tool call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.context import AnyAgent, NamedAgent, RunContextWrapper, TContext
from standfast._src.agents.run_config import RunConfig, coerce_run_config
from standfast._src.base.json_values import Item
from standfast._src.items.items import RawItem, read
from standfast._src.items.usage import Usage

_NOT_GIVEN: Any = object()


class ToolContext(RunContextWrapper[TContext]):
    """Context of a tool: the run's context and the call itself."""

    tool_name: str
    """The name the model called."""

    tool_call_id: str
    """The id of the call; unique in the run and everything resumed from it."""

    tool_arguments: str
    """The arguments as the model wrote them."""

    tool_call: RawItem
    """The call item."""

    tool_namespace: str | None
    """The namespace the model named, if any."""

    agent: AnyAgent
    """The calling agent."""

    run_config: RunConfig | None
    """The `RunConfig` of the run."""

    idempotency_key: str | None
    """Key that is equal for every attempt at this call, in any process, and for no other call: pass it to the
    service that a tool with side effects uses."""

    run_agent: Callable[[Any], Awaitable[Any]] | None
    """Runs an agent inside this call (`AgentToolRun` in, its result out); put here by the driver."""

    called_inside: tuple[str, ...]
    """The tools that agents inside this call have called, each once: for a `failure_error_function`, which says what
    the model reads when such an agent failed."""

    def __init__(
        self,
        context: TContext,
        usage: Usage = _NOT_GIVEN,
        tool_name: str = _NOT_GIVEN,
        tool_call_id: str = _NOT_GIVEN,
        tool_arguments: str = _NOT_GIVEN,
        tool_call: RawItem = None,
        *,
        tool_namespace: str | None = None,
        agent: NamedAgent | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        turn_input: list[Item] | None = None,
        tool_input: object = None,
        idempotency_key: str | None = None,
        run_agent: Callable[[Any], Awaitable[Any]] | None = None,
        approvals: ApprovalBook | None = None,
    ) -> None:
        for name, value in (
            ("tool_name", tool_name),
            ("tool_call_id", tool_call_id),
            ("tool_arguments", tool_arguments),
        ):
            if value is _NOT_GIVEN:
                raise ValueError(f"a ToolContext is about one call and needs its {name}")
        self.context = context
        self.usage = Usage() if usage is _NOT_GIVEN else usage
        self.turn_input = [] if turn_input is None else turn_input
        self.tool_input = tool_input
        self.approvals = ApprovalBook() if approvals is None else approvals
        self.tool_name = tool_name
        self.tool_call_id = tool_call_id
        self.tool_arguments = tool_arguments
        self.tool_call = tool_call
        self.tool_namespace = tool_namespace if tool_namespace is not None else read(tool_call, "namespace")
        self.agent = agent
        self.run_config = coerce_run_config(run_config) if isinstance(run_config, Mapping) else run_config
        self.idempotency_key = idempotency_key
        self.run_agent = run_agent
        self.called_inside = ()

    @property
    def qualified_tool_name(self) -> str:
        """The tool's name, prefixed by a namespace if any."""
        return f"{self.tool_namespace}.{self.tool_name}" if self.tool_namespace else self.tool_name

    @classmethod
    def from_agent_context(
        cls,
        context: RunContextWrapper[TContext],
        tool_call_id: str,
        tool_call: RawItem = None,
        agent: AnyAgent = None,
        *,
        tool_name: str | None = None,
        tool_arguments: str | None = None,
        tool_namespace: str | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        run_agent: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> ToolContext[TContext]:
        """The context of one call, sharing the run's application object, usage and approvals."""
        outer = context if isinstance(context, ToolContext) else None
        name = tool_name if tool_name is not None else read(tool_call, "name")
        arguments = tool_arguments if tool_arguments is not None else read(tool_call, "arguments")
        return cls(
            context.context,
            context.usage,
            _NOT_GIVEN if name is None else name,
            tool_call_id,
            _NOT_GIVEN if arguments is None else arguments,
            tool_call,
            tool_namespace=tool_namespace if tool_namespace is not None else read(tool_call, "namespace"),
            agent=outer.agent if agent is None and outer is not None else agent,
            run_config=outer.run_config if run_config is None and outer is not None else run_config,
            turn_input=context.turn_input,
            tool_input=context.tool_input,
            idempotency_key=idempotency_key,
            run_agent=run_agent,
            approvals=context.approvals,
        )

    def for_child(self, tool_input: object = None, *, run_config: RunConfig | None = None) -> ToolContext[TContext]:
        """Build the context of a nested run: the same application object and usage, but separate decisions."""
        return ToolContext(
            self.context,
            self.usage,
            self.tool_name,
            self.tool_call_id,
            self.tool_arguments,
            self.tool_call,
            tool_namespace=self.tool_namespace,
            agent=self.agent,
            run_config=self.run_config if run_config is None else run_config,
            tool_input=tool_input,
            idempotency_key=self.idempotency_key,
        )
