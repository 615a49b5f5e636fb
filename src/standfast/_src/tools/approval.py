"""Approval of tool calls: existing decisions, the tool's own policy, its guardrails, the question to a person.

The order is the same for a text run and for a voice call (E11). Nothing here can tell which of the two it is: the owner
of the call is a `DecisionOwner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from standfast._src.agents.approvals import (
    ApprovalBook,
    arguments_digest,
    digest_shown_arguments,
    scope_kind,
    tool_scope,
)
from standfast._src.agents.context import NamedAgent, RunContextWrapper
from standfast._src.agents.hooks import HookedAgent
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.aio import maybe_await
from standfast._src.base.json_values import Item
from standfast._src.items.items import RawItem, ToolApprovalItem
from standfast._src.items.texts_for_models import model_text
from standfast._src.runs.engine.run import Call
from standfast._src.tools.hosted_tools import MCPToolApprovalRequest
from standfast._src.tools.invocation import (
    differs_from_guarded,
    function_decides,
    judge_before_approval,
    needs_approval,
)
from standfast._src.tools.local_tool import LocalTool
from standfast._src.tools.refusal_texts import ToolErrorFormatter, ToolKind, rejection_text
from standfast._src.tools.tool_guardrails import ToolInputGuardrailResult

OwnAgent = TypeVar("OwnAgent", bound=HookedAgent, contravariant=True)
"""The kind of agents whose calls an owner has: those of a text run, or those of a voice call."""


@dataclass(frozen=True, slots=True)
class CallWaits:
    """The call waits for a person's decision; `results` are the verdicts of guardrails that ran before the question."""

    results: list[ToolInputGuardrailResult] = field(default_factory=list)
    reason: str = "approval"
    values: str | None = None
    """Values for the tool, to show to the person; see `engine.run.Call`."""


@dataclass(frozen=True, slots=True)
class CallRefused:
    """The call does not run: the model reads `text` in its place. `results` as in `CallWaits`."""

    text: str
    results: list[ToolInputGuardrailResult] = field(default_factory=list)


class DecisionOwner(Protocol[OwnAgent]):
    """Owner of a tool call, as needed for an approval."""

    formatter: ToolErrorFormatter | None
    """Replaces the text that a model reads about a rejected call."""

    guardrails_before_approval: bool
    """True to run input guardrails before a person is asked, and again when the call runs."""

    def agent_key(self, agent: OwnAgent) -> str:
        """Return the owner's key of an agent: sticky decisions are about one agent's tool (C16)."""
        ...

    async def record_decisions(self) -> None:
        """Record the decisions made by the application's code."""
        ...


async def approval_of(
    owner: DecisionOwner[OwnAgent], call: Call, tool: LocalTool, context: ToolContext[Any], *, agent: OwnAgent
) -> CallWaits | CallRefused | None:
    """Decide about a call: None to run, `CallWaits` for a person, `CallRefused` with a text for the model."""
    if call.child is not None and call.decision is None and tool.agent_tool is not None:
        return None  # it was let run before, and its own run waits inside
    book = context.approvals
    scope = tool_scope(call.name, namespace=context.tool_namespace, kind=scope_kind(tool.call_type))
    digest, behind = digest_shown_arguments(call), tool.target()
    decision, key = call.decision, owner.agent_key(agent)
    known = None if decision is not None else book.status(call.id, scope, digest, agent=key, behind=behind)
    approved = decision.approved if decision is not None else known
    if approved is not False and (text := _refusal_of_arguments(tool, call.arguments)) is not None:
        return CallRefused(text)
    if approved is None and call.reason != "approval":  # else its policy was asked before the pause, and not again
        needed = await needs_approval(tool, context, call.arguments, call.id)
        await owner.record_decisions()
        if not needed:
            return None
        approved = book.status(call.id, scope, digest, agent=key, behind=behind)  # the policy may have decided itself
        if approved is None and tool.on_approval is not None:
            await _ask_application(tool.on_approval, call, context, agent=agent, agent_key=key)
            await owner.record_decisions()
            approved = book.status(call.id, scope, digest, agent=key, behind=behind)
    if approved is True:
        if decision is None and not book.has_decision(call.id) and differs_from_guarded(tool, call.arguments):
            # "Always" was said of other calls: it answers the policy, not the guardrails, which see the text alone.
            return CallWaits(values=tool.prepare(call.arguments).values)
        if decision is not None and call.behind not in (None, behind):
            # A voice call was taken over where another agent or server is behind the name: what was approved is gone.
            return CallWaits(reason=call.reason or "approval", values=tool.prepare(call.arguments).values)
        if decision is None or decision.sticky or _gets_what_was_shown(tool, call):
            return None
        # The values changed since they were shown: another release reads the same text in another way (C16).
        return CallWaits(reason=call.reason or "approval", values=tool.prepare(call.arguments).values)
    if approved is False:
        message = decision.message if decision is not None else None
        message = book.message(call.id, scope, agent=key) if message is None else message  # an empty text was said, too
        return CallRefused(await _rejection(owner, call, context, message, tool.error_kind))
    values = tool.prepare(call.arguments).values
    if not owner.guardrails_before_approval:
        return CallWaits(values=values)
    results, rejection = await judge_before_approval(tool, context, agent=agent)
    return CallWaits(results, values=values) if rejection is None else CallRefused(rejection, results)


