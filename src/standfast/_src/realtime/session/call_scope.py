"""Live objects of a voice call in this process: agents, the application's context, readers, the transport."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.hooks import RunHooksBase
from standfast._src.agents.run_config import RunConfig
from standfast._src.models.interface import ModelProvider
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.config import RealtimeRunConfig
from standfast._src.realtime.machine.transport_interface import RealtimeModel, RealtimeModelConfig
from standfast._src.realtime.session.call_history import CallHistory
from standfast._src.realtime.session.call_store import CallStore
from standfast._src.realtime.session.event_queue import AUDIO_BYTES_MAX, CONTROL_MAX, BoundedEventQueue, raw_size
from standfast._src.realtime.session.reconciler import CallReconciler
from standfast._src.realtime.session.resolved_agent import ResolvedVoiceAgent, resolve
from standfast._src.realtime.session_events import (
    RealtimeAudio,
    RealtimeError,
    RealtimeEventInfo,
    RealtimeRawModelEvent,
    RealtimeSessionEvent,
)
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.loop.run_scope import Seen, Tracer
from standfast._src.tools.tool_call import ConcurrencyLimit

if TYPE_CHECKING:
    from standfast._src.realtime.machine.model_events import RealtimeModelEvent


class CallScope:
    """Live side of a voice call."""

    hands: CallReconciler
    offer: ResolvedVoiceAgent | None = None
    """Resolved current agent; None before the session is entered or fed."""

    def __init__(
        self,
        model: RealtimeModel,
        agent: RealtimeAgent[Any],
        wrapper: RunContextWrapper[Any],
        *,
        model_config: RealtimeModelConfig,
        config: RealtimeRunConfig,
        hooks: RunHooksBase[Any, Any] | None = None,
        memory: CallStore | None = None,
        tracer: Tracer | None = None,
        provider: Callable[[], ModelProvider] | None = None,
    ) -> None:
        self.model, self.wrapper, self.hooks = model, wrapper, hooks
        self.model_config, self.config = model_config, config
        self.memory, self.tracer, self.provider = memory, tracer, provider
        self._graph = AgentGraph(cast("Agent[Any]", agent))  # it only asks for names, handoffs and tools
        self.info = RealtimeEventInfo(wrapper)
        self.history = CallHistory()
        self.base = {**config.get("model_settings", {}), **(model_config.get("initial_model_settings") or {})}
        if "url" in model_config and self.restores:
            # An address names its model, or its server has one: a session that says another is refused.
            self.base.setdefault("model_name", None)
        self.offers: dict[str, ResolvedVoiceAgent] = {}
        """Resolved agent at the arrival of each open call, by call id (E5)."""
        self.changing: dict[int, ResolvedVoiceAgent] = {}
        execution = config.get("tool_execution") or {}
        limit = execution.get("max_function_tool_concurrency")
        self.places = ConcurrencyLimit(limit)
        self.context: contextvars.Context | None = None
        self.raw_events = config.get("raw_events", True)
        self.outlets: list[BoundedEventQueue] = []
        self.first_outlet: BoundedEventQueue | None = self.new_outlet()
        """Queue of events before the first iterator, which reads it."""
        self.stats: dict[str, int] = {"audio_dropped_bytes": 0, "raw_events_dropped": 0, "reconnects": 0}
        self.run_config = RunConfig()
        self.seen = Seen()
        """The unfinished runs of the conversation that were there when the call began (C15)."""
        self.may_be_over = False
        """True if a reader at the end of its queue should check for the end of the call."""
        self.stream_ended = False
        """True once the transport reported its end."""
        self.is_fatal: Callable[[BaseException], None] = lambda error: None
        self.is_refused: Callable[[BaseException], None] = lambda error: None
        """Called when the call turns out to be another's: nothing of it is said, stored or begun here any more."""
        self.has_crashed: Callable[[BaseException], None] = lambda error: None
        """Called when code of the application raised what is no `Exception`: the call ends."""
        self.wake_reconciler: Callable[[], None] = lambda: None
        """Raises if the session was closed, or has failed, while its entry waited for something."""
        self.refuse_late: Callable[[], Awaitable[None]] = no_memory
        """Raises if the session is over, and closes a connection that opened too late."""
        self.error_taken: Callable[[object], None] = lambda error: None
        """Called when a reader takes an `error` event."""
        self.make_sure: Callable[[], Awaitable[None]] = no_memory
        """Returns when the call is certainly still ours (C13)."""
        self.after_take: Callable[[], None] = lambda: None
        """Called at the first audio taken after a look: something will have been heard."""
        self.after_look: Callable[[], None] = lambda: None
        """Called when the output guardrails have looked: audio that was held may be heard."""

    @property
    def attached(self) -> bool:
        """True if the call belongs to a different connection; the present connection listens and steers."""
        return bool(self.model_config.get("call_id"))

    @property
    def is_kept(self) -> bool:
        """True if a record keeps waiting calls after the session is closed."""
        return self.memory is not None and self.memory.store is not None

    @property
    def restores(self) -> bool:
        """True if the transport carries frames, so that the session itself can restore a conversation."""
        return bool(getattr(self.model, "restores", False))

    @property
    def agent(self) -> RealtimeAgent[Any]:
        """The current agent."""
        return self.agent_of(self.hands.talk.agent)

    def agent_of(self, key: str) -> RealtimeAgent[Any]:
        """Return the agent of a name in the call."""
        return cast("RealtimeAgent[Any]", self._graph.agent(key))

    def key_of(self, agent: RealtimeAgent[Any]) -> str:
        """Return the name of an agent in the call."""
        return self._graph.key(cast("Agent[Any]", agent))

    async def resolve(self, agent: RealtimeAgent[Any], *, initial: bool = False) -> ResolvedVoiceAgent:
        """Resolve an agent's tools, handoffs and settings."""
        return await resolve(
            agent,
            self.wrapper,
            base=self.base,
            initial=self.model_config.get("initial_model_settings") if initial else None,
            tracing_disabled=bool(self.config.get("tracing_disabled")),
            attached=self.attached,
        )

    # --- readers -----------------------------------------------------------------------------------------------------

    def new_outlet(self) -> BoundedEventQueue:
        """Create the queue of a new reader, for every event from now on."""
        outlet = BoundedEventQueue(
            audio_bytes_max=self.config.get("audio_buffer_bytes", AUDIO_BYTES_MAX),
            control_max=self.config.get("event_buffer_count", CONTROL_MAX),
            raw_audio=self.raw_events,
            dropped=self._note_dropped,
            error_taken=lambda error: self.error_taken(error),
            bytes_per_ms=lambda: self.hands.exchange.out_rate,
        )
        self.outlets.append(outlet)
        return outlet

    def forget_outlet(self, outlet: BoundedEventQueue) -> None:
        """Remove the queue of a finished reader."""
        if outlet in self.outlets:
            self.collect_taken()
            self.outlets.remove(outlet)

    def show(self, event: RealtimeSessionEvent) -> None:
        """Put an event into every reader's queue."""
        for outlet in self.outlets:
            outlet.put(event)

    def show_raw(self, event: RealtimeModelEvent) -> None:
        """Put a raw transport event into every reader's queue, if raw events are wanted."""
        if self.raw_events:
            shown, size = RealtimeRawModelEvent(event, self.info), raw_size(event)
            for outlet in self.outlets:
                outlet.put_raw(shown, size)

    def error(self, error: object) -> None:
        """Show an error to the readers; the call continues."""
        self.show(RealtimeError(error, self.info))

    def drop_audio(self, item_id: str) -> None:
        """Drop an item's audio from all queues."""
        for outlet in self.outlets:
            outlet.forget_audio(item_id)

    def drop_all_audio(self) -> None:
        """Drop all audio from all queues."""
        for outlet in self.outlets:
            outlet.forget_audio(None)

    def wake_readers(self) -> None:
        """Let every reader look again: the session ends."""
        self.may_be_over = True
        for outlet in self.outlets:
            outlet.wake()

    def _note_dropped(self, dropped: list[RealtimeAudio]) -> None:
        """Record audio dropped by a slow reader as unheard, unless another reader has taken it or still can."""
        exchange = self.hands.exchange
        self.collect_taken()  # what was taken before it has no gaps
        for event in dropped:
            size = len(event.audio.data)
            self.stats["audio_dropped_bytes"] += size
            buffer = exchange.buffers.get(event.item_id)
            was_taken = buffer is None or event.end <= buffer.taken_bytes
            if not was_taken and not any(outlet.holds(event) for outlet in self.outlets):
                exchange.playback.miss(event.item_id, size / exchange.out_rate)

    def take(self, event: RealtimeAudio, before: RealtimeAudio | None) -> None:
        """Record the first audio of a stretch taken by a reader: its playback begins now.

        The rest of a stretch is only noted at its reader (`BoundedEventQueue.taken`), and collected at the next query
        about heard audio. `before` is the end of the reader's stretch of another item.
        """
        if before is not None:
            self._reach(before, before.end)
        self._reach(event, len(event.audio.data))  # what lies before it may have been dropped

    def _reach(self, event: RealtimeAudio, at_most: int) -> None:
        """Advance an item's playback to a reader's position, by at most `at_most` bytes taken before it."""
        exchange, item_id = self.hands.state, event.item_id
        buffer = exchange.buffers.get(item_id)
        if buffer is None:
            return  # it is history: its heard duration is no longer needed
        new = event.end - buffer.taken_bytes
        if new <= 0:
            return  # another reader was first
        buffer.taken_bytes = event.end
        taken = exchange.playback.taken
        is_first = not taken
        taken[item_id] = taken.get(item_id, 0) + min(new, at_most)
        if is_first:
            exchange.playback.since(asyncio.get_running_loop().time())
            self.after_take()

    def collect_taken(self) -> None:
        """Let the timeline have what readers took since their stretches began: nothing in between was dropped."""
        for outlet in self.outlets:
            event, outlet.taken = outlet.taken, None
            if event is not None:
                self._reach(event, event.end)

    def book(self) -> ApprovalBook:
        """Return all decisions of the call."""
        return self.wrapper.approvals


async def no_memory() -> None:
    """Return at once: a call without a session cannot be taken over by another process."""


def merged_config(options: Mapping[str, Any] | None) -> RealtimeModelConfig:
    """The connection's options as a dict of their own."""
    made: RealtimeModelConfig = dict(options or {})  # type: ignore[assignment]
    return made
