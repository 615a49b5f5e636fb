"""What a run in this process has besides its data: agents, the application's context, hooks, whoever watches.

None of it is saved. The typed objects a model gave and the values tools returned are remembered beside the JSON that
the run keeps of them, so that a user in the same process sees the very objects, and a user after a resume sees the
JSON.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from standfast.driver.agent_graph import AgentGraph
from standfast.driver.event_buffer import Watch
from standfast.driver.session_hold import Conversation
from standfast.engine.run import Entry, Run
from standfast.ground.jsonvalue import copy_json
from standfast.words.item_kinds import shown
from standfast.words.items import (
    HandoffOutputItem,
    InputItem,
    ModelResponse,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOrigin,
    readable,
)
from standfast.words.stream_events import event_for
from standfast.words.usage import Usage

logger = logging.getLogger("standfast")

_MISSING: Any = object()
UNTRACED: Any = contextlib.nullcontext()


class Span(Protocol):
    """Something a run does, as whoever traces sees it."""

    def note(self, **facts: Any) -> None:
        """Add what is known by now; `error` is a failure that was not raised."""
        ...


class Tracer(Protocol):
    """Whoever traces runs. What a span is called and which facts it keeps is their choice, not the driver's."""

    def span(self, kind: str, name: str, facts: Mapping[str, Any]) -> contextlib.AbstractContextManager[Span]:
        """A span of this kind ("run", "model", "tool", "handoff", "guardrail"), the current one inside `with`."""
        ...

    def under(self, config: Any) -> Tracer | None:
        """Whoever traces a nested run of this config."""
        ...


class Live:
    """The live side of one run."""

    def __init__(
        self,
        *,
        graph: AgentGraph,
        wrapper: Any,
        config: Any,
        hooks: Any = None,
        conversation: Conversation | None = None,
        watch: Watch | None = None,
        error_handlers: Any = None,
        given_input: Any = None,
        tracer: Tracer | None = None,
        provider: Any = None,
        invocation: Any = None,
    ) -> None:
        self.graph = graph
        self.wrapper = wrapper
        self.config = config
        self.hooks = hooks
        self.conversation = conversation
        self.watch = watch
        self.error_handlers = error_handlers or {}
        self.given_input = given_input
        self.tracer = tracer
        self.provider = provider
        self.invocation = invocation
        self.history: list[dict[str, Any]] = []
        """What the session held when the run began, or was resumed."""
        self.history_tail = 0
        """How much of the run's own ledger that history already contains."""
        self.final_output: Any = None
        self.responses: list[ModelResponse] = []
        self.input_results: list[Any] = []
        self.output_results: list[Any] = []
        self.tool_input_results: list[Any] = []
        self.tool_output_results: list[Any] = []
        self.tripped: BaseException | None = None
        self.tenure: str | None = None
        """The agent whose start hooks have been called."""
        self.shown_agent: str | None = None
        self.left_out: list[Any] = []
        """Items of a client-owned history that no provider would accept: left out of requests, not deleted (C8)."""
        self.cache: dict[Any, Any] = {}
        self.spawn: Any = None
        """Makes the execution of a nested run; set by the one this run belongs to."""
        self.children: dict[str, Live] = {}
        """The live side of nested runs that are paused in this process, by call id."""
        self._originals: dict[int, tuple[Any, Any, Any]] = {}
        self._views: dict[int, tuple[Entry, RunItem]] = {}

    # --- items -------------------------------------------------------------------------------------------------------

    def remember(self, item: dict[str, Any], original: Any = _MISSING, native: Any = _MISSING) -> None:
        """Keep the typed object or the native value beside its JSON (held here too, so that its id is its own)."""
        if original is item:
            original = _MISSING
        if original is not _MISSING or native is not _MISSING:
            self._originals[id(item)] = (item, original, native)

    def original(self, item: dict[str, Any]) -> Any:
        """The object the model gave for this item, in this process; else the item, readable like one."""
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
        raw = copy_json(item) if original is _MISSING else original  # what a user changes is theirs, not history
        match entry.kind:
            case "tool_call_item":
                return ToolCallItem(
                    agent, readable(raw), description=extra.get("description"), title=extra.get("title")
                )
            case "tool_call_output_item":
                output = item.get("output") if native is _MISSING else native
                origin = ToolOrigin.from_json_dict(extra.get("tool_origin"))
                return ToolCallOutputItem(agent, raw, output, tool_origin=origin, custom_data=extra.get("custom_data"))
            case "handoff_output_item":
                source, target = extra.get("source_agent", entry.agent), extra.get("target_agent", entry.agent)
                return HandoffOutputItem(agent, raw, self.graph.agent(source), self.graph.agent(target))
            case "input_item":
                return InputItem(agent, raw, input_id=str(extra.get("input_id", "")))
            case kind:
                return shown(kind, agent, readable(raw))

    def span(self, kind: str, name: str, **facts: Any) -> contextlib.AbstractContextManager[Span | None]:
        """A span around something this run does, for whoever traces; None, and nothing spent, where nobody does."""
        return UNTRACED if self.tracer is None else self.tracer.span(kind, name, facts)

    # --- watching ----------------------------------------------------------------------------------------------------

    def show(self, event: Any) -> None:
        """Let a watcher, if there is one, see this."""
        if self.watch is not None:
            self.watch.show(event)

    def show_entries(self, entries: Iterable[Entry]) -> None:
        """Announce these entries as run items."""
        if self.watch is None:
            return
        for entry in entries:
            event = event_for(self.run_item(entry))
            if event is not None:
                self.watch.show(event)


def usage_of(run: Run) -> Usage:
    """What the run has used so far, nested runs included, as its responses say."""
    total = Usage()
    for response in run.responses:
        total.add(Usage.from_json(response.usage))
    for call in run.turn.calls if run.turn is not None else ():
        if call.child is not None:
            total.add(usage_of(call.child))
    return total