def _gets_what_was_shown(tool: LocalTool, call: Call) -> bool:
    """Return whether the tool still gets the values that the approving person saw."""
    now = tool.prepare(call.arguments)
    if now.kind == "invalid":
        return True  # it gets nothing: the call fails, and the model reads the error
    # None: the values were unknown. Then the person saw the text, and only the text may reach the tool unasked.
    return now.values in (None, call.arguments) if call.values is None else now.values == call.values


def _refusal_of_arguments(tool: LocalTool, arguments: str) -> str | None:
    """Return the refusal of a tool that accepts only values equal to the model's text; None if the call is not refused.

    Values that only the application's own code can tell are not refused: a model could not write them in another way.
    A person is asked about them.
    """
    if tool.argument_mismatch != "refuse" or not function_decides(tool):
        return None
    prepared = tool.prepare(arguments)
    if not prepared.differs:
        return None
    return model_text("arguments_refused", tool_name=tool.qualified_name, parts=", ".join(prepared.parts))


async def _ask_application(
    on_approval: Callable[[RunContextWrapper[Any], ToolApprovalItem], Any],
    call: Call,
    context: ToolContext[Any],
    *,
    agent: NamedAgent,
    agent_key: str,
) -> None:
    """Let the application decide in place of a person; its answer is a decision like any other."""
    item = ToolApprovalItem(agent, context.tool_call, tool_name=call.name, agent_key=agent_key, tool_behind=call.behind)
    answer: Any = await maybe_await(on_approval(context, item))
    match answer.get("approve") if isinstance(answer, Mapping) else None:
        case True:
            context.approve_tool(item)
        case False:
            reason = answer.get("reason")
            context.reject_tool(item, rejection_message=reason if isinstance(reason, str) and reason else None)


async def _rejection(
    owner: DecisionOwner[Any], call: Call, context: ToolContext[Any], message: str | None, tool_type: ToolKind
) -> str:
    if message is None and call.reason == "unknown":
        return model_text("outcome_unknown")  # a person chose not to run it again; that it did not run is not known
    return await rejection_text(
        context,
        tool_name=call.name,
        call_id=call.id,
        message=message,
        formatter=owner.formatter,
        tool_type=tool_type,
    )


async def hosted_approval(
    call: Call, request: Item, shown: RawItem, *, agent_key: str, tools: Iterable[Any], wrapper: RunContextWrapper[Any]
) -> Item | None:
    """Answer a provider's question about a hosted MCP tool; None if a person must decide.

    An existing decision has precedence, then the callback of the agent's tool for that server. `request` is the
    provider's item, `shown` the same item for the callback.
    """
    label = request.get("server_label")
    book: ApprovalBook = wrapper.approvals
    scope = tool_scope(call.name, namespace=label, kind="mcp")
    reason: str | None
    if call.decision is not None:
        approve, reason = call.decision.approved, call.decision.message
    else:
        known = book.status(call.id, scope, arguments_digest(call.arguments), agent=agent_key)
        if known is None:
            answer = await _ask_callback(tools, label, MCPToolApprovalRequest(ctx_wrapper=wrapper, data=shown))
            if answer is None:
                return None
            approve, reason = bool(answer.get("approve")), answer.get("reason")
        else:
            approve, reason = known, None if known else book.message(call.id, scope, agent=agent_key)
    item: Item = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": approve}
    return item | {"reason": reason} if reason else item


async def _ask_callback(tools: Iterable[Any], label: object, request: MCPToolApprovalRequest) -> Item | None:
    for tool in tools:
        callback, config = getattr(tool, "on_approval_request", None), getattr(tool, "tool_config", None)
        if callback is None or not isinstance(config, dict) or config.get("server_label") != label:
            continue
        return dict(await maybe_await(callback(request)))
    return None
