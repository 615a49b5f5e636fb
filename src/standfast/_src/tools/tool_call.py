"""One call of a tool from asked to answered, for text runs and voice calls alike.

`invoke` is the policy of a call that runs. Here is what comes around it, in this order: whether it may run
(`approval_of`), a place among the calls that may run at once, the note that the call begins, which is saved before
anything of it happens, and the entry that its output becomes in a history. Whoever owns the call (a run today, a voice
call later) is known only as a `CallOwner`; the tool and the agent are those that were offered when the call arrived.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from standfast._src.agents.hooks import RunHooksBase
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import ItemNotStorableError, UserError
from standfast._src.base.json_values import Item, JsonValue, encode
from standfast._src.items.items import call_output_item, to_plain
from standfast._src.runs.engine.run import Call, Entry
from standfast._src.tools.approval import CallRefused, CallWaits, DecisionOwner, OwnAgent, approval_of
from standfast._src.tools.custom_tool import LocalTool
from standfast._src.tools.function_tool import UnknownOutcomePolicy, checked_policy
from standfast._src.tools.invocation import CallOutcome, invoke
from standfast._src.tools.outputs import failure_output
from standfast._src.tools.tool_guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult

NO_LIMIT: AbstractAsyncContextManager[Any] = nullcontext()


class OwnerFailed(BaseException):
    """Whoever owns the call could not note something while an agent inside the call went on.

    Not an Exception, like `ChildPaused`: it is no failure of the tool, about which a model could be told something.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class CallSpan(Protocol):
    """A call as whoever traces sees it."""

    def note(self, **facts: object) -> None:
        """Add what is known by now."""
        ...


class CallOwner(DecisionOwner[OwnAgent], Protocol[OwnAgent]):
    """What a call needs of whoever owns it."""

    hooks: RunHooksBase[Any, Any] | None

    async def begin(self, call: Call) -> None:
        """Note that the call begins. Returns when that is saved: from here on it is never repeated silently."""
        ...

    def place(self) -> AbstractAsyncContextManager[Any]:
        """A place among the calls that may run at once."""
        ...

    def span(self, call: Call, tool: LocalTool, agent: OwnAgent) -> AbstractContextManager[CallSpan | None]:
        """A span around the call, for whoever traces; gives None where nobody does."""
        ...


class ConcurrencyLimit:
    """At most so many calls at once; no limit costs nothing."""

    def __init__(self, limit: int | None) -> None:
        self._gate = asyncio.Semaphore(limit) if limit is not None else None

    def one(self) -> AbstractAsyncContextManager[Any]:
        """One place, taken inside `async with`."""
        return NO_LIMIT if self._gate is None else self._gate


async def run_tool_call(
    owner: CallOwner[OwnAgent], call: Call, tool: LocalTool, context: ToolContext[Any], *, agent: OwnAgent
) -> CallOutcome | CallRefused | CallWaits:
    """Run the call if it may run: its outcome, the text the model reads in its place, or that it waits.

    Raises what ends a run, and `ChildPaused` if an agent inside the call waits.
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
    """What becomes of a call that had begun when its process died: its tool's policy, never a silent repeat."""
    # A nested run notes where it stands before it does anything that counts: one that is not there has done nothing.
    if call.kind == "agent":
        return "rerun"
    # Checked again: it may have been set behind the check of the tool's constructor.
    return checked_policy(call.name, getattr(tool, "on_unknown", "report"), idempotent=None)


# --- what a call leaves in a history ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a call came to, as a history keeps it."""

    entry: Entry
    results: tuple[Item, ...] = ()
    """What tool guardrails said, as JSON."""


def answer_of(outcome: CallOutcome | CallRefused, call_item: Item, tool: LocalTool, agent_key: str) -> CallAnswer:
    """The entry of a call's output, and what guardrails said about it."""
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


def guardrail_json(stage: str, result: ToolInputGuardrailResult | ToolOutputGuardrailResult) -> Item:
    """What a tool guardrail said, as JSON."""
    output = result.output
    return {
        "stage": stage,
        "guardrail": result.guardrail.get_name(),
        "behavior": dict(output.behavior),
        "info": json_or_repr(output.output_info),
    }


def json_or_repr(value: object) -> JsonValue:
    """The value as JSON, or, where it cannot be, its repr: what a guardrail says about its reasons may be anything."""
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
