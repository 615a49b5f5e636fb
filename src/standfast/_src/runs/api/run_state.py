"""A run, saved: the engine's `Run` as JSON, with the application's context beside it.

`RunState` changes only through the engine: approving, rejecting and adding input are events like any other. A payload
is data and names no code; it is checked before anything of it is used, and what it was saved under (owner, agents)
must be there.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import digest_shown_arguments
from standfast._src.agents.context import RunContextWrapper, TContext, wrapper_of
from standfast._src.agents.hooks import TAgent
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import ApprovalError, RunStateError, UserError
from standfast._src.base.json_values import Item, copy_json, encode
from standfast._src.base.type_names import describe_type
from standfast._src.items.history import LOCAL_CALL_TYPES
from standfast._src.items.items import ToolApprovalItem
from standfast._src.models.interface import ModelProvider
from standfast._src.runs.api.saved_context import (
    ContextDeserializer,
    ContextSerializer,
    read_saved_context,
    saved_context,
    wrap_context,
)
from standfast._src.runs.engine.advance import advance, refuse_finished
from standfast._src.runs.engine.append_log import plain
from standfast._src.runs.engine.codec import BesideRun, decode_run, encode_run
from standfast._src.runs.engine.events import Decided, Event, InputStaged
from standfast._src.runs.engine.run import Decision, Run, begin
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.loop.conversation_owner import owner_of
from standfast._src.runs.loop.initial_run import own_items
from standfast._src.runs.loop.result import interruptions_of, waiting_tools
from standfast._src.runs.loop.run_scope import ResumedRun, RunArguments, RunScope
from standfast._src.runs.persistence.resume_checks import check_saved
from standfast._src.runs.steps.call_lookup import idempotency_key, question_shown, questions_of
from standfast._src.runs.steps.reply_parsing import arguments_text

CallStatus = Literal["intended", "waiting", "started", "unknown", "done"]
_STATUS: dict[str, CallStatus] = {
    "asked": "intended",
    "waiting": "waiting",
    "begun": "started",
    "doubt": "unknown",
    "returned": "done",
}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Record of a saved run about one of its calls.

    `intended`: it has not begun and will run. `waiting`: it waits for a person's decision. `started`: it had begun when
    the run was saved; after a crash its outcome is unknown. `unknown`: a started call of a resumed run. `done`: it has
    its output and never runs again.
    """

    call_id: str
    tool_name: str
    arguments: str
    status: CallStatus
    idempotency_key: str
    """What the tool is given as `context.idempotency_key`, in every attempt."""

    run_id: str
    """The run whose call it is: this one, or one inside a call of it."""


