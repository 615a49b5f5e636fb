"""What a run came to: views over its data and its live side. Nothing here is a second copy of a run's history."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from standfast.driver.agent_graph import AgentGraph
from standfast.driver.event_buffer import Watch
from standfast.driver.loop import Driver
from standfast.driver.run_scope import Live
from standfast.driver.saved_checks import call_item, nested_agent
from standfast.driver.unsent import owed
from standfast.engine.request import view_items
from standfast.engine.run import Call, Run, View
from standfast.ground.errors import InvalidSettingError, SettingTypeError, StandfastError
from standfast.ground.jsonvalue import Item, copy_json
from standfast.words.history import omit_reasoning_id, prune
from standfast.words.items import ModelResponse, RunItem, ToolApprovalItem, ToolOrigin
from standfast.words.stream_events import StreamEvent

T = TypeVar("T")
InputListMode = Literal["preserve_all", "normalized"]


@dataclass(frozen=True)
class AgentToolInvocation:
    """The call that a nested run answers."""

    tool_name: str
    tool_call_id: str
    tool_arguments: str


def interruptions_of(run: Run, live: Live) -> list[ToolApprovalItem]:
    """The calls that wait for a person, those of nested runs included, in call order."""
    found: list[ToolApprovalItem] = []
    for call in run.turn.calls if run.turn is not None else ():
        if call.child is not None:
            found += interruptions_of(call.child, _inside(run, live, call))
        elif call.state == "waiting":
            found.append(_approval(run, live, call))
    return found


def _inside(run: Run, live: Live, call: Call) -> Live:
    """The live side of a nested run; one to read with, if the run was paused in another process."""
    known = live.children.get(call.id)
    if known is None:
        assert run.turn is not None
        agent = nested_agent(live.graph.agent(run.turn.agent), call)
        graph = live.graph if agent is None else AgentGraph(agent)
        known = live.children[call.id] = Live(graph=graph, wrapper=live.wrapper, config=live.config)
    return known


def _approval(run: Run, live: Live, call: Call) -> ToolApprovalItem:
    known: dict[str, ToolApprovalItem] = live.cache.setdefault("approvals", {})
    if call.id not in known:
        assert run.turn is not None
        agent = live.graph.agent(run.turn.agent)
        made = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        item = call_item(run.turn, call) or made
        extra = next((entry.extra for entry in run.turn.reply if entry.item is item and entry.extra), {})
        known[call.id] = ToolApprovalItem(
            agent,
            live.original(item),
            tool_name=call.name,
            tool_origin=ToolOrigin.from_json_dict(extra.get("tool_origin")),
            reason=call.reason or "approval",
        )
    return known[call.id]


class RunResultBase:
    """What both kinds of result have."""

    def __init__(
        self, driver: Driver, live: Live, max_turns: int | None, state_of: Callable[[Any], Any] | None = None
    ) -> None:
        self._driver, self._live = driver, live
        self._state_of = state_of
        self.max_turns = max_turns
        self._items: list[RunItem] | None = None
        self._released: Any = None

    @property
    def _run(self) -> Run:
        return self._driver.run

    @property
    def run_id(self) -> str:
        """The run's id: what it writes to a session under, and what it can be resumed by."""
        return self._run.spec.run_id

    @property
    def input(self) -> str | list[Item]:
        """The input as it was given, or, with a session, with the history before it; after a rewriting handoff, what
        the handoff made of it."""
        run, live = self._run, self._live
        view = run.view
        if view.base is not None and len(run.views) > 1:
            return [copy_json(item) for item in view.base]
        if live.conversation is None and isinstance(live.given_input, str):
            return live.given_input
        first = run.views[0]
        base = live.history if first.base is None else first.base
        own = [entry.item for entry in run.ledger[: run.spec.input_count]] if first.tail == 0 else []
        return [copy_json(item) for item in (*base, *own)]

    @property
    def new_items(self) -> list[RunItem]:
        """Every item of this run, whatever a filter hid from the model; open calls and approval questions included."""
        run, live = self._run, self._live
        if self._items is None:
            items = live.run_items(run.ledger)
            turn = run.turn
            if turn is not None:
                items += live.run_items(turn.reply)
                for call in turn.calls:
                    items += live.run_items(call.outputs)
                items += interruptions_of(run, live)
            items += live.run_items(run.progress.compacted)
            self._items = items
        return self._items

    @property
    def raw_responses(self) -> list[ModelResponse]:
        """Every reply of the model, those before a resume included."""
        return self._live.responses

    @property
    def final_output(self) -> Any:
        """The final output; None while there is none, or while it is not judged and stored."""
        run = self._run
        if not run.progress.ended or run.marks.stored < run.storable:
            return None
        return self._live.final_output

    @property
    def interruptions(self) -> list[ToolApprovalItem]:
        """The calls that wait for a person."""
        return interruptions_of(self._run, self._live)

    @property
    def input_guardrail_results(self) -> list[Any]:
        """What the input guardrails said."""
        return self._live.input_results

    @property
    def output_guardrail_results(self) -> list[Any]:
        """What the output guardrails said."""
        return self._live.output_results

    @property
    def tool_input_guardrail_results(self) -> list[Any]:
        """What the tools' input guardrails said."""
        return self._live.tool_input_results

    @property
    def tool_output_guardrail_results(self) -> list[Any]:
        """What the tools' output guardrails said."""
        return self._live.tool_output_results

    @property
    def context_wrapper(self) -> Any:
        """The context the run had, with its usage."""
        return self._live.wrapper

    @property
    def last_agent(self) -> Any:
        """The agent that had the conversation last."""
        if self._released is not None:
            agent = self._released()
            if agent is None:
                raise StandfastError(
                    "the last agent was released and is gone", "Keep a reference to it, or read it before releasing."
                )
            return agent
        return self._live.graph.agent(self._run.progress.agent)

    @property
    def last_response_id(self) -> str | None:
        """The id of the last reply, for `previous_response_id` of the next run."""
        return self._live.responses[-1].response_id if self._live.responses else None

    @property
    def agent_tool_invocation(self) -> AgentToolInvocation | None:
        """The call that this run answers, if it is nested."""
        invocation: AgentToolInvocation | None = self._live.invocation
        return invocation

    @property
    def left_out(self) -> list[Any]:
        """Stored or given items that were left out of requests because no provider accepts them; not deleted (C8)."""
        return self._live.left_out

    @property
    def owed_items(self) -> list[Item]:
        """What the server that owns the conversation has not got yet, if the run ended owing it (D11)."""
        return owed(self._run)

    def to_state(self) -> Any:
        """The run as a `RunState`, to approve, save and resume; each is independent of the others."""
        if self._state_of is None:
            raise StandfastError("a nested run is saved with its parent", "Take the outer result's state.")
        return self._state_of(self)

    def to_input_list(self, *, mode: InputListMode = "preserve_all") -> list[Item]:
        """The whole conversation, ready to be sent again: calls that were not answered are left out (D12).

        "normalized" is what the model saw, "preserve_all" the input and everything the run added.
        """
        run, live = self._run, self._live
        if mode == "normalized":
            items = view_items(run, live.history)
        elif mode == "preserve_all":
            first = run.views[0]
            if first.base is None:
                items = view_items(_with_view(run, View(None, live.history_tail)), live.history)
            else:
                items = view_items(_with_view(run, first), live.history)
        else:
            raise InvalidSettingError(f"{mode!r} is no mode of an input list", "Choose 'preserve_all' or 'normalized'.")
        turn = run.turn
        if turn is not None and turn.calls:
            items += [entry.item for entry in turn.reply]
            items += [entry.item for call in turn.calls for entry in call.outputs]
        kept, _ = prune([copy_json(item) for item in items])
        omit = live.config.reasoning_item_id_policy == "omit"
        return [omit_reasoning_id(item) for item in kept] if omit else kept

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:
        """The final output, for a type checker; with `raise_if_incorrect_type` it is checked."""
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            raise SettingTypeError(
                f"the final output is a {type(self.final_output).__name__}, not a {cls.__name__}",
                "Set the agent's output_type, or ask for the type it has.",
            )
        return cast(T, self.final_output)

    def release_agents(self, *, release_new_items: bool = True) -> None:
        """Hold agents only weakly from now on."""
        if release_new_items:
            for item in self.new_items:
                item.release_agent()
        self._released = weakref.ref(self._live.graph.agent(self._run.progress.agent))

    def __str__(self) -> str:
        run = self._run
        lines = [
            f"{type(self).__name__}:",
            f"- last agent: {run.progress.agent!r}",
            f"- final output ({type(self.final_output).__name__}): {self.final_output}",
            f"- {len(self.new_items)} new items, {len(self.raw_responses)} responses, {run.progress.turns} turns",
            f"- run {run.spec.run_id}: {run.status}",
        ]
        return "\n".join(lines)


