"""Context for the application's code during a run.

A `RunContextWrapper` carries the application's own object and the run's usage; the wrappers for hooks and tools are
derived from it and share both, and the `ApprovalBook`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from standfast._src.agents.approvals import (
    ApprovalBook,
    agent_of,
    decision_about,
    digest_shown_arguments,
    scope_of,
    tool_scope,
)
from standfast._src.base.errors import ApprovalError
from standfast._src.base.json_values import Item
from standfast._src.items.items import ToolApprovalItem
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.run import Run

if TYPE_CHECKING:
    # The checker's TypeVar knows defaults on every Python, so `Agent(name="a")` needs no annotation.
    from typing_extensions import TypeVar

    TContext = TypeVar("TContext", default=Any)
    TState = TypeVar("TState", default=Any)
else:
    from typing import TypeVar

    TState = TypeVar("TState")
    """The kind of state that a result gives: `RunState[TContext]`, which is the face's."""

    TContext = TypeVar("TContext")
    """The kind of the application's own object: `Agent[TContext]`, `RunContextWrapper[TContext]`."""


AnyAgent: TypeAlias = Any
"""An agent where an application's own code takes it: `Agent` or `RealtimeAgent`, which are made of what is here.

Whoever overrides such a method, or gives such a function, says itself of which class its agents are.
"""


class NamedAgent(Protocol):
    """Attributes common to all agents, voice agents included."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...


class ChildPaused(BaseException):
    """A run inside a call waits for a person: the call has neither failed nor returned and is invoked again later.

    Not an Exception, like `asyncio.CancelledError` and for the same reason: a tool that catches every failure must not
    turn a pause into a result. `child` is that run.
    """

    def __init__(self, child: Run | None = None) -> None:
        super().__init__(child)
        self.child = child


class ChildClosed(BaseException):
    """A nested run was cut and stored, and its process crashed before the outer run was informed.

    The result of the call is therefore unknown. Not an Exception, for the same reason as `ChildPaused`.
    """


# --- wrappers --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RunContextWrapper(Generic[TContext]):
    """The application's own object, beside what the run knows. The object is passed around, never looked into."""

    context: TContext
    """The object given to `Runner.run(context=...)`."""

    usage: Usage = field(default_factory=Usage)
    """Usage of the run so far."""

    turn_input: list[Item] = field(default_factory=list)
    """The input of the turn, where there is one."""

    tool_input: Any = None
    """In a run started by `Agent.as_tool(parameters=...)`: the parsed arguments of that call."""

    approvals: ApprovalBook = field(default_factory=ApprovalBook, repr=False, kw_only=True)
    """The decisions this run knows; shared by every wrapper of one run."""

    def __repr__(self) -> str:
        # The application's object is the application's: what it knows is not for logs.
        return f"{type(self).__name__}(context={type(self.context).__name__}, usage={self.usage!r})"

    def approve_tool(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:
        """Let this call run; with `always_approve` every later call of the same tool too."""
        self.approvals.record(decision_about(approval_item, approved=True, sticky=always_approve))

    def reject_tool(
        self, approval_item: ToolApprovalItem, always_reject: bool = False, rejection_message: str | None = None
    ) -> None:
        """Reject a call, with a text for the model; with `always_reject` also every later call of the tool."""
        self.approvals.record(
            decision_about(approval_item, approved=False, sticky=always_reject, message=rejection_message)
        )

    def is_tool_approved(self, tool_name: str, call_id: str) -> bool | None:
        """Return the decision about a call, or None if undecided."""
        return self.get_approval_status(tool_name, call_id)

    def get_approval_status(
        self,
        tool_name: str,
        call_id: str,
        *,
        tool_namespace: str | None = None,
        existing_pending: ToolApprovalItem | None = None,
        tool_lookup_key: tuple[str, ...] | None = None,
        current_invocation: ToolApprovalItem | None = None,
    ) -> bool | None:
        """Return the decision about a call, or None if undecided.

        Given the item that shows the call (`existing_pending` or `current_invocation`), raises ApprovalError if the
        decision was about another tool or other arguments; without one, such a decision just does not count.
        """
        shown = current_invocation if current_invocation is not None else existing_pending
        if shown is not None:
            return self.approvals.status(call_id, scope_of(shown), digest_shown_arguments(shown), agent=agent_of(shown))
        try:
            return self.approvals.status(call_id, _named_scope(tool_name, tool_namespace, tool_lookup_key))
        except ApprovalError:
            # A decision about a hosted tool also names its server, unknown in a query by name.
            return self.approvals.status_of_other_kind(call_id, tool_name)

    def get_rejection_message(
        self,
        tool_name: str,
        call_id: str,
        *,
        tool_namespace: str | None = None,
        existing_pending: ToolApprovalItem | None = None,
        tool_lookup_key: tuple[str, ...] | None = None,
    ) -> str | None:
        """Return the rejecting person's text for the model, if any."""
        if existing_pending is not None:
            return self.approvals.message(call_id, scope_of(existing_pending), agent=agent_of(existing_pending))
        return self.approvals.message(call_id, _named_scope(tool_name, tool_namespace, tool_lookup_key))


def _named_scope(tool_name: str, tool_namespace: str | None, tool_lookup_key: object) -> str:
    """Return the scope of a tool, by its name or by an approval item's `tool_lookup_key`."""
    match tool_lookup_key:
        case ("namespaced", str(space), str(name)):
            return tool_scope(name, namespace=space)
        case ("bare", str(name)):
            return tool_scope(name)
        case _:
            return tool_scope(tool_name, namespace=tool_namespace)


def wrapper_of(context: object) -> RunContextWrapper[Any]:
    """Wrap an application object. A wrapper is returned unchanged: hooks may hold it."""
    return context if isinstance(context, RunContextWrapper) else RunContextWrapper(context)


@dataclass(eq=False)
class AgentHookContext(RunContextWrapper[TContext]):
    """Context of `on_agent_start`, `on_agent_end`, `on_start` and `on_end`; `turn_input` is the input of the turn."""
