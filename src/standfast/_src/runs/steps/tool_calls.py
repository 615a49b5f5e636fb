"""Performers of a run's calls: tools, agents as tools, handoffs, a provider's approval requests.

The path of one tool call is `_src.tools.tool_call`, shared with voice. Here is what belongs to a run: it owns its calls
(`_CallOfRun`), records what became of each, and shows the outputs of a turn in call order.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import ChildClosed, ChildPaused
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.json_values import Item
from standfast._src.items.items import call_output_item
from standfast._src.items.texts_for_models import model_text
from standfast._src.runs.engine.events import (
    ApprovalNeeded,
    Begun,
    ChildMoved,
    Decided,
    NotTaken,
    Returned,
    RunCall,
    Settle,
)
from standfast._src.runs.engine.run import Call, Entry, Response, Run
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import RunScope, Span
from standfast._src.runs.persistence.unfinished_runs import same_question
from standfast._src.runs.steps.call_lookup import (
    Question,
    idempotency_key,
    missing_tool,
    scope_of_call,
    tell_unknown,
    tool_of,
)
from standfast._src.runs.steps.handoff import hand_over
from standfast._src.runs.steps.nested_run import ChildRunner
from standfast._src.tools.approval import CallRefused, CallWaits, hosted_approval
from standfast._src.tools.local_tool import LocalTool
from standfast._src.tools.refusal_texts import unknown_tool_text
from standfast._src.tools.tool_call import (
    answer_of,
    guardrail_json,
    replace_large_output,
    run_tool_call,
    settle_after_crash,
)
from standfast._src.tools.tool_guardrails import ToolInputGuardrailResult


async def perform_call(loop: Loop, scope: RunScope, effect: RunCall) -> None:
    """Execute a call, and record its output or its wait."""
    one = _CallOfRun(loop, scope, effect)
    match one.call.kind:
        case "handoff":
            await hand_over(loop, scope, effect, one.agent, one.turn, one.call)
        case "ignored":
            await one.answer(model_text("handoff_ignored"))
        case "repeated":
            await one.answer(model_text("call_repeated"))
        case "unknown" | "gone":
            await one.answer_unknown()
        case "hosted":
            await one.answer_provider()
        case _:
            await one.run_tool()


async def settle_call(loop: Loop, scope: RunScope, effect: Settle) -> None:
    """Follow the tool's policy for a call that had begun when the process crashed; it never runs again silently."""
    one = _CallOfRun(loop, scope, effect)
    call, tool = one.call, await one.tool()
    match settle_after_crash(call, tool):
        case "rerun":
            await loop.record(NotTaken(call.id), completes=effect)
        case "ask":
            values = None if tool is None else tool.prepare(call.arguments).values
            await loop.record(ApprovalNeeded(call.id, "unknown", values=values), completes=effect)
            tell_unknown(loop.run, call.id, "a person is asked")
        case "report":
            await one.answer_lost()


