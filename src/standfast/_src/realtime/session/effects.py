"""Performers of a voice call's effects: tool calls, handoffs, checks by guardrails, changes of agent.

The path of one tool call is `_src.tools.tool_call`, shared with text runs; here is what belongs to a voice call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from standfast._src.agents.approvals import tool_scope
from standfast._src.agents.context import ChildClosed, ChildPaused, RunContextWrapper
from standfast._src.agents.guardrails import OutputGuardrailResult
from standfast._src.agents.hooks import RunHooksBase, overridden
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import UserError
from standfast._src.base.json_values import encode_value
from standfast._src.base.logs import logger
from standfast._src.base.type_names import describe_type
from standfast._src.items.texts_for_models import model_text
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.call_items import RealtimeToolCallItem
from standfast._src.realtime.machine.events import Began, ChildMoved, Decided, Do, NotTaken, Returned, Waits
from standfast._src.realtime.machine.voice_call import OpenCall
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.reconciler import closed_before
from standfast._src.realtime.session.resolved_agent import ResolvedVoiceAgent
from standfast._src.realtime.session_events import (
    RealtimeGuardrailTripped,
    RealtimeHistoryUpdated,
    RealtimeToolEnd,
    RealtimeToolStart,
)
from standfast._src.runs.engine.run import Call, Run
from standfast._src.runs.loop.loop import Children
from standfast._src.runs.loop.run_attempt import RunAttempt
from standfast._src.runs.loop.run_scope import RunArguments, RunScope
from standfast._src.runs.persistence.unfinished_runs import same_question
from standfast._src.runs.steps.call_lookup import Question, idempotency_key
from standfast._src.runs.steps.nested_run import ChildRunner
from standfast._src.tools.approval import CallRefused, CallWaits
from standfast._src.tools.hosted_tools import Tool
from standfast._src.tools.local_tool import LocalTool
from standfast._src.tools.refusal_texts import unknown_tool_text
from standfast._src.tools.tool_call import CallSpan, run_tool_call, settle_after_crash

if TYPE_CHECKING:
    from standfast._src.agents.handoffs import Handoff

FAILED = "The tool failed. Tell the user that this did not work, or try another way."


class _CallHooks(RunHooksBase[Any, Any]):
    """The application's run hooks, and the session's own events around a tool."""

    def __init__(self, scope: CallScope, arguments: str, tool: LocalTool) -> None:
        self._scope, self._arguments, self._tool = scope, arguments, tool

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: RealtimeAgent[Any], tool: Tool) -> None:
        scope = self._scope
        scope.show(RealtimeToolStart(agent, self._tool, self._arguments, scope.info))
        hook = overridden(scope.hooks, "on_tool_start")
        if hook is not None:
            await hook(context, agent, tool)

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: RealtimeAgent[Any], tool: Tool, result: object
    ) -> None:
        hook = overridden(self._scope.hooks, "on_tool_end")
        if hook is not None:
            await hook(context, agent, tool, result)


class _OwnedCall:
    """A tool call's owner, for the execution of tool calls."""

    def __init__(self, scope: CallScope, arguments: str, tool: LocalTool) -> None:
        self._scope, self._tool = scope, tool
        self.formatter = scope.config.get("tool_error_formatter")
        self.hooks: RunHooksBase[Any, Any] | None = _CallHooks(scope, arguments, tool)
        execution = scope.config.get("tool_execution") or {}
        self.guardrails_before_approval = execution.get("pre_approval_tool_input_guardrails") is True

    def agent_key(self, agent: RealtimeAgent[Any]) -> str:
        return self._scope.key_of(agent)

    async def record_decisions(self) -> None:
        for decision in self._scope.book().drain():
            self._scope.hands.tell(Decided(decision))
        await self._scope.hands.wait_until_saved()

    async def begin(self, call: Call) -> None:
        await begin(self._scope, call.id, self._tool.on_unknown)

    def place(self) -> AbstractAsyncContextManager[Any]:
        return self._scope.places.one()

    def span(self, call: Call, tool: LocalTool, agent: object) -> AbstractContextManager[CallSpan | None]:
        tracer = self._scope.tracer
        if tracer is None:
            return nullcontext()
        return tracer.span("tool", call.name, {"agent": agent, "tool": tool, "call": call})


