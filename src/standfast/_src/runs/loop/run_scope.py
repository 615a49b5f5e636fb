"""Scope of a run in this process: agents, the application's context, hooks and watchers, beside the run's data.

The scope is not saved. Typed objects from the model and values returned by tools are remembered beside the JSON kept by
the run: code in the same process gets the objects themselves, code after a resume gets the JSON.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.error_handlers import RunErrorHandlers
from standfast._src.agents.guardrails import InputGuardrailResult, OutputGuardrailResult
from standfast._src.agents.hooks import RunHooksBase
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig
from standfast._src.agents.usage_limits import PriceFunction
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.logs import logger as logger
from standfast._src.items.history import Prepared
from standfast._src.items.item_kinds import build_run_item, output_of
from standfast._src.items.items import (
    HandoffOutputItem,
    InputItem,
    ModelResponse,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOrigin,
    ToolOriginType,
    read,
    readable,
)
from standfast._src.items.stream_events import StreamEvent, event_for
from standfast._src.items.usage import Usage
from standfast._src.models.interface import ModelProvider
from standfast._src.runs.engine.run import Entry, Owner, Response, Run, Turn
from standfast._src.runs.engine.run_store import RunStore, RunSummary
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.loop.event_queue import EventQueue
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.usage_meter import UsageMeter
from standfast._src.runs.persistence.deadlock_detection import Held, running_user_code
from standfast._src.runs.persistence.session_lock import SessionLock, current_task
from standfast._src.runs.steps.resolved_agent import AgentResolver
from standfast._src.sessions.protocol import Lease, Session
from standfast._src.sessions.records import sum_usages
from standfast._src.sessions.rules.saved_runs import HeardMessage
from standfast._src.tools.tool_call import ConcurrencyLimit
from standfast._src.tools.tool_guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult

_MISSING: Any = object()
UNTRACED: Any = contextlib.nullcontext()


class Span(Protocol):
    """Span of a run, as a tracer sees it."""

    def note(self, **facts: Any) -> None:
        """Add facts known by now; `error` is a failure without an exception."""
        ...


class Tracer(Protocol):
    """Tracer of runs. The tracer chooses the name of a span and the facts in it; the loop does not."""

    def span(self, kind: str, name: str, facts: Mapping[str, Any]) -> contextlib.AbstractContextManager[Span]:
        """Return a span of a kind ("run", "model", "tool", "handoff", "guardrail"), current inside `with`."""
        ...

    def under(self, config: RunConfig) -> Tracer | None:
        """Return the tracer for a nested run of this config."""
        ...


@dataclass(frozen=True)
class AgentToolInvocation:
    """Tool call answered by a nested run."""

    tool_name: str
    tool_call_id: str
    tool_arguments: str


@dataclass(frozen=True, slots=True)
class ResumedRun:
    """Saved run to resume, and facts about it besides its data."""

    run: Run
    revision: int = 0
    store: RunStore | None = None
    takeover: bool = False
    """Whether to take a run that is marked as running though no lease proves that its worker is gone."""
    status: str | None = None
    """What its store said of it, if this very call has loaded and checked it; None: it is still to be checked."""
    scope: RunScope | None = None
    """What this process had of it when it paused, if it did so here."""
    at_once: bool = False
    """Whether to be refused by a worker that has it, whatever the concurrency policy says of waiting."""


@dataclass(frozen=True, slots=True)
class RunAround:
    """Facts about the enclosing runs of a nested run."""

    owners: tuple[Owner, ...]
    """Who owns the conversation of each."""
    store: RunStore | None
    """Where the outermost of them is saved that is saved at all."""
    keeps_outermost: bool
    """Whether that is the outermost of all."""


@dataclass(slots=True)
class RunArguments:
    """Checked arguments of one call of the runner."""

    agent: Agent[Any]
    given_input: str | list[Item]
    wrapper: RunContextWrapper[Any]
    config: RunConfig
    provider: Callable[[], ModelProvider]
    owner: Owner = Owner()  # noqa: RUF009 — frozen
    session: Session | None = None
    hooks: RunHooksBase[Any, Any] | None = None
    max_turns: int | None = DEFAULT_MAX_TURNS
    error_handlers: RunErrorHandlers[Any] | None = None
    events: EventQueue | None = None
    tracer: Tracer | None = None
    resumed: ResumedRun | None = None
    run_id: str | None = None
    """A nested run's: that of its parent, and its call."""
    inside: str | None = None
    """A nested run's: the id of the outermost run around it."""
    outer: SessionLock | None = None
    """A nested run's: its parent's hold on a session, which may be the same one."""
    invocation: AgentToolInvocation | None = None
    moved: Callable[[Run], Awaitable[None]] | None = None
    """A nested run's: its parent is told of each step, and saves it."""
    is_saved_outside: bool = False
    """A nested run's: whether a run around it is saved, so that each step of the runs inside this one must be told."""
    around: RunAround | None = None
    """A nested run's: what it is inside of."""
    beside: Beside | None = None
    """What other runs of the conversation are resumed with; None: this one's agent, if they were started with it."""
    meter: UsageMeter | None = None
    """Meter of the enclosing runs, for a nested run (F9)."""
    price: PriceFunction | None = None
    """Prices for limits in money, unless the settings have a function."""
    is_let_first: bool = False
    """Whether another run of the conversation waits for this one: then it lets no further run go first."""


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """Unfinished run of the conversation, found at the start of this run, and its handling (C15)."""

    run_id: str
    found: str
    """"paused" (it waits for a person), "gone" (its worker is gone), or "running" (nothing is certain)."""
    done: str
    """What was done: settled, shown in requests, left alone."""


