"""Execution of a tool call from request to answer, for text runs and voice calls alike.

`invoke` is the policy of a running call. This module adds the steps around it, in this order: approval (`approval_of`),
a place under the concurrency limit, the record that the call begins, saved before any of its effects, and the history
entry of its output. The owner of the call, a text run or a voice call, is only known as a `CallOwner`; the tool and the
agent are those offered when the call arrived.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from standfast._src.agents.hooks import RunHooksBase
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import ItemNotStorableError, UserError
from standfast._src.base.json_values import Item, JsonValue, encode, encode_value
from standfast._src.items.items import call_output_item, to_plain
from standfast._src.items.texts_for_models import model_text
from standfast._src.runs.engine.run import Call, Entry, evolve
from standfast._src.tools.approval import CallRefused, CallWaits, DecisionOwner, OwnAgent, approval_of
from standfast._src.tools.invocation import CallOutcome, invoke
from standfast._src.tools.local_tool import LocalTool, UnknownOutcomePolicy, checked_policy
from standfast._src.tools.outputs import failure_output
from standfast._src.tools.tool_guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult

NO_LIMIT: AbstractAsyncContextManager[Any] = nullcontext()


class OwnerFailed(BaseException):
    """The owner of the call could not save a record while an agent inside the call was running.

    Not an Exception, like `ChildPaused`: it is not a failure of the tool, to be reported to a model.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class CallSpan(Protocol):
    """Trace span of a tool call."""

    def note(self, **facts: object) -> None:
        """Add facts to the span."""
        ...


class CallOwner(DecisionOwner[OwnAgent], Protocol[OwnAgent]):
    """Owner of a tool call."""

    hooks: RunHooksBase[Any, Any] | None

    async def begin(self, call: Call) -> None:
        """Record that the call begins. Returns once saved: from then on the call is never repeated silently."""
        ...

    def place(self) -> AbstractAsyncContextManager[Any]:
        """Return a place under the limit of concurrent calls."""
        ...

    def span(self, call: Call, tool: LocalTool, agent: OwnAgent) -> AbstractContextManager[CallSpan | None]:
        """Return a trace span around the call; yields None without tracing."""
        ...


class ConcurrencyLimit:
    """At most so many calls at once; no limit costs nothing."""

    def __init__(self, limit: int | None) -> None:
        self._gate = asyncio.Semaphore(limit) if limit is not None else None

    def one(self) -> AbstractAsyncContextManager[Any]:
        """Return a place, acquired inside `async with`."""
        return NO_LIMIT if self._gate is None else self._gate


async def run_tool_call(
    owner: CallOwner[OwnAgent], call: Call, tool: LocalTool, context: ToolContext[Any], *, agent: OwnAgent
) -> CallOutcome | CallRefused | CallWaits:
    """Run a call if allowed; return the outcome, the refusal, or the question to a person.

    Raises errors that end a run, and `ChildPaused` if an agent inside the call waits.
    """
    verdict = await approval_of(owner, call, tool, context, agent=agent)
    if verdict is not None:
        return verdict
    async with owner.place():
        if call.state == "asked" and (call.child is None or call.decision is not None):
            await owner.begin(call)
        with owner.span(call, tool, agent) as span:
            try:
                outcome = await invoke(
                    tool,
                    context,
                    call.arguments,
                    agent=agent,
                    run_hooks=owner.hooks,
                    agent_hooks=agent.hooks,
                    formatter=owner.formatter,
                    again=call.child is not None,
                )
            except OwnerFailed as failed:
                # Only around `invoke`: met while `begin` notes a nested call, it belongs to the run outside that one,
                # and turned into its error here a store fault would become a tool's output.
                raise failed.error from None
            if span is not None:
                span.note(outcome=outcome, error=outcome.error)
    return outcome


def settle_after_crash(call: Call, tool: LocalTool | None) -> UnknownOutcomePolicy:
    """Return the policy for a call that had begun when its process crashed: the tool's; "rerun" for an
    agent as a tool.
    """
    # A nested run notes where it stands before it does anything that counts: one that is not there has done nothing.
    if call.kind == "agent":
        return "rerun"
    # Checked again: it may have been set behind the check of the tool's constructor.
    return checked_policy(call.name, getattr(tool, "on_unknown", "report"), idempotent=None)


# --- what a call leaves in a history ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Answer to a tool call, for the history."""

    entry: Entry
    results: tuple[Item, ...] = ()
    """Verdicts of tool guardrails, as JSON."""


def answer_of(outcome: CallOutcome | CallRefused, call_item: Item, tool: LocalTool, agent_key: str) -> CallAnswer:
    """Build the history entry of a call's output, with the verdicts of guardrails."""
    if isinstance(outcome, CallRefused):
        item = call_output_item(call_item, failure_output(tool, call_item, outcome.text))
        results = tuple(guardrail_json("tool_input", one) for one in outcome.results)
        return CallAnswer(Entry("tool_call_output_item", agent_key, item), results)
    item = call_output_item(call_item, "")
    item["output"] = outcome.item_output
    extra: Item = {}
    if tool.origin is not None:
        extra["tool_origin"] = tool.origin.to_json_dict()
    if outcome.custom_data is not None:
        extra["custom_data"] = _custom_json(tool, outcome.custom_data)
    entry = Entry("tool_call_output_item", agent_key, item, extra or None)
    before = [guardrail_json("tool_input", one) for one in outcome.input_results]
    return CallAnswer(entry, (*before, *(guardrail_json("tool_output", one) for one in outcome.output_results)))


def replace_large_output(answer: CallAnswer, call_item: Item, tool: LocalTool, bound: int) -> CallAnswer:
    """Return the answer, with a text for the model in place of an output above the bound of the session."""
    size = len(encode_value(answer.entry.item))
    if size <= bound:
        return answer
    text = model_text("output_too_large", tool_name=tool.name, size=size, bound=bound)
    item = call_output_item(call_item, failure_output(tool, call_item, text))
    return replace(answer, entry=evolve(answer.entry, item=item))


def guardrail_json(stage: str, result: ToolInputGuardrailResult | ToolOutputGuardrailResult) -> Item:
    """Convert a tool guardrail's verdict to JSON."""
    output = result.output
    return {
        "stage": stage,
        "guardrail": result.guardrail.get_name(),
        "behavior": dict(output.behavior),
        "info": json_or_repr(output.output_info),
    }


def json_or_repr(value: object) -> JsonValue:
    """Convert a value to JSON, or to its repr if impossible: a guardrail may give any reason."""
    plain = to_plain(value)
    try:
        encode({"value": plain})
    except ItemNotStorableError:
        return repr(value)
    return plain


def _custom_json(tool: LocalTool, data: dict[str, Any]) -> JsonValue:
    plain = to_plain(data)
    try:
        encode(plain)  # what cannot be saved is refused now, while the turn can still be stored without it
    except ItemNotStorableError as error:
        raise UserError(
            f"the custom_data_extractor of tool {tool.qualified_name!r} returned what is not JSON: {error.what}",
            "Return a mapping of JSON values, or None.",
        ) from None
    return plain