class RunState(Generic[TContext, TAgent]):
    """A run that is not under way: to look at, decide about, save, and resume with `Runner.run(agent, state)`."""

    _is_busy = False
    """Whether it is being resumed."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: object) -> object:
            # `RunState[Context]` says nothing of the agent's class; below Python 3.13 a type variable has no default.
            given = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*given, Any) if len(given) == 1 else given)

    def __init__(
        self,
        context: RunContextWrapper[TContext] | TContext | Any,
        original_input: str | list[Item],
        starting_agent: Agent[Any],
        max_turns: int | None = 10,
        *,
        conversation_id: str | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
    ) -> None:
        run = begin(
            run_id=uuid.uuid4().hex,
            agent=starting_agent.name,
            input_items=own_items(original_input),
            owner=owner_of(None, conversation_id, previous_response_id, auto_previous_response_id),
            max_turns=max_turns,
            verdict="blocking",  # whoever runs it knows the guardrails; where there are none, that passes at once
            input_is_text=isinstance(original_input, str),
        )
        self._saved, self._wrapper, self._agent = ResumedRun(run), wrapper_of(context), starting_agent

    @classmethod
    def _from_saved(cls, saved: ResumedRun, wrapper: RunContextWrapper[Any], agent: Agent[Any]) -> RunState[Any]:
        state: RunState[Any] = RunState.__new__(RunState)
        state._saved, state._wrapper, state._agent = saved, wrapper, agent
        return state

    @property
    def _run(self) -> Run:
        return self._saved.run

    def _advance(self, event: Event) -> None:
        self._saved = replace(self._saved, run=advance(self._run, event))

    # --- what it holds -----------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.spec.run_id

    @property
    def status(self) -> str:
        """running, paused, done, failed or cancelled."""
        return self._run.status

    @property
    def current_turn(self) -> int:
        """Number of turns so far."""
        return self._run.progress.turns

    @property
    def max_turns(self) -> int | None:
        """Limit of turns."""
        return self._run.spec.max_turns

    @property
    def context_wrapper(self) -> RunContextWrapper[Any]:
        """The application's context, with the run's usage and decisions."""
        return self._wrapper

    def get_interruptions(self) -> list[ToolApprovalItem]:
        """Return copies of the calls waiting for a person, nested runs included. A changed copy changes nothing."""
        # Copies: what an application does to what it shows must not change what a decision is bound to.
        return [_copy_approval_item(item) for item in interruptions_of(self._run, self._reader())]

    def get_calls(self) -> list[CallRecord]:
        """Return the records of the run's calls, in call order, and of nested runs while they are unfinished."""
        return list(_records(self._run))

    def get_tool_use_tracker_snapshot(self) -> dict[str, list[str]]:
        """The tools each agent has used so far."""
        used: dict[str, list[str]] = {}
        for agent, tool in self._run.progress.used:
            used.setdefault(agent, []).append(tool)
        return used

    def _reader(self) -> RunScope:
        """Return a scope for reading the run: its own if it paused here, else one with its agents only."""
        arguments = RunArguments(self._agent, "", self._wrapper, RunConfig(), provider=_no_provider)
        return self._saved.scope or RunScope(arguments)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def approve(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:
        """Approve this call; with `always_approve` also every later call of the same tool.

        The last decision on this state counts, until the call runs. Raises AlreadyDecidedError for a call decided by an
        operator (`Store.decide`). Raises ApprovalError for a call that does not wait, or differs from the shown call in
        its tool or arguments.
        """
        self._decide(approval_item, approved=True, sticky=always_approve, message=None)

    def reject(
        self, approval_item: ToolApprovalItem, always_reject: bool = False, *, rejection_message: str | None = None
    ) -> None:
        """Refuse this call and give the model a message instead; with `always_reject` also every later call of the
        tool.
        """
        self._decide(approval_item, approved=False, sticky=always_reject, message=rejection_message)

    def _decide(self, item: ToolApprovalItem, *, approved: bool, sticky: bool, message: str | None) -> None:
        if not isinstance(item, ToolApprovalItem) or not item.call_id:
            raise ApprovalError("that item names no call", "Pass an item of get_interruptions() as it is.")
        shown = (item.tool_name, digest_shown_arguments(item))
        path, call, scope, agent = question_shown(
            self._run, item.call_id, lambda call: (call.name, digest_shown_arguments(call)) == shown
        )
        decision = Decision(
            approved, call.id, scope, sticky, message, digest_shown_arguments(call), agent, behind=call.behind
        )
        self._advance(Decided(decision, path))

    def _take_decisions(self) -> None:
        """Apply the decisions made with `context_wrapper.approve_tool` and `reject_tool` since the pause."""
        for one in self._wrapper.approvals.drain():
            if one.call_id not in {asked.call.id for asked in questions_of(self._run) if not asked.path}:
                continue  # about a tool, or a call to come: the book answers for it
            self._advance(Decided(one))

    # --- input -------------------------------------------------------------------------------------------------------

    def add_input(self, input: str | list[Item]) -> None:
        """Stage input that the model sees, after the open calls' outputs, with its next request.

        Input guardrails look at it first. Refused where no further request may come.
        """
        run = self._run
        refuse_finished(run)
        if run.spec.max_turns is not None and run.progress.turns >= run.spec.max_turns:
            raise UserError("the run has no turn left that could read more input", "Start a new run with this input.")
        turn = run.turn
        # Its reply may turn out to be the final output; then nobody would read the input.
        if turn is not None and not turn.calls:
            raise UserError("the run has a reply that is not processed yet", "Resume it first, then add input.")
        behavior = getattr(self._reader().graph.agent(run.progress.agent), "tool_use_behavior", "run_llm_again")
        if turn is not None and _may_end(behavior, [call.name for call in turn.calls]):
            raise UserError(
                "a waiting tool may end the run, and then nobody would read this input",
                "Resume first; give the input to a new run if it ends.",
            )
        items = own_items(input)
        for item in items:
            encode(item)  # what JSON cannot hold is refused now, not when the run is saved
        self._advance(InputStaged(tuple(items)))

    @property
    def pending_input(self) -> list[Item]:
        """The staged input, as a copy."""
        return [copy_json(item) for item in self._run.progress.staged]

    def clear_pending_input(self) -> None:
        """Forget the staged input."""
        self._advance(InputStaged(None))

    # --- JSON --------------------------------------------------------------------------------------------------------

    def to_json(
        self,
        *,
        context_serializer: ContextSerializer | None = None,
        strict_context: bool = False,
        include_tracing_api_key: bool = False,
    ) -> dict[str, Any]:
        """Return the run as a JSON object, without the session, hooks, tools and agents: a resume is given them.

        `include_tracing_api_key` is accepted for compatibility with the SDK and has no effect: no key is ever in a
        saved run.
        """
        wrapper = self._wrapper
        context = saved_context(wrapper.context, context_serializer, strict_context)
        beside = (self._saved.revision, context, wrapper.usage.to_json(), tuple(wrapper.approvals.decisions()))
        return {**encode_run(self._run), **plain(BesideRun(*beside))}

    def to_string(
        self,
        *,
        context_serializer: ContextSerializer | None = None,
        strict_context: bool = False,
        include_tracing_api_key: bool = False,
    ) -> str:
        """The run as JSON text."""
        return json.dumps(self.to_json(context_serializer=context_serializer, strict_context=strict_context), indent=2)

    @staticmethod
    async def from_json(
        initial_agent: Agent[Any],
        state_json: Mapping[str, Any],
        *,
        context_override: object = None,
        context_deserializer: ContextDeserializer | None = None,
        strict_context: bool = False,
    ) -> RunState[Any]:
        """Return the run from `to_json`. Raises RunStateError for any other data, before any use of it."""
        if not isinstance(state_json, Mapping):
            raise RunStateError(f"{describe_type(state_json)} is not a saved run", "Pass what RunState.to_json() gave.")
        payload = dict(state_json)
        try:
            run = decode_run(payload)
            check_saved(run, AgentGraph(initial_agent))
            revision, wrapper = read_saved_context(payload, run, context_override, context_deserializer, strict_context)
        except RecursionError:
            raise RunStateError(
                "it is nested more deeply than any run", "Pass what RunState.to_json() gave, unchanged."
            ) from None
        return RunState._from_saved(ResumedRun(run, revision), wrapper, initial_agent)

    @staticmethod
    async def from_string(
        initial_agent: Agent[Any],
        state_string: str,
        *,
        context_override: object = None,
        context_deserializer: ContextDeserializer | None = None,
        strict_context: bool = False,
    ) -> RunState[Any]:
        """The run that `to_string` gave."""
        try:
            payload = json.loads(state_string)
        except (TypeError, ValueError, RecursionError):
            raise RunStateError(
                "the text is not JSON: it was cut or changed",
                "Pass the text that RunState.to_string() gave, unchanged.",
            ) from None
        return await RunState.from_json(
            initial_agent,
            payload,
            context_override=context_override,
            context_deserializer=context_deserializer,
            strict_context=strict_context,
        )

    def __repr__(self) -> str:
        waiting = waiting_tools(self._run)
        asked = f", waiting={waiting!r}" if waiting else ""
        return f"RunState(run_id={self.run_id!r}, status={self.status!r}, turns={self.current_turn}{asked})"


# --- helpers ---------------------------------------------------------------------------------------------------------


def _no_provider() -> ModelProvider:
    raise RunStateError("a state that is only looked at asks no model", "Resume it with Runner.run(agent, state).")


def _copy_approval_item(item: ToolApprovalItem) -> ToolApprovalItem:
    try:
        return replace(item, raw_item=copy.deepcopy(item.raw_item))
    except Exception as error:  # a provider's own object may refuse in any way
        raise UserError(
            f"call {item.call_id!r} cannot be copied: {type(error).__name__}",
            "Let the Model reply with plain items, or with objects that copy.deepcopy can copy.",
        ) from error


def _records(run: Run) -> Iterator[CallRecord]:
    run_id = run.spec.run_id
    for entry in run.ledger:
        if entry.kind in ("tool_call_item", "handoff_call_item") and entry.item.get("type") in LOCAL_CALL_TYPES:
            call_id, name = str(entry.item.get("call_id")), str(entry.item.get("name"))
            key = idempotency_key(run_id, call_id)
            yield CallRecord(call_id, name, arguments_text(entry.item), "done", key, run_id)
    for call in run.calls:
        key = idempotency_key(run_id, call.id)
        yield CallRecord(call.id, call.name, call.arguments, _STATUS[call.state], key, run_id)
        if call.child is not None:
            yield from _records(call.child)


def _may_end(behavior: object, names: list[str]) -> bool:
    if behavior == "run_llm_again":
        return False
    if isinstance(behavior, dict):
        return any(name in behavior.get("stop_at_tool_names", ()) for name in names)
    return True


def with_context(wrapper: RunContextWrapper[Any], context: object) -> RunContextWrapper[Any]:
    """The wrapper of a resumed run with another application object; usage and decisions stay."""
    if context is None or context is wrapper:
        return wrapper
    return wrap_context(context, wrapper.usage, wrapper.approvals)