@dataclass(slots=True)
class Seen:
    """Knowledge of a run or a voice call about the unfinished runs of its conversation."""

    unfinished: list[UnfinishedRun] = field(default_factory=list)
    """Which they are, and what was done about each."""
    open_turns: list[Item] = field(default_factory=list)
    """The turns of those that wait, for requests: they stand behind the history and are never stored (C15)."""
    questions: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """What waits for a person in them, by what makes two questions the same; and in which run."""


SIBLING_TRIES_MAX = 8
"""How often one attempt lets another run of its conversation finish first, all of them together."""

Beside: TypeAlias = Callable[[str, RunSummary], "tuple[Agent[Any], object] | None"]
"""Gives the agent and the application's object with which this worker can resume another run of the conversation.

It is called with the name of the agent that the run was started with.
"""


@dataclass(slots=True)
class Yielding:
    """Earlier runs of the conversation, and the tries left to finish them first (C15)."""

    tries_left: int = 0
    passed: set[str] = field(default_factory=set)
    """Runs that have been resumed, or that this worker could not resume."""
    resumed: list[UnfinishedRun] = field(default_factory=list)
    """What became of those that were resumed."""

    def may_let(self, run_id: str) -> bool:
        """Return True if this earlier run may still finish first."""
        return self.tries_left > 0 and run_id not in self.passed


class StartedRun(Protocol):
    """Started run, with the parts used by its result and by the tool call of a nested run."""

    scope: RunScope
    loop: Loop

    @property
    def run(self) -> Run:
        """The run as it is now."""
        ...

    async def execute(self) -> None:
        """Run to rest. Raises what ended the run."""
        ...

    async def abandon(self, resumed: ResumedRun, message: str) -> None:
        """Give the run up: what is open is closed with `message` and stored whole."""
        ...


Spawner: TypeAlias = Callable[[RunArguments], StartedRun]
"""Starts a nested run. Passed down by the runner, so that calls need not know the runner."""


@dataclass(slots=True)
class GuardrailResults:
    """Results of guardrails in this run, as the guardrails' own objects."""

    of_input: list[InputGuardrailResult] = field(default_factory=list)
    of_output: list[OutputGuardrailResult] = field(default_factory=list)
    of_tool_input: list[ToolInputGuardrailResult] = field(default_factory=list)
    of_tool_output: list[ToolOutputGuardrailResult] = field(default_factory=list)


@dataclass(slots=True)
class PreparedView:
    """Conversation of the last request, so that the next request prepares only new items."""

    view_count: int
    items: Prepared
    ledger_count: int


def _plain_origin(raw: Any) -> ToolOrigin | None:
    """Return the origin of a Python function: not recorded with the call, because nearly every call has it."""
    is_function = read(raw, "type") in ("function_call", "function_call_output")
    return ToolOrigin(ToolOriginType.FUNCTION) if is_function else None


