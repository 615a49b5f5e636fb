"""Decisions of people about tool calls, and the lookup of the decision about a call.

The `ApprovalBook` is plain data: it returns the decision about a call and remembers new decisions, so that the owner of
the call can save them. It never looks at a model, a tool or a store, and a decision is only ever about the call that
was shown: its id, its tool and its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Protocol

from standfast._src.base.errors import ApprovalError, ChangedCallError
from standfast._src.items.history import FUNCTION_CALL
from standfast._src.items.items import ToolApprovalItem, read
from standfast._src.runs.engine.run import Decision


def tool_scope(name: str, *, namespace: str | None = None, kind: str = "function") -> str:
    """Encode the scope of a sticky decision: a tool of a kind in a namespace (for hosted MCP: a server label)."""
    return json.dumps([kind, namespace, name], separators=(",", ":"))


def arguments_digest(arguments: str | None, prepared: str | None = None) -> str:
    """Hash the shown arguments of a call: the model's text and, if different, the values for the tool.

    Sha-256, since an attacker may gain from two calls that look alike.
    """
    # Without other values the digest is that of the text alone, as in decisions that were saved before there were any.
    shown = (arguments or "") if prepared is None else json.dumps([arguments or "", prepared])
    return sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()


class Shown(Protocol):
    """A call as a person sees it: an approval item, or a call of a store's `RunView`."""

    @property
    def arguments(self) -> str | None:
        """The model's text."""
        ...

    @property
    def prepared_arguments(self) -> str | None:
        """Return the values for the tool if different from the text."""
        ...


def digest_shown_arguments(call: Shown) -> str:
    """Hash the shown arguments of a call, to which a decision is bound."""
    return arguments_digest(call.arguments, call.prepared_arguments)


def describe_arguments(call: Shown) -> list[str]:
    """List the lines that describe a call's arguments to a person: the text and, if different, the values."""
    values = call.prepared_arguments
    return [call.arguments or "", *([] if values is None else [f"the tool will get {values}"])]


class ApprovalBook:
    """All decisions of a run. A decision about a call overrides one about its tool; of two about the same, the last
    wins.
    """

    __slots__ = ("_all", "_drained", "_of_call", "_of_scope")

    def __init__(self) -> None:
        self._all: list[Decision] = []
        self._drained = 0
        self._of_call: dict[str, Decision] = {}
        self._of_scope: dict[tuple[str | None, str, bool], Decision] = {}

    @classmethod
    def from_decisions(cls, decisions: Iterable[Decision]) -> ApprovalBook:
        """Build the book of a run from known decisions, oldest first; none of them counts as new."""
        book = cls()
        for decision in decisions:
            book.record(decision)
        book._drained = len(book._all)
        return book

    def record(self, decision: Decision) -> None:
        """Record a decision, to be returned by `drain`."""
        if decision.call_id is None and not decision.sticky:
            raise ApprovalError(
                "a decision about one call names no call",
                "Give the call's id, or make the decision sticky for its tool.",
            )
        self._all.append(decision)
        if decision.call_id is not None:
            self._of_call[decision.call_id] = decision
        if decision.sticky:
            about = (decision.agent, decision.scope or "")
            self._of_scope[*about, decision.approved] = decision
            # A person may take back a permanent approval: otherwise the next call would run against their decision.
            self._of_scope.pop((*about, not decision.approved), None)

    def drain(self) -> list[Decision]:
        """The decisions made since the last time this was asked, oldest first."""
        new = self._all[self._drained :]
        self._drained = len(self._all)
        return new

    def decisions(self) -> list[Decision]:
        """Every decision, oldest first."""
        return list(self._all)

    def status(
        self,
        call_id: str,
        scope: str,
        digest: str | None = None,
        *,
        agent: str | None = None,
        behind: str | None = None,
    ) -> bool | None:
        """Return the decision about a call, or None if undecided. A sticky decision is about one agent's tool (C16).

        `behind`: the implementation of the tool. An approval of every call covers no other; a rejection covers each.

        Raises ApprovalError if the decision about this id was about another agent, another tool or other arguments.
        """
        decision = self._of_call.get(call_id)
        if decision is not None:
            _refuse_a_changed_call(decision, call_id, scope, digest, agent)
            return decision.approved
        if _covers(self._sticky(scope, agent, approved=True), behind):
            return True
        if self._sticky(scope, agent, approved=False) is not None:
            return False
        return None

    def has_decision(self, call_id: str) -> bool:
        """Tell whether a decision is about this very call."""
        return call_id in self._of_call

    def status_of_other_kind(self, call_id: str, tool_name: str) -> bool | None:
        """Return the decision about a call of a hosted or free-form tool of this name, on any server; else None."""
        decision = self._of_call.get(call_id)
        about = None if decision is None else json.loads(decision.scope or "[]")[::2]
        if decision is None or about not in (["mcp", tool_name], ["custom_tool_call", tool_name]):
            return None
        return decision.approved

    def _sticky(self, scope: str, agent: str | None, *, approved: bool) -> Decision | None:
        if agent is not None:
            return self._of_scope.get((agent, scope, approved))
        # A query by the tool's name alone finds a decision about any agent's tool.
        return next((one for about, one in self._of_scope.items() if about[1:] == (scope, approved)), None)

    def message(self, call_id: str, scope: str, *, agent: str | None = None) -> str | None:
        """Return the rejecting person's text for the model, if any."""
        decision = self._of_call.get(call_id)
        if decision is not None and decision.scope == scope:
            if decision.approved:
                return None
            if decision.message is not None:
                return decision.message
        elif self._sticky(scope, agent, approved=True) is not None:
            return None
        sticky = self._sticky(scope, agent, approved=False)
        return sticky.message if sticky is not None else None