async def begin(scope: CallScope, call_id: str, on_unknown: str = "report") -> None:
    """Save the begin of a tool call and confirm that this process owns the voice call; only then may the tool run
    (C13).
    """
    await scope.make_sure()
    scope.hands.tell(Began(call_id, on_unknown))
    await scope.hands.wait_until_saved()
    await scope.make_sure()  # saving took its time, and this process may have stood still since
    if scope.hands.stopped:
        raise closed_before("the call began")


class EffectPerformer:
    """Performers of a voice call's effects."""

    def __init__(self, scope: CallScope) -> None:
        self._scope = scope
        self._nested: dict[str, RunScope] = {}
        self._children = Children()

    # --- calls -------------------------------------------------------------------------------------------------------

    async def run(self, effect: Do) -> None:
        """Execute a tool call, and record its output or its wait for a person.

        It stays due until one of them: so any failure on the way must be recorded as an output, or the call would run
        again.
        """
        one = self._scope.hands.talk.call(effect.of)
        if one is None:
            return
        try:
            await self._carry_out(one)
        except Exception as error:
            self._gave_up(one, error)
        except asyncio.CancelledError as error:
            if self._is_cancelled():
                raise
            self._gave_up(one, error)

    def _is_cancelled(self) -> bool:
        """Return whether the session cancelled this task; else the application's code raised CancelledError itself."""
        task = asyncio.current_task()
        return self._scope.hands.stopped or task is None or task.cancelling() > 0

    def _gave_up(self, one: OpenCall, error: BaseException) -> None:
        """Record a failure around a tool, outside its failure function. The call stays due until it has an output."""
        scope = self._scope
        if scope.hands.is_refused or scope.hands.stopped or scope.hands.talk.call(one.call.id) is None:
            return
        logger.warning("call %r of a voice call ended in %s", one.call.name, type(error).__name__)
        scope.error({"message": f"Tool call failed: {one.call.name}", "error": error})
        scope.hands.tell(Returned(one.call.id, FAILED))

    async def _carry_out(self, one: OpenCall) -> None:
        scope = self._scope
        offer = await self.offer_of(one)
        call = one.call
        handoff = offer.handoffs.get(call.name)
        if handoff is not None:
            return await self._hand_over(one, offer, handoff)
        tool = offer.tools.get(call.name)
        if tool is None:
            text = await unknown_tool_text(
                scope.wrapper,
                tool_name=call.name,
                call_id=call.id,
                formatter=scope.config.get("tool_error_formatter"),
            )
            scope.hands.tell(Returned(call.id, text))
            return scope.error({"message": f"Tool {call.name} not found"})
        try:
            owned = _OwnedCall(scope, call.arguments, tool)
            outcome = await run_tool_call(owned, call, tool, self._context(one, tool, offer), agent=offer.agent)
        except ChildPaused:
            return None  # the nested run has told where it stands
        except ChildClosed:
            return scope.hands.tell(Returned(call.id, model_text("outcome_unknown")))
        except Exception as error:
            if scope.hands.is_refused:
                return None  # the call is another's: nothing of it may be said here any more
            return self._handle_tool_error(one, tool, offer, error)
        except asyncio.CancelledError as cancelled:
            if self._is_cancelled() or scope.hands.is_refused:
                raise
            failure = UserError(f"tool {call.name!r} cancelled itself", "Let no CancelledError of its own leave it.")
            failure.__cause__ = cancelled
            return self._handle_tool_error(one, tool, offer, failure)
        if isinstance(outcome, CallWaits):
            asked = Question((), call, tool_scope(call.name), one.agent)
            same_as = scope.seen.questions.get(same_question(asked))
            scope.hands.tell(Waits(call.id, outcome.reason, same_as, outcome.values, tool.target()))
            return None
        output: Any = outcome.text if isinstance(outcome, CallRefused) else outcome.output
        return self._record_output(one, tool, offer, output)

    def _record_output(self, one: OpenCall, tool: LocalTool, offer: ResolvedVoiceAgent, output: object) -> None:
        scope, call = self._scope, one.call
        if scope.hands.stopped:
            return  # nothing that comes later reaches model, history or store (E2)
        text = text_of(output)
        if scope.memory is not None:
            answer = {"type": "function_call_output", "call_id": call.id, "output": text}
            size, bound = len(encode_value(answer)), scope.memory.hold.item_bytes_max
            if size > bound:
                text = model_text("output_too_large", tool_name=call.name, size=size, bound=bound)
        scope.hands.tell(Returned(call.id, text))
        scope.offers.pop(call.id, None)
        item = RealtimeToolCallItem(
            item_id=one.item_id,
            call_id=call.id,
            status="completed",
            arguments=call.arguments,
            name=call.name,
            output=text,
        )
        scope.history.update(item)
        scope.show(RealtimeHistoryUpdated(scope.history.items(), scope.info))
        scope.show(RealtimeToolEnd(offer.agent, tool, call.arguments, output, scope.info))

    def _handle_tool_error(self, one: OpenCall, tool: LocalTool, offer: ResolvedVoiceAgent, error: Exception) -> None:
        """A tool that raised: an output and an event, and the end of the call only if so configured."""
        scope = self._scope
        if scope.config.get("tool_failure", "output") == "raise":
            scope.hands.tell(Returned(one.call.id, FAILED, silent=True))
            return scope.is_fatal(error)
        logger.warning("tool %r of a voice call raised %s", one.call.name, type(error).__name__)
        scope.error({"message": f"Tool call failed: {one.call.name}", "error": error})
        return self._record_output(one, tool, offer, FAILED)

    async def offer_of(self, one: OpenCall) -> ResolvedVoiceAgent:
        """Return the tools offered at the call's arrival; after a takeover, those its agent offers now."""
        scope = self._scope
        offer = scope.offers.get(one.call.id)
        if offer is None:
            current = scope.offer if scope.offer is not None and scope.hands.talk.agent == one.agent else None
            offer = current or await scope.resolve(scope.agent_of(one.agent))
            scope.offers[one.call.id] = offer
        return offer

    def _context(self, one: OpenCall, tool: LocalTool, offer: ResolvedVoiceAgent) -> ToolContext[Any]:
        scope, call = self._scope, one.call
        item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        return ToolContext.from_agent_context(
            scope.wrapper,
            call.id,
            tool_call=item,
            agent=offer.agent,
            tool_name=call.name,
            tool_arguments=call.arguments,
            run_config=scope.run_config,
            idempotency_key=idempotency_key(scope.hands.talk.run_id, call.id),
            run_agent=self._child_runner(one, tool) if tool.agent_tool is not None else None,
        )

    def _child_runner(self, one: OpenCall, tool: LocalTool) -> ChildRunner:
        scope = self._scope
        assert tool.agent_tool is not None

        async def record(child: Run) -> None:
            scope.hands.tell(ChildMoved(one.call.id, child))
            await scope.hands.wait_until_saved()

        if scope.provider is None:
            raise UserError(
                f"tool {one.call.name!r} is an agent, and this session does not know how to reach its model",
                "Make the session with RealtimeRunner.run().",
            )
        nested = RunScope(
            RunArguments(
                tool.agent_tool.agent, "", scope.wrapper, scope.run_config, scope.provider, tracer=scope.tracer
            ),
            session=scope.memory.hold if scope.memory is not None else None,
            spawn=RunAttempt,
        )
        self._nested[one.call.id] = nested
        parent = scope.hands.talk.run_id
        is_saved = scope.memory is not None and scope.memory.store is not None
        return ChildRunner(self._children, nested, one.call, parent, record, is_saved)

    async def settle(self, effect: Do) -> None:
        """Settle a call that had begun when its process crashed, by the tool's policy. It never runs again silently."""
        scope = self._scope
        one = scope.hands.talk.call(effect.of)
        if one is None:
            return
        offer = await self.offer_of(one)
        tool = offer.tools.get(one.call.name)
        match settle_after_crash(one.call, tool):
            case "rerun":
                scope.hands.tell(NotTaken(one.call.id))
            case "ask":
                values = None if tool is None else tool.prepare(one.call.arguments).values
                behind = None if tool is None else tool.target()
                scope.hands.tell(Waits(one.call.id, "unknown", values=values, behind=behind))
            case _:
                scope.hands.tell(Returned(one.call.id, model_text("outcome_unknown")))

    # --- agents ------------------------------------------------------------------------------------------------------

    async def _hand_over(self, one: OpenCall, offer: ResolvedVoiceAgent, handoff: Handoff[Any, Any]) -> None:
        scope, call = self._scope, one.call
        if call.state == "asked":
            await begin(scope, call.id)
        tracer = scope.tracer
        facts = {"agent": offer.agent, "call": call}
        try:
            with tracer.span("handoff", handoff.agent_name, facts) if tracer is not None else nullcontext() as span:
                target = await handoff.on_invoke_handoff(scope.wrapper, call.arguments)
                if not isinstance(target, RealtimeAgent):
                    raise UserError(
                        f"handoff {call.name!r} returned {describe_type(target)}",
                        "on_invoke_handoff must return a RealtimeAgent.",
                    )
                if span is not None:
                    span.note(target=target)
        except Exception as error:
            scope.error({"message": f"Handoff {call.name} failed", "error": error})
            scope.hands.tell(Returned(call.id, FAILED))
            return
        text = handoff.get_transfer_message(target)
        key = scope.key_of(target)
        scope.hands.happen(lambda exchange, now: exchange.change(key, now, call_id=call.id, text=text))

    async def resolve(self, effect: Do) -> None:
        """Resolve the requested agent; a failure keeps the old one (E6)."""
        scope = self._scope
        try:
            offer = await scope.resolve(scope.agent_of(effect.of))
            wanted = offer.session_object(attached=scope.attached) if scope.restores else offer.settings
        except Exception as error:
            failure = error
            scope.hands.happen(lambda exchange, now: exchange.refuse_change(effect.upto, failure, FAILED, now))
            return
        link = scope.hands.exchange.link
        if link is not None:
            scope.changing[effect.upto] = offer
            scope.hands.happen(lambda exchange, now: link.updates.__setitem__(effect.upto, wanted))

    # --- guardrails --------------------------------------------------------------------------------------------------

    async def judge(self, effect: Do) -> None:
        """Run the output guardrails over the text so far. A raising guardrail is skipped, or counts as a trip."""
        scope = self._scope
        part = scope.hands.talk.part(effect.of)
        if part is None:
            return
        text = (part.text or "")[: effect.upto]
        agent = scope.agent_of(part.agent)
        tripped: list[OutputGuardrailResult] = []
        raised = False
        for guardrail in output_guardrails(scope, agent):
            try:
                result = await guardrail.run(scope.wrapper, agent, text)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and self._is_cancelled():
                    raise
                logger.warning(
                    "output guardrail %r of a voice call raised %s", guardrail.get_name(), type(error).__name__
                )
                raised = raised or (scope.config.get("guardrails_settings") or {}).get("on_error") == "trip"
                continue
            if result.output.tripwire_triggered:
                tripped.append(result)
        names = ", ".join(result.guardrail.get_name() for result in tripped) or "a check that failed"
        note = f"guardrail triggered: {names}"
        is_trip = bool(tripped) or raised
        response = part.response or part.id
        first = response not in scope.hands.talk.trips
        if is_trip and first:
            scope.show(RealtimeGuardrailTripped(tripped, text, scope.info))
        scope.hands.happen(lambda exchange, now: exchange.record_verdict(effect.of, effect.upto, is_trip, note, now))
        scope.after_look()


def output_guardrails(scope: CallScope, agent: RealtimeAgent[Any]) -> list[Any]:
    """The guardrails of an agent and of the call, each once."""
    found: list[Any] = []
    for guardrail in (*agent.output_guardrails, *(scope.config.get("output_guardrails") or ())):
        if all(guardrail is not other for other in found):
            found.append(guardrail)
    return found


def text_of(output: object) -> str:
    """Convert a tool's output to the wire's text: text unchanged, other values as JSON if possible, else by `str`."""
    if isinstance(output, str):
        return output
    plain = output
    dump = getattr(output, "model_dump", None)
    if callable(dump):
        try:
            plain = dump(mode="json")
        except Exception:  # a model of the application's may refuse
            return str(output)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        plain = dataclasses.asdict(output)
    try:
        return json.dumps(plain, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(output)