class RunScope:
    """Everything this process has of one run."""

    turn: Held | None = None
    """That it is this run's turn on a server's conversation, among the agent tools of this process."""
    history_tail = 0
    """How much of the run's own ledger `history` already contains."""
    run_lease: Lease | None = None
    """The lease on the run itself, where no session's lease covers it (C12)."""
    give_back_claim: Callable[[], Coroutine[Any, Any, object] | None] | None = None
    """Undoes that a saved run was taken, for one who has to leave before anything of it has begun."""
    shown_base: list[Item] | None = None
    """What a session callback made of history, open turns and input; the run keeps it without the open turns."""
    when_accepted: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What is to be done once the server's conversation has taken a request of this run, and has replied."""
    tripped: BaseException | None = None
    announced_agent: str | None = None
    """The agent whose start hooks have been called."""
    shown_agent: str | None = None
    """The agent last shown to the watcher."""
    prepared: PreparedView | None = None
    known_upto = 0
    """How much of the ledger `known_calls` was read from."""

    def __init__(
        self,
        arguments: RunArguments,
        *,
        graph: AgentGraph | None = None,
        session: SessionLock | None = None,
        spawn: Spawner | None = None,
    ) -> None:
        self.arguments = arguments
        self.config, self.wrapper, self.hooks = arguments.config, arguments.wrapper, arguments.hooks
        self.events, self.tracer = arguments.events, arguments.tracer
        self.given_input = arguments.given_input
        self.graph = graph or AgentGraph(arguments.agent)
        self.session = session
        self.started_in = current_task()
        """The task that this run was started in, which waits for it."""
        self.spawn = spawn
        config = self.config
        self.agents = AgentResolver(
            self.wrapper,
            arguments.provider,
            collisions=config.tool_name_collision_policy,
            model=config.model,
            settings=config.model_settings,
        )
        execution = config.tool_execution
        self.places = ConcurrencyLimit(execution.max_function_tool_concurrency if execution is not None else None)
        self.history: list[Item] = []
        """What the session held when the run began, or was resumed."""
        self.mail: dict[str, HeardMessage] = {}
        """Ends of the messages heard between turns, by message id (F2)."""
        self.unheard: str | None = None
        """Id of a message left to a later run: no later message is heard before it (F3)."""
        self.interrupted_by: str | None = None
        """Id of the message that this run stopped for (F2)."""
        self.interrupting: dict[str, bool] = {}
        """For each waiting message of known policy: True if its sender asked this run to stop (F2)."""
        self.meter = arguments.meter
        """Meter of this run or of an enclosing run; None without any limit (F9)."""
        self.seen = Seen()
        # A nested run has a run around it that waits for it with its own lease.
        may_yield = arguments.moved is None and not arguments.is_let_first
        self.yielding = Yielding(SIBLING_TRIES_MAX if may_yield else 0)
        """The runs of this conversation that had not ended."""
        self.not_stored: tuple[tuple[str, int], ...] = ()
        """Earlier runs of this process whose last items the session did not get: run id and number of items (C14)."""
        self.final_output: Any = None
        self.responses: list[ModelResponse] = []
        self.results = GuardrailResults()
        self.shown_calls: set[str] = set()
        """The calls whose outputs were shown to the watcher."""
        self.left_out: list[Any] = []
        """Items of a client-owned history that no provider would accept: left out of requests, not deleted (C8)."""
        self.known_calls: dict[str, str] = {}
        """The calls in the run's history and their digests, found once each."""
        self.asked_calls: dict[str, str] = {}
        """The calls of the last reply and their digests: they join the ledger as they are, or not at all."""
        self.approvals: dict[str, ToolApprovalItem] = {}
        """The questions to a person, by call id: the same call is shown as the same object."""
        self.child_responses: dict[str, list[Response]] = {}
        """Replies of nested runs that ended, until their call's output is recorded."""
        self.children: dict[str, RunScope] = {}
        """What this process has of nested runs that are paused, by call id."""
        self._originals: dict[int, tuple[Item, Any, Any]] = {}
        self._views: dict[int, tuple[Entry, RunItem]] = {}

    @property
    def held(self) -> Held | None:
        """Lock of this run while its calls are carried out: the session's, or the turn on a server's conversation."""
        return self.session if self.session is not None else self.turn

    def enter_user_code(self) -> contextlib.AbstractContextManager[None]:
        """Mark the application's code as part of this run: a run started inside it is a nested run.

        A model's request is not marked: a background task left by a hook may wait for its turn meanwhile.
        """
        held = self.session if self.session is not None else self.turn  # as `held`: this is asked for every effect
        return running_user_code(held, self.started_in)

    @cached_property
    def store(self) -> RunStore | None:
        """Store of the run: from the settings, from loading the run, or the session's own."""
        config, resumed = self.config, self.arguments.resumed
        if config.save == "never":
            return None
        if self.arguments.moved is not None:
            return self._store_of_nested()
        if config.run_store != "auto":
            return config.run_store
        if resumed is not None and resumed.store is not None:
            return resumed.store
        return self.session.run_store() if self.session is not None else None

    def _store_of_nested(self) -> RunStore | None:
        """Return the store of a nested run besides its parent's record. A resume starts from the parent's record.

        The next run on the nested run's conversation must find it (C15), and may belong to another worker. A nested run
        on a session of its own is therefore kept in that session's store, where a lease tells a crashed worker. A
        nested run on a server's conversation is kept with the enclosing runs.
        """
        hold, given, around = self.session, self.config.run_store, self.arguments.around
        if self.arguments.owner.kind == "conversation":
            return given if given != "auto" else around.store if around is not None else None
        if hold is None or hold.is_covered or self.config.concurrency == "allow":
            return None
        store = hold.run_store() if given == "auto" else given
        return store if store is not None and hold.keeps(store) else None

    @property
    def is_beside_outermost(self) -> bool:
        """True if a nested run on a server's conversation is kept in the outermost run's store."""
        around = self.arguments.around
        if around is None or not around.keeps_outermost or self.arguments.owner.kind != "conversation":
            return False
        return self.store is not None and self.store is around.store

    # --- items -------------------------------------------------------------------------------------------------------

    def remember(self, item: Item, original: object = _MISSING, native: object = _MISSING) -> None:
        """Keep the typed object or the native value beside the JSON, and the item: the item's `id()` stays unique."""
        if original is item:
            original = _MISSING
        if original is not _MISSING or native is not _MISSING:
            # By identity: two equal items are two items, each with an object of its own.
            self._originals[id(item)] = (item, original, native)

    def original(self, item: Item) -> Any:
        """Return the model's object for the item, if this process has it; else the item, readable like an object."""
        _, original, _ = self._originals.get(id(item), (None, _MISSING, _MISSING))
        return readable(item if original is _MISSING else original)

    def run_item(self, entry: Entry) -> RunItem:
        """The public view of an entry; the same entry gives the same object."""
        known = self._views.get(id(entry))
        if known is not None:
            return known[1]
        made = self._make(entry)
        self._views[id(entry)] = (entry, made)
        return made

    def run_items(self, entries: Iterable[Entry]) -> list[RunItem]:
        """The public views of these entries, the run's own input left out."""
        return [self.run_item(entry) for entry in entries if entry.kind != "input"]

    def _make(self, entry: Entry) -> RunItem:
        item, extra = entry.item, entry.extra or {}
        agent = self.graph.agent(entry.agent)
        _, original, native = self._originals.get(id(item), (None, _MISSING, _MISSING))
        # What a user changes is theirs, not history.
        raw = copy_json(item) if original is _MISSING else original
        match entry.kind:
            case "tool_call_item":
                origin = ToolOrigin.from_json_dict(extra.get("tool_origin")) or _plain_origin(raw)
                description, title = extra.get("description"), extra.get("title")
                return ToolCallItem(agent, readable(raw), description=description, title=title, tool_origin=origin)
            case "tool_call_output_item":
                output = output_of(item) if native is _MISSING else native
                origin = ToolOrigin.from_json_dict(extra.get("tool_origin")) or _plain_origin(raw)
                return ToolCallOutputItem(agent, raw, output, tool_origin=origin, custom_data=extra.get("custom_data"))
            case "handoff_output_item":
                source, target = extra.get("source_agent", entry.agent), extra.get("target_agent", entry.agent)
                return HandoffOutputItem(agent, raw, self.graph.agent(source), self.graph.agent(target))
            case "input_item":
                return InputItem(agent, raw, input_id=str(extra.get("input_id", "")))
            case kind:
                return build_run_item(kind, agent, readable(raw))

    def span(self, kind: str, name: str, **facts: Any) -> contextlib.AbstractContextManager[Span | None]:
        """Return a span around a part of this run; without a tracer, a free span of None."""
        return UNTRACED if self.tracer is None else self.tracer.span(kind, name, facts)

    # --- watching ----------------------------------------------------------------------------------------------------

    def show(self, event: StreamEvent) -> None:
        """Send an event to the watcher, if there is one."""
        if self.events is not None:
            self.events.show(event)

    def show_outputs(self, turn: Turn | None, *, all_so_far: bool = False) -> None:
        """Announce the turn's outputs once the turn is complete, or if the run pauses, the outputs present.

        They are announced in call order, never in order of arrival: a history that depends on the clock cannot be
        replayed.
        """
        if self.events is None or turn is None or not (turn.complete or all_so_far):
            return
        for call in turn.calls:
            if call.state == "returned" and call.id not in self.shown_calls:
                self.shown_calls.add(call.id)
                self.show_entries(call.outputs)

    def show_entries(self, entries: Iterable[Entry]) -> None:
        """Announce these entries as run items."""
        for entry in entries if self.events is not None else ():
            event = event_for(self.run_item(entry))
            if event is not None:
                self.show(event)


def usage_of(run: Run) -> Usage:
    """Return the usage of the run so far, nested runs included, from its responses."""
    inside = [usage_of(call.child) for call in run.calls if call.child is not None]
    return sum_usages([*(Usage.from_json(response.usage) for response in run.responses), *inside])
