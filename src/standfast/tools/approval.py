"""Whether a call may run: what was decided already, the tool's own policy, its guardrails, the question to a person.

The same order for a text run and for a voice call. Nothing here knows which of the two it is: whoever owns the call is
a `DecisionOwner`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from standfast.agents.approvals import ApprovalBook, arguments_digest, tool_scope
from standfast.agents.context import RunContextWrapper, ToolContext
from standfast.agents.guardrails import ToolInputGuardrailResult
from standfast.engine.run import Call
from standfast.ground.jsonvalue import Item
from standfast.tools.function import FunctionTool
from standfast.tools.hosted import MCPToolApprovalRequest
from standfast.tools.invoke import judge_before_approval, needs_approval
from standfast.tools.texts import ToolErrorFormatter, rejection_text
from standfast.words.model_texts import model_text


@dataclass(frozen=True, slots=True)
class Waits:
    """A person must decide first; `results` is what guardrails that looked before the question said."""

    results: list[ToolInputGuardrailResult] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Refused:
    """The call does not run: the model reads `text` in its place. `results` as in `Waits`."""

    text: str
    results: list[ToolInputGuardrailResult] = field(default_factory=list)


class DecisionOwner(Protocol):
    """What asking for an approval needs of whoever owns the call."""

    formatter: ToolErrorFormatter | None
    """Replaces the text that a model reads about a rejected call."""

    guardrails_before_approval: bool
    """Whether input guardrails look before a person is asked, and again when the call runs."""

    def agent_key(self, agent: Any) -> str:
        """What the owner knows this agent by: sticky decisions are about one agent's tool (C16)."""
        ...

    async def record_decisions(self) -> None:
        """Write down what the application's own code decided while it ran."""
        ...


async def approval_of(
    owner: DecisionOwner, call: Call, tool: FunctionTool, context: ToolContext[Any], *, agent: Any
) -> Waits | Refused | None:
    """None if the call may run; else that it waits for a person, or what the model reads in its place."""
    if call.child is not None and call.decision is None:
        return None  # it was let run before, and its own run waits inside
    book = context.approvals
    scope = tool_scope(call.name, namespace=context.tool_namespace)
    digest = arguments_digest(call.arguments)
    decision, key = call.decision, owner.agent_key(agent)
    approved = decision.approved if decision is not None else book.status(call.id, scope, digest, agent=key)
    if approved is None and call.reason != "approval":  # else its policy was asked before the pause, and not again
        needed = await needs_approval(tool, context, call.arguments, call.id)
        await owner.record_decisions()
        if not needed:
            return None
        approved = book.status(call.id, scope, digest, agent=key)  # the policy may have decided itself
    if approved is True:
        return None
    if approved is False:
        message = decision.message if decision is not None else None
        message = book.message(call.id, scope, agent=key) if message is None else message  # an empty text was said, too
        return Refused(await _rejection(owner, call, context, message))
    if not owner.guardrails_before_approval:
        return Waits()
    results, rejection = await judge_before_approval(tool, context, agent=agent)
    return Waits(results) if rejection is None else Refused(rejection, results)


async def _rejection(owner: DecisionOwner, call: Call, context: ToolContext[Any], message: str | None) -> str:
    if message is None and call.reason == "unknown":
        return model_text("outcome_unknown")  # a person chose not to run it again; that it did not run is not known
    return await rejection_text(
        context, tool_name=call.name, call_id=call.id, message=message, formatter=owner.formatter
    )


async def hosted_approval(
    call: Call, request: Item, shown: Any, *, agent_key: str, tools: Iterable[Any], wrapper: RunContextWrapper[Any]
) -> Item | None:
    """The answer to a provider that asks whether its hosted MCP tool may run; None if a person must decide.

    What was decided counts first, then the callback of the agent's tool for that server. `request` is the provider's
    item, `shown` the same as the callback should see it.
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


async def _ask_callback(tools: Iterable[Any], label: Any, request: MCPToolApprovalRequest) -> Item | None:
    for tool in tools:
        callback, config = getattr(tool, "on_approval_request", None), getattr(tool, "tool_config", None)
        if callback is None or not isinstance(config, dict) or config.get("server_label") != label:
            continue
        answer = callback(request)
        return dict(await answer if inspect.isawaitable(answer) else answer)
    return None
