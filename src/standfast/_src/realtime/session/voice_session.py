"""A voice session: one call, from the first connection to the last word.

Constructing one does nothing outside the process. Entering acquires, closing releases, in whatever task each happens;
everything in between is owned by the session's one loop. States: new, entering, open, reconnecting, closing, closed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from standfast._src.agents.context import wrapper_of
from standfast._src.agents.hooks import RunHooksBase
from standfast._src.base.errors import (
    ConnectionLostError,
    RealtimeStateError,
    SessionClosedError,
    SettingTypeError,
    UserError,
)
from standfast._src.base.logs import logger
from standfast._src.base.operational_events import emit
from standfast._src.base.type_names import describe_type
from standfast._src.items.usage import Usage
from standfast._src.models.interface import ModelProvider
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.config import (
    DEBOUNCE_CHARS,
    LEASE_TTL_S,
    LEASE_WAIT_S,
    RealtimeRunConfig,
    check_run_config,
)
from standfast._src.realtime.machine.call_items import RealtimeItem
from standfast._src.realtime.machine.events import Do, ReplyWanted, Shown, Typed
from standfast._src.realtime.machine.live_call import LiveCall
from standfast._src.realtime.machine.model_events import RealtimeModelAudioEvent, RealtimeModelEvent
from standfast._src.realtime.machine.model_inputs import (
    RealtimeModelSendAudio,
    RealtimeModelSendEvent,
    RealtimeModelSendInterrupt,
    RealtimeModelSendRawMessage,
)
from standfast._src.realtime.machine.opaque_connection import OpaqueConnection
from standfast._src.realtime.machine.session_settings import RealtimeUserInput
from standfast._src.realtime.machine.transport_interface import (
    RealtimeModel,
    RealtimeModelConfig,
    RealtimeModelListener,
)
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.realtime.machine.wire_format import short_id, typed_content
from standfast._src.realtime.session.agent_switch import AgentSwitch
from standfast._src.realtime.session.approvals import decide
from standfast._src.realtime.session.call_hooks import CallHookRunner
from standfast._src.realtime.session.call_scope import CallScope, merged_config
from standfast._src.realtime.session.call_store import CallStore
from standfast._src.realtime.session.close import SessionCloser
from standfast._src.realtime.session.connections import ConnectionManager
from standfast._src.realtime.session.effects import EffectPerformer, output_guardrails
from standfast._src.realtime.session.entry import Entering, closed_while_connecting
from standfast._src.realtime.session.event_mapping import EventMapper
from standfast._src.realtime.session.event_readers import EventIterator
from standfast._src.realtime.session.lifecycle import Lifecycle, State
from standfast._src.realtime.session.persistence import REFUSED, CallPersistence
from standfast._src.realtime.session.reconciler import CallReconciler, Performer, closed_before
from standfast._src.realtime.session.timers import CallTimers
from standfast._src.realtime.session_events import (
    RealtimeHistoryUpdated,
    RealtimeToolApprovalRequired,
)
from standfast._src.runs.loop.run_scope import Tracer, UnfinishedRun
from standfast._src.sessions.protocol import Session
from standfast._src.tools.worker_threads import WATCH, ThreadWatch

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item

REJECTION_MESSAGE = "Tool execution was not approved."


class RealtimeSession(RealtimeModelListener):
    """A voice call. Made by `RealtimeRunner.run`; use it with `async with`, or `enter` and `close`."""

    def __init__(
        self,
        model: RealtimeModel,
        agent: RealtimeAgent[Any],
        context: Any = None,
        model_config: RealtimeModelConfig | None = None,
        run_config: RealtimeRunConfig | None = None,
        *,
        session: Session | None = None,
        run_id: str | None = None,
        hooks: RunHooksBase[Any, Any] | None = None,
        new_id: Callable[[], str] | None = None,
        tracer: Tracer | None = None,
        provider: Callable[[], ModelProvider] | None = None,
        resumes: bool = False,
    ) -> None:
        config = check_run_config(run_config)
        wrapper = wrapper_of(context)
        memory = None if session is None else _memory(session, config)
        self._scope = scope = CallScope(
            model,
            agent,
            wrapper,
            model_config=merged_config(model_config),
            config=config,
            hooks=hooks,
            memory=memory,
            tracer=tracer,
            provider=provider,
        )
        guardrails = config.get("guardrails_settings") or {}
        talk = VoiceCall(
            run_id or (new_id() if new_id is not None else f"call-{id(self):x}"),
            agent.name,
            session_id=memory.hold.session_id if memory is not None else None,
        )
        exchange = LiveCall(
            talk,
            debounce=guardrails.get("debounce_text_length", DEBOUNCE_CHARS),
            announce=bool(config.get("announce_waiting_calls")),
        )
        exchange.link = None if scope.restores else OpaqueConnection(0)
        self._connecting = ConnectionManager(scope, has_session=session is not None)
        self._connecting.on_lost = self._mark_reconnecting
        self._connecting.on_restored = self._mark_restored
        self._observing = CallHookRunner(scope)
        self._showing = EventMapper(scope, exchange, self._connecting, self._observing)
        self._keeping = CallPersistence(scope, self._connecting, resumes=resumes)
        self._timing = CallTimers(scope, self._connecting, looked=self._showing.release_audio)
        self._connecting.on_written = self._timing.arm
        self._performing = EffectPerformer(scope)
        scope.hands = CallReconciler(
            exchange,
            performers=self._performers(),
            shown=self._publish,
            failed=self._report_failure,
            one_call_at_a_time=config.get("async_tool_calls", True) is False,
        )
        scope.is_fatal, scope.is_refused, scope.has_crashed = self._fatal, self._end_refused, self._end_crashed
        scope.wake_reconciler, scope.error_taken = self._look_again, self._error_taken
        scope.make_sure = self._keeping.make_sure
        scope.after_look = self._showing.release_audio
        scope.after_take = self._timing.arm_for_playback
        exchange.playback.collect = scope.collect_taken
        self._standing = Lifecycle()
        self._error: BaseException | None = None
        """Error that ended the call."""
        self._untold: BaseException | None = None
        """The same, until a reader or a caller has it: then `close` need not raise it (E4)."""
        self._entering = Entering()
        self._listening = False
        self._hear: Callable[[RealtimeModelAudioEvent], None] | None = None
        """Receiver of audio; None before the agent is resolved, and once the session is being closed."""
        self._changing = AgentSwitch(scope)
        self._threads = ThreadWatch()
        self._closing = SessionCloser(
            scope,
            self._standing,
            keeping=self._keeping,
            observing=self._observing,
            threads=self._threads,
            entering=self._entering,
            let_go=self._let_go,
            failure=lambda: self._error,
        )

    def _performers(self) -> dict[str, Performer]:
        """Return the performers by kind of effect."""
        return {
            "run": self._performing.run,
            "settle": self._performing.settle,
            "judge": self._performing.judge,
            "resolve": self._performing.resolve,
            "append": self._keeping.append,
            "save": self._keeping.save,
            "ours": self._keeping.ours,
            "connect": self._connecting.connect,
            "write": self._connecting.write,
        }

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def model(self) -> RealtimeModel:
        """The transport."""
        return self._scope.model

    @property
    def state(self) -> State:
        """State of the session."""
        return self._standing.state

    @property
    def run_id(self) -> str:
        """Id of the call: pass it to `RealtimeRunner.resume` to continue the call in another process."""
        return self._scope.hands.talk.run_id

    @property
    def history(self) -> list[RealtimeItem]:
        """Conversation so far, with interrupted replies as heard."""
        return self._scope.history.items()

    def generated(self, item_id: str) -> str | None:
        """Return the whole text generated for an item of the history, heard or not, even by a previous worker.

        None for an item of another author, and for a reply refused by a guardrail.
        """
        self._exchange.fold()
        talk = self._scope.hands.talk
        part = talk.part(item_id)
        if part is not None:
            return part.text if part.kind == "spoken" and not part.tripped else None
        entries = (entry.extra or {} for entry in reversed(talk.ledger))
        return next((extra.get("generated") for extra in entries if short_id(str(extra.get("id"))) == item_id), None)

    @property
    def current_agent(self) -> RealtimeAgent[Any]:
        """The current agent."""
        return self._scope.agent

    @property
    def pending_approvals(self) -> list[RealtimeToolApprovalRequired]:
        """Tool calls that wait for a person. Empty after closing a call without a record, which drops them."""
        return [] if self._standing.is_over and not self._scope.is_kept else self._showing.questions()

    @property
    def usage(self) -> Usage:
        """Usage of the call so far."""
        return self._scope.wrapper.usage

    @property
    def unfinished(self) -> tuple[UnfinishedRun, ...]:
        """Other unfinished runs of the conversation at the begin of the call, and how they were handled (C15)."""
        return tuple(self._scope.seen.unfinished)

    @property
    def stats(self) -> dict[str, int]:
        """Counters: audio and raw events missed by slow readers, late audio, reconnects."""
        scope = self._scope
        return {
            **scope.stats,
            "late_audio_bytes": scope.hands.stats_late,
            "input_dropped_bytes": self._exchange.hearing.dropped,
        }

    @property
    def _exchange(self) -> LiveCall:
        return self._scope.hands.exchange

    # --- entering ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return await self.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._untold is not None:  # the error of the block is the one to raise
            error.add_note(f"The call had ended with this before: {self._untold!r}")
            self._untold = None
        await self.close()

    async def enter(self, *, connect: bool = True) -> Self:
        """Connect. If anything fails, everything that was acquired is released and the first error is raised (E1).

        Raises RealtimeStateError if the session is closed meanwhile, by another task or by code that the entry runs.

        With `connect=False` a call that was hung up, or lost, is only settled: its waiting calls can be decided, run
        and are stored; `settled` waits for that.
        """
        if self.state != "new":
            raise RealtimeStateError(
                f"this session is {self.state} and cannot be entered", "Make a new one with RealtimeRunner.run()."
            )
        self._standing.move("entering")
        scope = self._scope
        scope.context = contextvars.copy_context()
        scope.context.run(WATCH.set, self._threads)
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            await self._entering.run(self._acquire(connect))
            self._look_again()
        except BaseException as error:
            failure = error
            if self._standing.is_over and (task is None or task.cancelling() == cancelled_before):
                self._untold = None
                failure = self._error or closed_while_connecting()  # closed meanwhile: the rest follows from that
            await self._give_back(failure)
            if failure is error:
                raise
            raise failure from error
        self._standing.move("open")
        scope.show(RealtimeHistoryUpdated(scope.history.items(), scope.info))
        return self

    async def settled(self) -> None:
        """Return when nothing is left to do but what a person must decide: calls have run, everything is stored.

        Raises the error that ended the call, if one did.
        """
        await self._scope.hands.at_rest()
        self._raise_failure()

    async def _acquire(self, connect: bool) -> None:
        """Acquire everything. `close` cancels this; application code may swallow the cancellation, so each step checks
        again.
        """
        try:
            await self._acquire_all(connect)
        except BaseException:
            await self._closing.release_late()
            raise

    async def _acquire_all(self, connect: bool) -> None:
        scope = self._scope
        if scope.memory is not None:
            await self._keeping.begin(scope.memory, connect=connect)
        scope.offer = await scope.resolve(scope.agent, initial=True)
        self._look_again()
        self._hear = self._showing.audio
        if scope.restores:
            scope.offer.session_object(attached=scope.attached)  # settings that cannot be sent are refused before that
        for one in scope.hands.talk.calls:
            await self._performing.offer_of(one)
            self._look_again()
        for question in self._showing.questions():  # a call that was taken over: its questions are asked here again
            scope.show(question)
        if not connect:
            self._start()
            return
        scope.model.add_listener(self)
        self._listening = True
        self._timing.follow_tracker()
        self._start()
        await self._connecting.dial()
        if scope.restores:
            await self._connecting.wait_until_ready()

    def _look_again(self) -> None:
        """Raise if the session was closed, or has failed, while its entry waited for something."""
        self._raise_failure()
        if self._standing.is_over:
            raise closed_while_connecting()

    async def _give_back(self, error: BaseException) -> None:
        """Release everything after a failed entry; further failures are attached to the first error.

        A call that was to be taken over is not hung up: the next attempt finds it unchanged.
        """
        if not self._standing.is_over:
            self._closing.hangs_up = not self._keeping.took_over
        try:
            await asyncio.shield(self._begin_closing())
        except BaseException as second:  # the first error is the one to raise
            error.add_note(f"While releasing what had been acquired, this happened too: {second!r}")

    def _start(self) -> None:
        """Start the session's loop, in the context of its entry (E15)."""
        hands = self._scope.hands
        if hands.task is not None or hands.stopped:
            return
        context = self._scope.context or contextvars.copy_context()
        self._scope.context = context
        hands.task = asyncio.get_running_loop().create_task(self._drive(), context=context.copy())

    async def _drive(self) -> None:
        scope = self._scope
        tracer = scope.tracer
        try:
            if tracer is None:
                await scope.hands.run()
            else:
                with tracer.span("run", scope.agent.name, {"agent": scope.agent, "run_id": self.run_id}):
                    await scope.hands.run()
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = UserError(
                "a tool, guardrail or hook of a voice call cancelled the task that it ran in", "Let it raise instead."
            )
            error.__cause__ = cancelled
            self._end_crashed(error)
        except BaseException as error:
            self._end_crashed(error)

    # --- what people do ----------------------------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        """Raise the error that ended the call, if any."""
        error = self._failure()
        if error is not None:
            raise error

    def _check_open(self) -> None:
        self._raise_failure()
        if self._standing.is_over:
            raise RealtimeStateError(f"this session is {self.state}", "Make a new one with RealtimeRunner.run().")
        if self.state == "new" and self._scope.restores:
            raise RealtimeStateError("this session was not entered", "Use `async with session:` or `await enter()`.")

    async def send_message(self, message: RealtimeUserInput) -> None:
        """Send a user's typed message, and request a reply. With a session, return once the message is saved."""
        self._check_open()
        text, content = typed_content(message)
        hands, memory = self._scope.hands, self._scope.memory
        if memory is not None:  # refused now, not when the model has answered and nothing can be stored
            memory.check_size({"role": "user", "content": list(content) or text})
        if isinstance(self._exchange.link, OpaqueConnection):
            return await self._send_plainly(text, content)
        hands.tell(Typed(text, content))
        await hands.wait_until_saved()
        return None

    async def _send_plainly(self, text: str, content: tuple[Item, ...]) -> None:
        """Send a message through a transport that handles replies itself; raise if it could not be sent."""
        hands = self._scope.hands
        hands.connected = True
        self._start()
        item_id = f"m{hands.talk.claim}x{hands.talk.counter}"
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connecting.waiters[item_id] = waiter
        hands.tell(Typed(text, content))
        await waiter

    async def send_audio(self, audio: bytes, *, commit: bool = False) -> None:
        """Send a piece of a user's speech; `commit` ends the utterance for a server without turn detection."""
        self._check_open()
        if not isinstance(audio, bytes | bytearray | memoryview):
            raise SettingTypeError(f"audio is {describe_type(audio)}", "Give bytes.")
        data = bytes(audio)
        link = self._exchange.link
        if isinstance(link, OpaqueConnection):
            return await self._send_at_once(RealtimeModelSendAudio(data, commit))
        if len(data) % 2 and (link is None or link.in_rate == 48):
            raise SettingTypeError(f"{len(data)} bytes are no whole samples of pcm16", "Give an even number of bytes.")
        frame = self._exchange.speak(data, commit=commit)
        if frame is None or not self._scope.hands.connected or self._scope.hands.in_doubt:
            return self._scope.hands.wake_reconciler()
        self._exchange.sent(frame)
        try:
            await self._connecting.send_frame(frame.body)
        except Exception as error:
            self._connecting.lost(None, f"sending failed: {type(error).__name__}", error)
        if commit:
            self._scope.hands.wake_reconciler()
        return None

    async def commit_audio(self) -> None:
        """End the utterance with the audio sent so far."""
        await self.send_audio(b"", commit=True)

    async def clear_audio(self) -> None:
        """Discard sent audio that is not committed."""
        await self._raw("input_audio_buffer.clear")

    async def _raw(self, kind: str) -> None:
        self._check_open()
        await self._send_at_once(RealtimeModelSendRawMessage({"type": kind}))

    async def _send_at_once(self, event: RealtimeModelSendEvent) -> None:
        """Send an event that no connection state keeps, after confirming the owner of a call in doubt."""
        if self._scope.hands.in_doubt:
            await self._keeping.make_sure()
        await self._scope.model.send_event(event)

    async def create_response(self) -> None:
        """Request a reply now."""
        self._check_open()
        if isinstance(self._exchange.link, OpaqueConnection):
            return await self._raw("response.create")
        self._scope.hands.tell(ReplyWanted())
        return None

    async def interrupt(self) -> None:
        """Stop the model's current reply, and a requested one that has not begun."""
        self._check_open()
        if isinstance(self._exchange.link, OpaqueConnection):
            return await self._send_at_once(RealtimeModelSendInterrupt())
        self._timing.ask_tracker()
        self._scope.hands.happen(lambda exchange, now: exchange.interrupt(now))
        return None

    async def update_agent(self, agent: RealtimeAgent[Any]) -> None:
        """Change the agent. Returns once the model has its settings; raises if the server refuses them."""
        self._check_open()
        if not isinstance(agent, RealtimeAgent):
            raise SettingTypeError(f"{describe_type(agent)} is no voice agent", "Give a RealtimeAgent.")
        if isinstance(self._exchange.link, OpaqueConnection):
            self._scope.hands.connected = True
        self._start()
        await self._changing.ask_for(agent)

    # --- approvals ---------------------------------------------------------------------------------------------------

    async def approve_tool_call(self, call_id: str, *, always: bool = False) -> None:
        """Approve a tool call, and with `always` every later one of the tool. Returns once the decision is saved."""
        await self._decide(call_id, approved=True, always=always, message=None)

    async def reject_tool_call(
        self, call_id: str, *, always: bool = False, rejection_message: str | None = None
    ) -> None:
        """Refuse this call; the model reads the message. Returns when the decision is saved."""
        await self._decide(call_id, approved=False, always=always, message=rejection_message)

    async def _decide(self, call_id: str, *, approved: bool, always: bool, message: str | None) -> None:
        if self._standing.is_over:
            raise RealtimeStateError(
                f"this session is {self.state}", "Decide about calls of an ended call with RealtimeRunner.resume."
            )
        decide(self._scope, call_id, approved=approved, always=always, message=message)
        self._start()
        await self._scope.hands.wait_until_saved()

    # --- what happens ------------------------------------------------------------------------------------------------

    async def on_event(self, event: RealtimeModelEvent) -> None:
        """Process a transport event; also callable by the application, even before entering."""
        hear = self._hear
        if hear is not None and type(event) is RealtimeModelAudioEvent:
            return hear(event)  # what comes most often has the shortest way
        if self._standing.is_over:
            return
        if self._scope.offer is None and not self._scope.restores:
            await self._feed()
            if self._standing.is_over:
                return
        if not self._showing.receive(event):
            self._timing.arm()

    async def _feed(self) -> None:
        """Prepare a session that gets events before it is entered: resolve the agent and start the loop."""
        scope = self._scope
        scope.offer = await scope.resolve(scope.agent, initial=True)
        if self._standing.is_over:
            return
        self._hear = self._showing.audio
        scope.hands.connected = True
        link = self._exchange.link
        if link is not None:
            link.guarded = bool(output_guardrails(scope, scope.agent))
        self._start()

    def _publish(self, found: list[Shown]) -> None:
        self._showing.shown(found)
        for one in found:
            if one.name in ("handoff", "change_refused"):
                self._changing.tell_outcome(one)
            if one.name == "handoff":
                self._observing.handed_over(self._scope.agent_of(one.of), self._scope.agent_of(str(one.more)))
        self._showing.release_audio()
        self._timing.arm()

    def _report_failure(self, effect: Do, error: BaseException) -> None:
        """Report an error of the session's own work to the readers (E4)."""
        if isinstance(error, REFUSED):
            return self._end_refused(error)
        logger.warning("a voice call's %s raised %s", effect.kind, type(error).__name__)
        self._scope.error(error)

    def _end_refused(self, error: BaseException) -> None:
        """End a call owned by another process: readers get this error and no more audio, and the connection is
        closed.
        """
        if self._scope.hands.is_refused:
            return
        self._scope.hands.refuse(error)
        if not isinstance(error, SessionClosedError):  # then this program closed the session; its lease was not lost
            emit("lease_lost", run=self._scope.hands.talk.run_id, reason=type(error).__name__)
        self._fatal(error)
        self._scope.drop_all_audio()
        if not self._standing.is_over:
            self._closing.hangs_up = False
            self._begin_closing()

    def _fatal(self, error: BaseException) -> None:
        """End the call with an error: readers get their queued events, then the error."""
        if self._error is None:
            self._error = error
            # A call that was lost, or is another's, goes on elsewhere; what else ends it is a failure of this program.
            self._untold = None if isinstance(error, (*REFUSED, ConnectionLostError)) else error
        self._connecting.ready.set()
        self._scope.wake_readers()

    def _end_crashed(self, error: BaseException) -> None:
        """End the call after the application's code raised a `BaseException` that ended the session's loop.

        Readers get an `error` event and then the error. The call is not hung up by that: it can be resumed.
        """
        if self._standing.is_over:
            return
        logger.error("a voice call was ended by %s", type(error).__name__)
        self._scope.error(error)
        self._fatal(error)
        self._closing.hangs_up = False
        self._begin_closing()

    def _error_taken(self, error: object) -> None:
        """Note that a reader has taken the `error` event of an error."""
        if error is self._untold:
            self._untold = None

    def _failure(self) -> BaseException | None:
        """Return the error that ended the call, to be raised; None once it was reported and everything is released."""
        untold, self._untold = self._untold, None
        return self._error if self.state != "closed" or self._scope.hands.is_refused else untold

    def _mark_restored(self) -> None:
        if self.state == "reconnecting":
            self._standing.move("open")

    def _mark_reconnecting(self) -> None:
        if self.state == "open":
            self._standing.move("reconnecting")

    # --- reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> EventIterator:
        first, self._scope.first_outlet = self._scope.first_outlet, None
        return EventIterator(
            self._scope,
            first or self._scope.new_outlet(),
            is_over=lambda: self._standing.is_over,
            failure=self._failure,
            close=self.close,
        )

    # --- closing -----------------------------------------------------------------------------------------------------

    async def close(self, *, hang_up: bool = True) -> None:
        """End the call and release everything. May be called again, from any task, during iteration (E3).

        An entry under way is cancelled and awaited first. Raises the error that has ended the call if no reader and no
        caller has got it (E4). With `hang_up=False` only this worker stops: another one can continue the call.
        """
        if not self._standing.is_over:
            self._closing.hangs_up = hang_up  # the first closer decides; leaving the block comes later
        closing = self._begin_closing()
        if self._closing.is_own(asyncio.current_task()):
            return
        await asyncio.shield(closing)
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def _begin_closing(self) -> asyncio.Task[None]:
        """Begin closing: later events of the transport and the clock are ignored."""
        closing = self._closing.begin()
        self._hear = None
        self._timing.stop()
        if self._listening:
            self._scope.model.remove_listener(self)
            self._listening = False
        return closing

    def _let_go(self) -> None:
        """Notify callers waiting for a session event of the session's end."""
        self._changing.let_go()
        for waiter in self._connecting.waiters.values():
            if not waiter.done():
                waiter.set_exception(self._error or closed_before("it was sent"))


def _memory(session: Session, config: RealtimeRunConfig) -> CallStore:
    ttl_s, wait_s = config.get("lease_ttl_s", LEASE_TTL_S), config.get("lease_wait_s", LEASE_WAIT_S)
    return CallStore(session, lease_ttl_s=ttl_s, lease_wait_s=wait_s)
