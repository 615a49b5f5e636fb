"""A run, saved: the engine's `Run` as JSON, with the application's context beside it.

`RunState` changes only through the engine: approving, rejecting and adding input are events like any other. A payload
is data and names no code; it is checked before anything of it is used, and what it was saved under (owner, agents)
must be there.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from .context import ApprovalBook, Decision as BookDecision, RunContextWrapper, arguments_digest, scope_of
from .driver.conversation import session_id_of
from .driver.graph import AgentGraph
from .driver.live import Live, usage_of
from .driver.result import interruptions_of
from .engine.advance import advance, refuse_finished
from .engine.codec import decode_run, encode_run
from .engine.events import Decided, InputStaged, Stopped
from .engine.state import Decision, Owner, Run, begin
from .errors import ApprovalError, RunStateError, UserError
from .items import ItemHelpers, ToolApprovalItem
from .jsonvalue import Item, copy_json
from .run_config import RunConfig
from .usage import Usage

logger = logging.getLogger("holdfast")


class RunState:
    """A run that is not under way: to look at, decide about, save, and resume with `Runner.run(agent, state)`."""

    def __init__(
        self,
        context: Any,
        original_input: str | list[Item],
        starting_agent: Any,
        max_turns: int | None = 10,
        *,
        conversation_id: str | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
    ) -> None:
        wrapper = context if isinstance(context, RunContextWrapper) else RunContextWrapper(context)
        owner = Owner()
        if conversation_id is not None:
            owner = Owner("conversation", conversation_id)
        elif previous_response_id is not None or auto_previous_response_id:
            owner = Owner("chain", previous_response_id)
        run = begin(
            run_id=_new_id(),
            agent=starting_agent.name,
            input_items=ItemHelpers.input_to_new_input_list(original_input),
            owner=owner,
            max_turns=max_turns,
            input_is_text=isinstance(original_input, str),
        )
        self._set(run, wrapper, starting_agent, None, 0)

    @classmethod
    def _of(cls, run: Run, wrapper: Any, agent: Any, live: Live | None, revision: int) -> RunState:
        state = cls.__new__(cls)
        state._set(run, wrapper, agent, live, revision)
        return state

    def _set(self, run: Run, wrapper: Any, agent: Any, live: Live | None, revision: int) -> None:
        self._run, self._wrapper, self._agent = run, wrapper, agent
        self._live = live
        self._revision = revision
        self._busy = False
        self._takeover = False

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
        """How many turns the run has taken."""
        return self._run.progress.turns

    @property
    def max_turns(self) -> int | None:
        """How many it may take."""
        return self._run.spec.max_turns

    @property
    def context_wrapper(self) -> Any:
        """The application's context, with the run's usage and decisions."""
        return self._wrapper

    def get_interruptions(self) -> list[ToolApprovalItem]:
        """The calls that wait for a person."""
        return interruptions_of(self._run, self._reader())

    def _reader(self) -> Live:
        if self._live is None:
            self._live = Live(graph=AgentGraph(self._agent), wrapper=self._wrapper, config=RunConfig())
        return self._live

    # --- decisions ---------------------------------------------------------------------------------------------------

    def approve(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:
        """Let this call run; with `always_approve` every later call of the same tool too."""
        self._decide(approval_item, approved=True, sticky=always_approve, message=None)

    def reject(
        self, approval_item: ToolApprovalItem, always_reject: bool = False, *, rejection_message: str | None = None
    ) -> None:
        """Refuse this call, with what the model reads instead; with `always_reject` every later call of the tool."""
        self._decide(approval_item, approved=False, sticky=always_reject, message=rejection_message)

    def _decide(self, item: ToolApprovalItem, *, approved: bool, sticky: bool, message: str | None) -> None:
        call_id = item.call_id
        if not call_id:
            raise ApprovalError("the approval item names no call", "Pass an item of get_interruptions() as it is.")
        paths = list(_paths(self._run, call_id))
        if not paths:
            raise ApprovalError(
                f"call {call_id!r} is not waiting for a decision in run {self.run_id!r}",
                "Decide about an item of get_interruptions(); a call that was decided and ran cannot be decided again.",
            )
        if len(paths) > 1:
            raise ApprovalError(
                f"call id {call_id!r} waits in more than one nested run",
                "Give nested agents models with unique call ids.",
            )
        path, call = paths[0]
        if item.tool_name != call.name or arguments_digest(item.arguments) != arguments_digest(call.arguments):
            raise ApprovalError(
                f"call {call_id!r} is not the one that was shown: its tool or its arguments differ",
                "Show the call as it is now to whoever decides, and ask again.",
            )
        decision = Decision(
            approved=approved,
            call_id=call_id,
            scope=scope_of(item),
            sticky=sticky,
            message=message,
            arguments_digest=arguments_digest(call.arguments),
        )
        self._run = advance(self._run, Decided(decision, path))

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
        if turn is not None and not turn.calls:
            raise UserError("the run has a reply that is not processed yet", "Resume it first, then add input.")
        behavior = getattr(self._reader().graph.agent(run.progress.agent), "tool_use_behavior", "run_llm_again")
        if turn is not None and _may_end(behavior, [call.name for call in turn.calls]):
            raise UserError(
                "a waiting tool may end the run, and then nobody would read this input",
                "Resume first; give the input to a new run if it ends.",
            )
        items = ItemHelpers.input_to_new_input_list(input)
        self._run = advance(run, InputStaged(tuple(items)))

    @property
    def pending_input(self) -> list[Item]:
        """The staged input, as a copy."""
        return [copy_json(item) for item in self._run.progress.staged]

    def clear_pending_input(self) -> None:
        """Forget the staged input."""
        self._run = advance(self._run, InputStaged(None))

    def _abandon(self, message: str) -> Run:
        return advance(self._run, Stopped("abandoned", message=message))

    # --- JSON --------------------------------------------------------------------------------------------------------

    def to_json(
        self,
        *,
        context_serializer: Callable[[Any], Mapping[str, Any]] | None = None,
        strict_context: bool = False,
        include_tracing_api_key: bool = False,
    ) -> dict[str, Any]:
        """The run as a JSON object. The session, hooks, tools and agents are not in it: resume is given them."""
        payload = encode_run(self._run)
        payload["revision"] = self._revision
        payload["saved_context"] = _context_to_json(self._wrapper.context, context_serializer, strict_context)
        payload["usage"] = self._wrapper.usage.to_json()
        payload["decisions"] = [one.to_json() for one in self._wrapper.approvals.decisions()]
        return payload

    def to_string(
        self,
        *,
        context_serializer: Callable[[Any], Mapping[str, Any]] | None = None,
        strict_context: bool = False,
        include_tracing_api_key: bool = False,
    ) -> str:
        """The run as JSON text."""
        return json.dumps(self.to_json(context_serializer=context_serializer, strict_context=strict_context), indent=2)

    @staticmethod
    async def from_json(
        initial_agent: Any,
        state_json: Mapping[str, Any],
        *,
        context_override: Any = None,
        context_deserializer: Callable[[Mapping[str, Any]], Any] | None = None,
        strict_context: bool = False,
    ) -> RunState:
        """The run that `to_json` gave. Raises RunStateError for anything else, before anything of it is used."""
        if not isinstance(state_json, Mapping):
            raise RunStateError(
                f"a {type(state_json).__name__} is not a saved run", "Pass what RunState.to_json() gave."
            )
        payload = dict(state_json)
        run = decode_run(payload)
        graph = AgentGraph(initial_agent)
        for key in _agents_of(run):
            graph.agent(key)
        revision = payload.get("revision", 0)
        if not isinstance(revision, int) or isinstance(revision, bool) or revision < 0:
            raise RunStateError(f"{revision!r} is not the revision of a saved run", "Pass the payload unchanged.")
        wrapper = _wrapper_from(payload, run, context_override, context_deserializer, strict_context)
        return RunState._of(run, wrapper, initial_agent, None, revision)

    @staticmethod
    async def from_string(
        initial_agent: Any,
        state_string: str,
        *,
        context_override: Any = None,
        context_deserializer: Callable[[Mapping[str, Any]], Any] | None = None,
        strict_context: bool = False,
    ) -> RunState:
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
        return f"RunState(run_id={self.run_id!r}, status={self.status!r}, turns={self.current_turn})"


# --- helpers ---------------------------------------------------------------------------------------------------------


def _new_id() -> str:
    import uuid

    return uuid.uuid4().hex


def _paths(run: Run, call_id: str, path: tuple[str, ...] = ()) -> Any:
    for call in run.waiting:
        if call.child is not None:
            yield from _paths(call.child, call_id, (*path, call.id))
        elif call.id == call_id:
            yield path, call
    turn = run.turn
    for call in turn.calls if turn is not None else ():
        if call.id == call_id and call.state == "asked" and call.decision is not None:
            yield path, call  # decided, not run yet: the last decision counts


def _may_end(behavior: Any, names: list[str]) -> bool:
    if behavior == "run_llm_again":
        return False
    if isinstance(behavior, dict):
        return any(name in behavior.get("stop_at_tool_names", ()) for name in names)
    return True


def _agents_of(run: Run) -> set[str]:
    found = {run.spec.agent, run.progress.agent, *(entry.agent for entry in run.ledger)}
    if run.turn is not None:
        found.add(run.turn.agent)
    return found


def _context_to_json(context: Any, serializer: Any, strict: bool) -> dict[str, Any]:
    if serializer is not None:
        value = serializer(context)
        if not isinstance(value, Mapping):
            raise UserError(f"context_serializer returned a {type(value).__name__}", "Return a mapping of JSON values.")
        return {"via": "context_serializer", "value": copy_json(dict(value))}
    if context is None:
        return {"via": "none", "value": None}
    if isinstance(context, Mapping):
        return {"via": "mapping", "value": copy_json(dict(context))}
    if strict:
        raise UserError(
            f"a {type(context).__name__} as context cannot be restored without help",
            "Pass context_serializer= (and context_deserializer= when loading), or use a dict.",
        )
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return {"via": "asdict", "class": type(context).__qualname__, "value": dataclasses.asdict(context)}
    dump = getattr(context, "model_dump", None)
    if dump is not None:
        return {"via": "model_dump", "class": type(context).__qualname__, "value": dump(mode="json")}
    logger.warning(
        "the run's context (%s) cannot be saved; pass context_override= when loading", type(context).__name__
    )
    return {"via": "omitted", "class": type(context).__qualname__, "value": {}}


def _wrapper_from(payload: dict[str, Any], run: Run, override: Any, deserializer: Any, strict: bool) -> Any:
    saved = payload.get("saved_context")
    if saved is not None and not isinstance(saved, dict):
        raise RunStateError("its context is not one of ours", "Pass the payload unchanged.")
    saved = saved or {"via": "none", "value": None}
    usage_json = payload.get("usage")
    try:
        usage = Usage.from_json(usage_json) if isinstance(usage_json, dict) else usage_of(run)
        book = ApprovalBook.of([BookDecision.from_json(one) for one in payload.get("decisions") or ()])
    except (TypeError, KeyError, AttributeError, ValueError):
        raise RunStateError("its usage or decisions cannot be read", "Pass the payload unchanged.") from None
    if override is not None:
        if type(override) is RunContextWrapper:
            override.usage, override.approvals = usage, book
            return override
        if isinstance(override, RunContextWrapper):
            raise UserError(
                f"context_override is a {type(override).__name__}",
                "Pass the application's object, or a RunContextWrapper.",
            )
        return RunContextWrapper(override, usage, approvals=book)
    via, value = saved.get("via"), saved.get("value")
    if deserializer is not None:
        return RunContextWrapper(deserializer(value if isinstance(value, Mapping) else {}), usage, approvals=book)
    if via not in ("none", "mapping"):
        if strict:
            raise UserError(
                "the saved context needs help to be restored", "Pass context_override= or context_deserializer=."
            )
        logger.warning(
            "the run's context was restored as a plain dict; pass context_override= or context_deserializer="
        )
    return RunContextWrapper(value, usage, approvals=book)


def with_context(wrapper: Any, context: Any) -> Any:
    """The wrapper of a resumed run with another application object; usage and decisions stay."""
    if context is None:
        return wrapper
    if isinstance(context, RunContextWrapper):
        return context
    return RunContextWrapper(
        context, wrapper.usage, wrapper.turn_input, wrapper.tool_input, approvals=wrapper.approvals
    )


def owner_of(session: Any, conversation_id: str | None, previous_response_id: str | None, auto: bool) -> Owner:
    """Who owns the conversation of a run with these arguments; refuses two (D1)."""
    from .errors import OwnerError

    given = {
        "session": session is not None,
        "conversation_id": conversation_id is not None,
        "previous_response_id" if previous_response_id is not None else "auto_previous_response_id": bool(
            previous_response_id is not None or auto
        ),
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise OwnerError(
            f"the conversation would have two owners: {' and '.join(named)}",
            "Keep one: a session stores the history here; the other two leave it to the server.",
        )
    for name, value in (("conversation_id", conversation_id), ("previous_response_id", previous_response_id)):
        if value is not None and not (isinstance(value, str) and value):
            raise OwnerError(f"{value!r} is no {name}", "Give the id that the server gave, or leave it out.")
    if session is not None:
        return Owner("session", session_id_of(session))
    if conversation_id is not None:
        return Owner("conversation", conversation_id)
    if previous_response_id is not None or auto:
        return Owner("chain", previous_response_id)
    return Owner()