def _with_view(run: Run, view: View) -> Run:
    return replace(run, views=run.views.appended((view,)))


class RunResult(RunResultBase):
    """What a run came to."""


class RunResultStreaming(RunResultBase):
    """A run that goes on in the background, to be watched."""

    def __init__(
        self,
        driver: Driver,
        live: Live,
        max_turns: int | None,
        watch: Watch,
        state_of: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(driver, live, max_turns, state_of)
        self._watch = watch
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._cut = False
        self.trace: Any = None

    @property
    def new_items(self) -> list[RunItem]:
        """Every item of this run so far."""
        self._items = None
        return super().new_items

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will happen."""
        return self._cut or self._watch.ended

    @property
    def current_agent(self) -> Any:
        """The agent that has the conversation now."""
        return self.last_agent

    @property
    def current_turn(self) -> int:
        """How many turns the run has taken."""
        return self._run.progress.turns

    @property
    def run_loop_task(self) -> asyncio.Task[None] | None:
        """The task that drives the run."""
        return self._task

    @property
    def run_loop_exception(self) -> BaseException | None:
        """What ended the run, if it failed."""
        return self._error

    def cancel(self, mode: Literal["immediate", "after_turn"] = "immediate") -> None:
        """Stop the run: at once, or once the turn under way is finished and stored."""
        if mode == "after_turn":
            self._driver.stop_after_turn()
        elif mode == "immediate":
            if not self._watch.ended:
                self._cut = True
                self._watch.discard()
                if not self._driver.stop_now() and self._task is not None:
                    self._task.cancel()  # it is still waiting for its session or reading it
        else:
            raise InvalidSettingError(f"{mode!r} is no way to cancel", "Choose 'immediate' or 'after_turn'.")

    def stream_events(self) -> AsyncIterator[StreamEvent]:
        """The events of the run as they happen; raises what ended it. Leaving the iteration does not stop the run."""
        return _Events(self)

    async def _next_event(self) -> StreamEvent:
        if not self._cut:
            try:
                event: StreamEvent | None = await self._watch.next()
            except asyncio.CancelledError:
                self.cancel()  # whoever stops waiting for a run in this way wants it stopped
                raise
            if event is not None and not self._cut:
                return event
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        if self._error is not None and not self._cut:
            raise self._error
        raise StopAsyncIteration

    def _go_on_in(self, task: asyncio.Task[None]) -> None:
        """The task that drives the run, whose end whoever watches hears of: also of one that never had a turn."""
        self._task = task
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not self._watch.ended:
            self._error = asyncio.CancelledError("the run was cancelled before it began")
            self._watch.end()

    async def _drain(self, work: Callable[[], Any]) -> None:
        """Drive to the end and let the watcher know. The task itself never fails: who watches gets the error."""
        try:
            await work()
        except asyncio.CancelledError as error:
            if not self._cut:
                self._error = error
                raise
        except Exception as error:
            self._error = error  # for whoever watches
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._watch.end()


class _Events:
    """An iteration over a run's events. A class, so that dropping it is noticed at once and stops nothing."""

    def __init__(self, result: RunResultStreaming) -> None:
        self._result = result
        self._here = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> StreamEvent:
        watch = self._result._watch
        if not self._here:
            self._here = True
            watch.arrive()
        if watch.events and not self._result._cut:
            return watch.events.popleft()  # type: ignore[no-any-return]  # the fast path: nothing to wait for
        try:
            return await self._result._next_event()
        except BaseException:
            self._leave()
            raise

    async def aclose(self) -> None:
        """Stop watching; the run goes on."""
        self._leave()

    def _leave(self) -> None:
        if self._here:
            self._here = False
            self._result._watch.leave()

    def __del__(self) -> None:
        self._leave()