def _covers(decision: Decision | None, behind: str | None) -> bool:
    """Return whether a sticky approval is about the tool behind the name, as far as both are known."""
    return decision is not None and (not decision.behind or behind is None or decision.behind == behind)


def _refuse_a_changed_call(decision: Decision, call_id: str, scope: str, digest: str | None, agent: str | None) -> None:
    changed = None
    if agent is not None and decision.agent is not None and decision.agent != agent:
        changed = "another agent's tool"
    elif decision.scope != scope:
        changed = "another tool"
    elif digest is not None and decision.arguments_digest is not None and decision.arguments_digest != digest:
        changed = "other arguments"
    if changed is not None:
        raise ChangedCallError(
            f"the decision about call {call_id!r} was made for {changed}",
            "Show the call as it is now to whoever decides, and ask again.",
        )


def decision_about(
    item: ToolApprovalItem, *, approved: bool, sticky: bool = False, message: str | None = None
) -> Decision:
    """Build the decision about the call of an approval item, bound to the shown arguments."""
    call_id = item.call_id
    if not call_id:
        raise ApprovalError(
            f"the approval item for {item.tool_name!r} names no call",
            "Pass an item of `interruptions` as it is.",
        )
    return Decision(
        approved=approved,
        call_id=call_id,
        scope=scope_of(item),
        sticky=sticky,
        message=message,
        arguments_digest=digest_shown_arguments(item),
        agent=agent_of(item),
        behind=item.tool_behind,
    )


def agent_of(item: ToolApprovalItem) -> str | None:
    """Return the key of the agent of an approval item, or its name if the item has no key."""
    return item.agent_key or getattr(item.agent, "name", None)


def scope_of(item: ToolApprovalItem) -> str:
    """Return the scope of a sticky decision about an approval item."""
    raw = item.raw_item
    name = item.tool_name or read(raw, "name") or ""
    kind = read(raw, "type")
    if kind == "mcp_approval_request":
        return tool_scope(name, namespace=read(raw, "server_label"), kind="mcp")
    namespace = getattr(item, "tool_namespace", None) or read(raw, "namespace")
    return tool_scope(name, namespace=namespace, kind=scope_kind(kind))


def scope_kind(call_type: object) -> str:
    """Return the kind in a decision's scope for calls of this type of item."""
    return "function" if call_type in (None, FUNCTION_CALL) else str(call_type)
