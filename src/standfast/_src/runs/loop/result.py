"""Results: views over a run's data and scope. Nothing here is a second copy of a run's history."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, Literal, Self, TypeVar, cast, overload

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper, TState
from standfast._src.base.errors import InvalidSettingError, SettingTypeError, StandfastError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.type_names import describe_type
from standfast._src.items.history import omit_reasoning_id, prune
from standfast._src.items.items import ItemHelpers, ModelResponse, RunItem, ToolApprovalItem, ToolOrigin
from standfast._src.runs.engine.request import view_items
from standfast._src.runs.engine.run import Call, Run, View, evolve
from standfast._src.runs.loop.made_results import (
    COMMON,
    MadeRun,
    ResultFields,
    Source,
    check_private,
)
from standfast._src.runs.loop.run_scope import AgentToolInvocation, RunScope, StartedRun, UnfinishedRun
from standfast._src.runs.persistence.pending_items import unsent_items

T = TypeVar("T")
V = TypeVar("V")
InputListMode = Literal["preserve_all", "normalized"]


def interruptions_of(run: Run, scope: RunScope) -> list[ToolApprovalItem]:
    """Return the tool calls waiting for approval, nested runs included, in call order."""
    found: list[ToolApprovalItem] = []
    for call in run.calls:
        if call.child is not None:
            found += interruptions_of(call.child, _ensure_child_scope(run, scope, call))
        elif call.state == "waiting":
            found.append(_approval(run, scope, call))
    return found


def waiting_tools(run: Run) -> list[str]:
    """Return the names of the tools whose calls wait for approval, nested runs included, in call order."""
    found: list[str] = []
    for call in run.calls:
        found += waiting_tools(call.child) if call.child is not None else [call.name] * (call.state == "waiting")
    return found


def _ensure_child_scope(run: Run, scope: RunScope, call: Call) -> RunScope:
    """Return the scope of a nested run; if another process paused the run, make one for reading."""
    known = scope.children.get(call.id)
    if known is None:
        assert run.turn is not None
        graph = scope.graph.inside(run.turn.agent, call.name) or scope.graph
        known = scope.children[call.id] = RunScope(scope.arguments, graph=graph)
    return known


def _approval(run: Run, scope: RunScope, call: Call) -> ToolApprovalItem:
    known = scope.approvals
    if call.id not in known or known[call.id].prepared_arguments != call.prepared_arguments:
        assert run.turn is not None
        agent = scope.graph.agent(run.turn.agent)
        item = run.turn.item_of(call)
        extra = next((entry.extra for entry in run.turn.reply if entry.item is item and entry.extra), {})
        known[call.id] = ToolApprovalItem(
            agent,
            scope.original(item),
            tool_name=call.name,
            tool_origin=ToolOrigin.from_json_dict(extra.get("tool_origin")),
            reason=call.reason or "approval",
            tool_behind=call.behind,
            agent_key=run.turn.agent,
            same_as_run=call.same_as_run,
            prepared_arguments=call.prepared_arguments,
        )
    return known[call.id]


class Editable(Generic[V]):
    """Attribute of a result, read from its run until the program sets a value.

    Results of the SDK are plain records, and programs edit them before they pass them on. Here an edit belongs to the
    result alone: it reaches neither the session nor a saved state, because both hold what happened. There is no
    `__set__`: a set value is stored in the result's own dictionary, where Python looks before it asks this descriptor.
    """

    def __init__(self, read: Callable[[Any], V]) -> None:
        self.read, self.__doc__ = read, read.__doc__

    @overload
    def __get__(self, result: None, owner: type[Any]) -> Editable[V]: ...

    @overload
    def __get__(self, result: object, owner: type[Any]) -> V: ...

    def __get__(self, result: Any, owner: type[Any]) -> Editable[V] | V:
        return self if result is None else self.read(result)


class RunResultBase(Generic[TState]):
    """Attributes common to both kinds of result; generic in the type of the state returned by `to_state`."""

    _attempt: StartedRun

    @classmethod
    def _wrap(cls, attempt: StartedRun, state_of: Callable[[], TState] | None = None) -> Self:
        """Return the result of a run."""
        result = cls.__new__(cls)
        result._attach(attempt, state_of)
        return result

    def _attach(self, attempt: StartedRun, state_of: Callable[[], TState] | None = None) -> None:
        self._attempt, self._scope = attempt, attempt.scope
        self._state_of = state_of
        self.max_turns = attempt.scope.arguments.max_turns
        self._items: list[RunItem] | None = None
        self._made: tuple[RunItem, ...] = ()
        self._released: Any = None

    def _take(self, source: Source | None, made: Callable[[], StartedRun], values: dict[str, Any]) -> None:
        """Set the values of a result made by the program: a copy of `source`, or a new result."""
        if source is None:
            self._attach(made())
        else:
            vars(self).update(vars(source.result))
        for name, value in values.items():
            known = self if source is None else source.result
            if source is None or getattr(known, name) != value:
                vars(self)[name] = value

    @property
    def _source(self) -> Source:  # read by dataclasses.replace
        return Source(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source_type: Any, handler: Any) -> Any:
        return {"type": "is-instance", "cls": cls}

    @property
    def _run(self) -> Run:
        return self._attempt.run

    @property
    def run_id(self) -> str:
        """Id of the run, for its writes to a session and for a resume."""
        return self._run.spec.run_id

    @Editable
    def input(self) -> str | list[Item]:
        """Input of the run, after the history if there is a session; after a rewriting handoff, the input made by the
        handoff.
        """
        run, scope = self._run, self._scope
        view = run.view
        # The first view may be a session callback's; only a later one was made by a handoff.
        if view.base is not None and len(run.views) > 1:
            return [copy_json(item) for item in view.base]
        if scope.session is None and isinstance(scope.given_input, str):
            return scope.given_input
        first = run.views[0]
        base = scope.history if first.base is None else first.base
        own = [entry.item for entry in run.ledger[: run.spec.input_count]] if first.tail == 0 else []
        return [copy_json(item) for item in (*base, *own)]

    @Editable
    def new_items(self) -> list[RunItem]:
        """Every item of this run, also those hidden from the model by a filter, open calls and approval requests
        included.
        """
        run, scope = self._run, self._scope
        if self._items is None:
            items = scope.run_items(run.ledger)
            turn = run.turn
            if turn is not None:
                items += scope.run_items(turn.reply)
                for call in turn.calls:
                    items += scope.run_items(call.outputs)
                items += interruptions_of(run, scope)
            items += scope.run_items(run.progress.compacted)
            self._items, self._made = items, tuple(items)
        return self._items

    @Editable
    def raw_responses(self) -> list[ModelResponse]:
        """Every reply of the model, those before a resume included."""
        return self._scope.responses

    @Editable
    def final_output(self) -> Any:
        """Final output of the run; None until the output is judged and stored."""
        run = self._run
        # A caller that reads an output may act on it: it must not be lost from the history afterwards.
        if not run.progress.ended or run.marks.stored < run.storable:
            return None
        return self._scope.final_output

    @Editable
    def interruptions(self) -> list[ToolApprovalItem]:
        """Tool calls waiting for approval."""
        return interruptions_of(self._run, self._scope)

    @Editable
    def input_guardrail_results(self) -> list[Any]:
        """Results of the input guardrails."""
        return self._scope.results.of_input

    @Editable
    def output_guardrail_results(self) -> list[Any]:
        """Results of the output guardrails."""
        return self._scope.results.of_output

    @Editable
    def tool_input_guardrail_results(self) -> list[Any]:
        """Results of the tools' input guardrails."""
        return self._scope.results.of_tool_input

    @Editable
    def tool_output_guardrail_results(self) -> list[Any]:
        """Results of the tools' output guardrails."""
        return self._scope.results.of_tool_output

    @Editable
    def context_wrapper(self) -> RunContextWrapper[Any]:
        """The context the run had, with its usage."""
        return self._scope.wrapper

    @property
    def last_agent(self) -> Agent[Any]:
        """Last agent of the conversation."""
        if self._released is not None:
            agent: Agent[Any] | None = self._released()
            if agent is None:
                raise StandfastError(
                    "the last agent was released and is gone", "Keep a reference to it, or read it before releasing."
                )
            return agent
        return self._scope.graph.agent(self._run.progress.agent)

    @property
    def last_response_id(self) -> str | None:
        """The id of the last reply, for `previous_response_id` of the next run."""
        return self.raw_responses[-1].response_id if self.raw_responses else None

    @property
    def agent_tool_invocation(self) -> AgentToolInvocation | None:
        """Tool call answered by this run, if the run is nested."""
        return self._scope.arguments.invocation

    @property
    def left_out(self) -> list[Any]:
        """Items left out of requests because no provider accepts them; the session or the caller's list still has them
        (C8).
        """
        return self._scope.left_out

    @property
    def unfinished(self) -> tuple[UnfinishedRun, ...]:
        """Runs of the conversation still unfinished at the start of this one, and how each was handled (C15)."""
        return tuple(self._scope.seen.unfinished)

    @property
    def heard(self) -> tuple[str, ...]:
        """Ids of the messages heard by the run, in order (F2)."""
        return self._run.spec.heard

    @property
    def interrupted_by(self) -> str | None:
        """Id of the message that the run stopped for, after a turn and without a final output (F2)."""
        return self._scope.interrupted_by

    @property
    def not_stored(self) -> tuple[tuple[str, int], ...]:
        """Earlier runs of this process with items missing in the session: run id and number of items (C14)."""
        return self._scope.not_stored

    @property
    def owed_items(self) -> list[Item]:
        """Items not yet received by the conversation's server, if the run ended before sending them (D11)."""
        return unsent_items(self._run)

    def to_state(self) -> TState:
        """Return the run as a `RunState`, to approve, save and resume. Each returned state is independent."""
        if self._state_of is None:
            raise StandfastError(
                "a nested run is saved with its parent, and a result that a program made has none to save",
                "Take the outer result's state.",
            )
        return self._state_of()

    def to_input_list(self, *, mode: InputListMode = "preserve_all") -> list[Item]:
        """The whole conversation, ready to be sent again: calls that were not answered are left out (D12).

        "normalized" is what the model saw, "preserve_all" the input and everything the run added.
        """
        run, scope = self._run, self._scope
        if mode not in ("normalized", "preserve_all"):
            raise InvalidSettingError(f"{mode!r} is no mode of an input list", "Choose 'preserve_all' or 'normalized'.")
        if self._is_edited:
            items = self._edited_input_list()
        elif mode == "normalized":
            items = view_items(run, scope.history)
        else:
            first = run.views[0]
            whole = first if first.base is not None else View(None, scope.history_tail)
            items = view_items(evolve(run, views=run.views.appended((whole,))), scope.history)
        # An open turn with calls is shown as far as it got; `prune` leaves out calls that have no output.
        turn = run.turn
        if turn is not None and turn.calls and not self._is_edited:
            items += [entry.item for entry in turn.reply]
            items += [entry.item for call in turn.calls for entry in call.outputs]
        kept, _ = prune([copy_json(item) for item in items])
        omit = scope.config.reasoning_item_id_policy == "omit"
        return [omit_reasoning_id(item) for item in kept] if omit else kept

    @property
    def _is_edited(self) -> bool:
        """True if the program has changed `input` or `new_items` of this result, by assignment or in place."""
        if not vars(self).keys().isdisjoint(("input", "new_items")):
            return True
        now = self._items
        return now is not None and (
            len(now) != len(self._made) or any(one is not other for one, other in zip(now, self._made, strict=True))
        )

    def _edited_input_list(self) -> list[Item]:
        replayed = [item for item in self.new_items if not isinstance(item, ToolApprovalItem)]
        return [*ItemHelpers.input_to_new_input_list(self.input), *(copy_json(one.to_input_item()) for one in replayed)]

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:
        """The final output, for a type checker; with `raise_if_incorrect_type` it is checked."""
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            raise SettingTypeError(
                f"the final output is {describe_type(self.final_output)}, not a {cls.__name__}",
                "Set the agent's output_type, or ask for the type it has.",
            )
        return cast(T, self.final_output)

    def release_agents(self, *, release_new_items: bool = True) -> None:
        """Hold agents only weakly from now on."""
        if release_new_items:
            for item in self.new_items:
                item.release_agent()
        self._released = weakref.ref(self._scope.graph.agent(self._run.progress.agent))

    def _count_parts(self) -> str:
        turns = self._run.progress.turns
        counts = ((len(self.new_items), "new item"), (len(self.raw_responses), "response"), (turns, "turn"))
        return ", ".join(f"{count} {one}{'' if count == 1 else 's'}" for count, one in counts)

    def __repr__(self) -> str:
        run, asked = self._run, ", ".join(waiting_tools(self._run))
        output = f"final output of type {type(self.final_output).__name__}"
        return (
            f"<{type(self).__name__} of run {run.spec.run_id}: {run.status}, last agent {run.progress.agent!r}, "
            f"{self._count_parts()}, {f'waits for a decision about {asked}' if asked else output}>"
        )

    def __str__(self) -> str:
        run = self._run
        lines = [
            f"{type(self).__name__}:",
            f"- last agent: {run.progress.agent!r}",
            f"- final output ({type(self.final_output).__name__}): {self.final_output}",
            f"- {self._count_parts()}",
            f"- run {run.spec.run_id}: {run.status}",
        ]
        if asked := waiting_tools(run):
            lines.append(f"- waits for a decision about {', '.join(asked)}")
        return "\n".join(lines)


class RunResult(RunResultBase[TState]):
    """Result of a run. Programs build results for tests with the fields of the SDK."""

    __dataclass_fields__ = ResultFields.__dataclass_fields__  # so that dataclasses.replace gives an edited copy

    def __init__(
        self,
        input: str | list[Item],
        new_items: list[RunItem],
        raw_responses: list[ModelResponse],
        final_output: Any,
        input_guardrail_results: list[Any],
        output_guardrail_results: list[Any],
        tool_input_guardrail_results: list[Any],
        tool_output_guardrail_results: list[Any],
        context_wrapper: RunContextWrapper[Any],
        _last_agent: Agent[Any],
        *,
        max_turns: int | None = 10,
        interruptions: list[ToolApprovalItem] | None = None,
        _source: Source | None = None,
        **private: Any,
    ) -> None:
        check_private(private)
        given = locals()
        values = {name: given[name] for name in COMMON} | {"interruptions": interruptions or []}
        self._take(_source, lambda: MadeRun(_last_agent, input, context_wrapper, max_turns), values)
        self.max_turns = max_turns

    @property
    def _last_agent(self) -> Agent[Any]:  # read by dataclasses.replace
        return self.last_agent