class _CallOfRun:
    """An open call of a run, and the owner of its execution."""

    def __init__(self, loop: Loop, scope: RunScope, effect: RunCall | Settle) -> None:
        call, turn = loop.run.call(effect.call_id or ""), loop.run.turn
        assert call is not None  # due() names calls of the open turn only
        assert turn is not None
        self._loop, self._scope, self._effect = loop, scope, effect
        self.call, self.turn, self.agent = call, turn, scope.graph.agent(turn.agent)
        self.item = turn.item_of(call)
        self.formatter, self.hooks = scope.config.tool_error_formatter, scope.hooks
        execution = scope.config.tool_execution
        self.guardrails_before_approval = bool(execution and execution.pre_approval_tool_input_guardrails)

    # --- as the desk sees it -----------------------------------------------------------------------------------------

    def agent_key(self, agent: Agent[Any]) -> str:
        return self._scope.graph.key(agent)

    async def record_decisions(self) -> None:
        for decision in self._scope.wrapper.approvals.drain():
            await self._loop.record(Decided(decision))

    async def begin(self, call: Call) -> None:
        if self._scope.meter is not None:
            self._scope.meter.begin_call()
        await self._loop.record(Begun(call.id))

    def place(self) -> AbstractAsyncContextManager[Any]:
        return self._scope.places.one()

    def span(self, call: Call, tool: LocalTool, agent: Agent[Any]) -> AbstractContextManager[Span | None]:
        turn = self._loop.run.turn
        number = None if turn is None else turn.number
        return self._scope.span("tool", call.name, agent=agent, tool=tool, call=call, turn=number)

    # --- carrying it out ---------------------------------------------------------------------------------------------

    async def tool(self) -> LocalTool | None:
        """Return the called tool if the agent has an enabled one, else None."""
        with self._scope.enter_user_code():
            tools = await self._scope.agents.tools(self.agent)
        return tool_of(tools, self.item, self.call.name)

    async def run_tool(self) -> None:
        """Run the call, or record that it waits for a person."""
        scope, call = self._scope, self.call
        if scope.meter is not None:
            scope.meter.check_calls(self.turn)
        tool = await self.tool()
        if tool is None:
            if scope.config.tool_not_found_behavior != "return_error_to_model":
                raise missing_tool(self.agent, call)
            await self.answer_unknown()
            return
        try:
            with scope.enter_user_code():
                outcome = await run_tool_call(self, call, tool, self._context(tool), agent=self.agent)
        except ChildPaused:
            # A pause is no failure and no result: the call is entered again, with its run where it was.
            return  # the nested run has recorded where it stands
        except ChildClosed:
            await self.answer_lost()
            return
        if isinstance(outcome, CallWaits):
            scope.results.of_tool_input += outcome.results
            await self._wait(outcome)
            return
        if not isinstance(outcome, CallRefused) and outcome.input_results:
            outcome.input_results = [one for one in outcome.input_results if not self._is_recorded(one)]
        answer = answer_of(outcome, self.item, tool, self.turn.agent)
        used: tuple[str, ...] = ()
        if isinstance(outcome, CallRefused):
            scope.results.of_tool_input += outcome.results
        else:
            if scope.session is not None:
                answer = replace_large_output(answer, self.item, tool, scope.session.item_bytes_max)
            scope.results.of_tool_input += outcome.input_results
            scope.results.of_tool_output += outcome.output_results
            scope.remember(answer.entry.item, native=outcome.output)
            used = (call.name,)
        responses = self._nested_responses()
        await self._return(Returned(call.id, (answer.entry,), answer.results, used=used, responses=responses))

    def _is_recorded(self, result: ToolInputGuardrailResult) -> bool:
        """Tell whether the verdict equals one recorded before the question about the call: both count as one result."""
        was_asked = self.call.reason is not None
        return was_asked and self._verdict_before_question(result) in self._loop.run.results

    def _verdict_before_question(self, result: ToolInputGuardrailResult) -> Item:
        return {**guardrail_json("tool_input", result), "asked_about": self.call.id}

    def _nested_responses(self) -> tuple[Response, ...]:
        """Return the replies of its nested runs: charged with the call, so that a resumed run counts them once."""
        return tuple(self._scope.child_responses.pop(self.call.id, ()))

    def _context(self, tool: LocalTool) -> ToolContext[Any]:
        call, scope = self.call, self._scope
        return ToolContext.from_agent_context(
            scope.wrapper,
            call.id,
            tool_call=scope.original(self.item),
            agent=self.agent,
            tool_name=call.name,
            tool_arguments=call.arguments,
            tool_namespace=self.item.get("namespace"),
            run_config=scope.config,
            idempotency_key=idempotency_key(self._loop.run.spec.run_id, call.id),
            run_agent=self._child_runner(tool),
        )

    def _child_runner(self, tool: LocalTool) -> ChildRunner:
        loop, call, effect = self._loop, self.call, self._effect

        async def record(child: Run) -> None:
            await loop.record(ChildMoved(call.id, child), completes=effect if child.paused else None)

        runner = ChildRunner(loop.children, self._scope, call, loop.run.spec.run_id)
        if tool.agent_tool is not None:
            runner.record = record
            # Not only a run that is saved itself: one that is saved as part of the run around it has no saver.
            runner.is_saved = loop.saver is not None or self._scope.arguments.is_saved_outside
        return runner

    async def _wait(self, waits: CallWaits) -> None:
        asked = Question((), self.call, scope_of_call(self.call, self.item), self.turn.agent)
        same_as = self._scope.seen.questions.get(same_question(asked))
        await self._loop.record(
            ApprovalNeeded(
                self.call.id,
                waits.reason,
                tuple(map(self._verdict_before_question, waits.results)),
                same_as_run=same_as,
                values=waits.values,
            ),
            completes=self._effect,
        )

    # --- its output --------------------------------------------------------------------------------------------------

    async def answer_provider(self) -> None:
        """Answer a provider's question about its hosted tool, or wait for a person's decision."""
        scope, agent = self._scope, self.turn.agent
        shown, tools = scope.original(self.item), self.agent.tools
        item = await hosted_approval(self.call, self.item, shown, agent_key=agent, tools=tools, wrapper=scope.wrapper)
        if item is None:
            await self._wait(CallWaits())
        else:
            await self._return(Returned(self.call.id, (Entry("mcp_approval_response_item", agent, item),)))

    async def answer_unknown(self) -> None:
        """Answer the call with the text about an unknown tool."""
        call, wrapper = self.call, self._scope.wrapper
        await self.answer(
            await unknown_tool_text(wrapper, tool_name=call.name, call_id=call.id, formatter=self.formatter)
        )

    async def answer_lost(self) -> None:
        """Answer the call with the text about an unknown outcome, and notify operators."""
        await self.answer(model_text("outcome_unknown"), extra={"outcome": "unknown"}, used=(self.call.name,))
        tell_unknown(self._loop.run, self.call.id, "the model is told so")

    async def answer(self, text: str, *, extra: Item | None = None, used: tuple[str, ...] = ()) -> None:
        """Record a text as the call's output."""
        item = call_output_item(self.item, text)
        entry = Entry("tool_call_output_item", self.turn.agent, item, extra)
        await self._return(Returned(self.call.id, (entry,), used=used, responses=self._nested_responses()))

    async def _return(self, returned: Returned) -> None:
        await self._loop.record(returned, completes=self._effect)
        self._scope.show_outputs(self._loop.run.turn)
