"""Connections of a voice call: connect, send missing frames, lose a connection and make the next (E13)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from standfast._src.base.errors import ConnectionLostError, ConnectionRefusedByServerError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.logs import logger
from standfast._src.realtime.machine.connection_state import ConnectionState
from standfast._src.realtime.machine.events import Delegated, Do, Frame, Removed, Shown
from standfast._src.realtime.machine.model_inputs import RealtimeModelSendRawMessage
from standfast._src.realtime.machine.opaque_connection import OpaqueConnection
from standfast._src.realtime.machine.transport_interface import FrameTransport, RealtimeModel
from standfast._src.realtime.machine.wire_format import seeds
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.effects import output_guardrails
from standfast._src.realtime.session_events import RealtimeConnectionLost, RealtimeReconnected

READY_TIMEOUT_S = 15.0  # a server confirms settings at once; one that is silent so long will not, and the caller waits


class ConnectionManager:
    """Successive connections of a voice call."""

    def __init__(self, scope: CallScope, *, has_session: bool) -> None:
        self._scope = scope
        policy = scope.config.get("reconnect") or {}
        self.reconnects = bool(policy.get("enabled", has_session)) and scope.restores
        self._attempts = policy.get("max_attempts", 8)
        self._first_s, self._most_s = policy.get("first_delay_s", 0.2), policy.get("max_delay_s", 10.0)
        self._recycle_s = policy.get("recycle_before_s", 60.0)
        self.history: list[Item] = []
        """History of the session at the begin or takeover of the call."""
        self.history_upto = 0
        self._early: list[Mapping[str, Any]] = []
        self._dialling = False
        self._announced = 1
        self._cut: list[str] = []
        self._gap: str | None = None
        self._said_again = 0
        self.ready: asyncio.Event = asyncio.Event()
        self.last_heard = 0.0
        self.on_lost: Callable[[], None] | None = None
        self.on_written: Callable[[], None] = lambda: None
        """Called when everything has been sent: from now on the server is waited for."""
        self.on_restored: Callable[[], None] | None = None
        self.waiters: dict[str, asyncio.Future[None]] = {}
        """Callers waiting until a message is sent, if only the transport can tell."""
        self._failures: dict[str, int] = {}

    # --- making one --------------------------------------------------------------------------------------------------

    async def dial(self) -> None:
        """Connect and let the call have the connection."""
        scope = self._scope
        model = scope.model
        assert scope.offer is not None
        guarded = bool(output_guardrails(scope, scope.offer.agent))
        if not isinstance(model, FrameTransport):
            options = {**scope.model_config, "initial_model_settings": scope.offer.settings}
            # What is told while it connects is part of the call already.
            link = OpaqueConnection(scope.hands.talk.epoch + 1, guarded=guarded)
            scope.hands.exchange.open(link, scope.hands.now())
            await model.connect(options)  # type: ignore[arg-type]
            await scope.refuse_late()
            scope.hands.connected = True
            return
        self._dialling = True
        try:
            await model.dial(scope.model_config)
            await scope.refuse_late()
            self._begin_connection(guarded)
        finally:
            self._dialling = False

    def _begin_connection(self, guarded: bool) -> None:
        scope = self._scope
        assert scope.offer is not None
        link = ConnectionState(
            scope.hands.talk.epoch + 1,
            scope.offer.session_object(attached=scope.attached),
            [] if scope.attached else seeds(self.history, self._own_items()),
            self.history_upto,
            scope.attached,
            guarded,
        )
        before = scope.hands.exchange.link_before
        scope.hands.happen(lambda exchange, now: exchange.open(link, now))
        if before is not None:
            self._said_again = sum(len(data) for _, data, _ in link.pending)
        scope.hands.connected = True
        self.last_heard = scope.hands.now()
        early, self._early = self._early, []
        for frame in early:
            self.receive(frame)

    def _own_items(self) -> list[tuple[str, Item]]:
        """Return this call's items in the session at the start of this process, with their ids."""
        own = self._scope.hands.talk.ledger[: self.history_upto]
        return [(str((entry.extra or {}).get("id")), entry.item) for entry in own]

    async def wait_until_ready(self) -> None:
        """Wait until the server has accepted the settings; raise its refusal."""
        exchange = self._scope.hands.exchange
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            self._scope.wake_reconciler()
            link = exchange.link
            if link is None:
                raise ConnectionLostError(
                    "the connection was lost while the session was being entered", "Enter a new session."
                )
            if link.ready:
                return
            if link.refused is not None:
                raise settings_refused_error(link.refused)
            self.ready.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectionRefusedByServerError(
                    f"the server did not confirm the settings within {READY_TIMEOUT_S:.0f} s",
                    "Look whether the address is that of a realtime server.",
                )
            # Not `wait_for`: on Python 3.11 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.ready.wait()

    async def connect(self, _: Do) -> None:
        """Make a new connection after one was lost, with growing waits; past the bound the call ends."""
        scope, delay = self._scope, self._first_s
        failure: Exception | None = None
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(delay)
                delay = min(delay * 2, self._most_s)
            try:
                with contextlib.suppress(Exception):
                    await scope.model.close()
                scope.offer = await scope.resolve(scope.agent, initial=scope.hands.talk.epoch == 0)
                await self.dial()
            except Exception as error:
                if scope.hands.stopped:
                    raise
                failure = error
                logger.info("a voice call could not connect again: %s", type(error).__name__)
                continue
            scope.stats["reconnects"] += 1
            return
        lost = ConnectionLostError(
            f"the connection was lost and {self._attempts} attempts to make a new one failed",
            "Look whether the server can be reached, then take the call over with RealtimeRunner.resume.",
        )
        lost.__cause__ = failure
        scope.is_fatal(lost)
        await asyncio.Event().wait()  # it stays due until the session is closed

    # --- what is received --------------------------------------------------------------------------------------------

    def receive(self, frame: Mapping[str, Any]) -> None:
        """Process a server frame other than a delta."""
        scope = self._scope
        exchange = scope.hands.exchange
        if exchange.link is None:
            if self._dialling:
                self._early.append(frame)
            return  # else an old connection's
        self.last_heard = scope.hands.now()
        was_seeded = exchange.link.seeded
        scope.hands.happen(lambda exchange, now: exchange.receive(frame, now))
        link = exchange.link
        if link is None:
            return
        if (link.ready or link.refused is not None) and not self.ready.is_set():
            self.ready.set()
        is_whole = link.seeded if link.search is None else link.ready and link.search.is_over
        if is_whole and link.epoch > self._announced and (not was_seeded or link.attached):
            self._announce_restored(link)

    def _announce_restored(self, link: ConnectionState) -> None:
        scope = self._scope
        self._announced = link.epoch
        cut, self._cut = self._cut, []
        said, self._said_again = self._said_again, 0
        gap, self._gap = self._gap, None
        scope.show(RealtimeReconnected(len(link.left), said / link.in_rate, cut, gap, scope.info))
        if self.on_restored is not None:
            self.on_restored()

    def note(self, one: Shown) -> None:
        """Collect facts for the next `reconnected` event."""
        if one.name == "cut_off":
            self._cut.append(one.of)
        elif one.name == "gap":
            self._gap = one.of

    def lost(self, code: int | None, reason: str | None, error: BaseException | None = None) -> None:
        """Handle the loss of the connection: make the next one, or end the call."""
        scope = self._scope
        link = scope.hands.exchange.link
        if link is None or scope.hands.stopped:
            return
        scope.hands.connected = False
        self.ready.set()
        if link.refused is not None or (not link.ready and link.epoch == 1):
            scope.hands.happen(lambda exchange, now: exchange.lose(now))
            return  # entering says so
        scope.hands.happen(lambda exchange, now: exchange.lose(now))
        if self.reconnects:
            scope.show(RealtimeConnectionLost(code, reason, scope.info))
            scope.hands.connects = True
            if self.on_lost is not None:
                self.on_lost()
            scope.hands.wake_reconciler()
            return
        if code == 1000:
            scope.stream_ended = True  # the server hung up in order
            scope.wake_readers()
            return
        lost = ConnectionLostError(
            f"the connection of the call was lost (code {code}{', ' + reason if reason else ''})",
            "Give the call a session, or reconnect={'enabled': True}, so that it goes on with a new connection.",
        )
        lost.code = code
        lost.__cause__ = error
        scope.is_fatal(lost)

    # --- what is sent ------------------------------------------------------------------------------------------------

    async def write(self, effect: Do) -> None:
        """Send all missing frames, in order."""
        scope = self._scope
        while True:
            link = scope.hands.exchange.link
            if link is None or not scope.hands.connected or effect.key != f"write/{link.epoch}":
                return
            if scope.hands.in_doubt:
                return  # it is due again once the store has confirmed the owner of the call
            frames = scope.hands.frames()
            if not frames:
                self.last_heard = max(self.last_heard, scope.hands.now())
                return self.on_written()
            # A history is sent in one go: nothing that happens meanwhile changes the order of its items.
            batch = [frames[0]]
            if frames[0].key.startswith("item/"):
                batch = [frame for frame in frames if frame.key.startswith("item/")]
            for frame in batch:
                if scope.hands.exchange.link is not link or scope.hands.in_doubt or not await self._send(link, frame):
                    return

    async def _send(self, link: ConnectionState, frame: Frame) -> bool:
        scope = self._scope
        if isinstance(link, OpaqueConnection):
            return await self._send_plainly(link, frame)
        # Counted before it leaves: a connection that cannot send is lost, and with it what was being sent.
        scope.hands.exchange.sent(frame)
        try:
            await self.send_frame(frame.body)
        except Exception as error:
            if scope.hands.exchange.link is link:
                self.lost(None, f"sending failed: {type(error).__name__}", error)
            return False
        return True

    async def send_frame(self, body: dict[str, Any]) -> None:
        """Send a frame over the connection."""
        kind = str(body["type"])
        rest = {name: value for name, value in body.items() if name != "type"}
        await self._scope.model.send_event(RealtimeModelSendRawMessage({"type": kind, "other_data": rest}))

    async def _send_plainly(self, link: OpaqueConnection, frame: Frame) -> bool:
        """Send through a transport that handles replies itself. A failed send is retried; a tool call never
        runs again.
        """
        scope = self._scope
        kind, _, rest = frame.key.partition("/")
        turn = link.turn
        try:
            if kind == "note":
                # Only if no newer reply began: a transport that cannot promise that sends nothing.
                sent = await scope.model.send_event_if(frame.body, lambda: link.turn == turn)
                if not sent and type(scope.model).send_event_if is RealtimeModel.send_event_if:
                    scope.error(_cannot_tell(scope.model))
            else:
                await scope.model.send_event(frame.body)
        except Exception as error:
            return await self._not_sent(link, frame, error)
        link.note_sent(frame.key, frame.body)
        self._failures.pop(frame.key, None)
        if kind == "settings":
            link.sending, link.confirmed = None, int(rest)
            link.applied = link.updates.get(int(rest), link.applied)
            scope.hands.happen(lambda exchange, now: [])
        elif kind in ("item", "note", "ask"):
            scope.hands.tell(Delegated(rest))
        waiter = self.waiters.pop(rest, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        return True

    async def _not_sent(self, link: OpaqueConnection, frame: Frame, error: Exception) -> bool:
        scope = self._scope
        kind, _, rest = frame.key.partition("/")
        waiter = self.waiters.pop(rest, None)
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)  # raised in the sender, which may send the message again
            scope.hands.tell(Removed(rest))
            return True
        scope.error({"message": f"Sending failed: {frame.key}", "error": error})
        if kind == "settings":
            number = int(rest)
            scope.hands.happen(lambda exchange, now: exchange.refuse_change(number, error, None, now))
            return True
        if kind != "item":
            link.note_sent(frame.key, frame.body)
            return True
        count = self._failures[frame.key] = self._failures.get(frame.key, 0) + 1
        await asyncio.sleep(min(self._first_s * 2 ** (count - 1), self._most_s))
        return True  # it is due again

    # --- time --------------------------------------------------------------------------------------------------------

    def recycle_at(self) -> float | None:
        """Return the loop time for a new connection, before the provider ends this one; None if not needed."""
        link = self._scope.hands.exchange.link
        if link is None or not self.reconnects or link.expires_at is None or link.attached:
            return None
        left = link.expires_at - time.time() - self._recycle_s
        return self._scope.hands.now() + left

    def recycle(self) -> bool:
        """Make a new connection between two turns; whether now is such a moment."""
        exchange = self._scope.hands.exchange
        link, talk = exchange.link, exchange.talk
        if link is None or link.active or link.creating or link.speech or link.spoke or link.pending or talk.asks:
            return False
        if any(one.running for one in talk.calls) or any(part.is_playing for part in talk.open):
            return False
        self.lost(1001, "recycled before the provider's time limit")
        return True


def _cannot_tell(model: RealtimeModel) -> UserError:
    """A transport without conditional sends: the reply was stopped, and the model does not know why."""
    return UserError(
        f"{type(model).__name__} has no conditional sends: the model was not told that a guardrail refused its reply",
        "Override send_event_if: ask the predicate where the event leaves, and say whether it was sent.",
    )


def settings_refused_error(error: object) -> ConnectionRefusedByServerError:
    """Build the error for a server's refusal of the first settings."""
    said = error.get("message") if isinstance(error, dict) else error
    made = ConnectionRefusedByServerError(f"the server refused the settings: {said}", "Correct the model settings.")
    made.__cause__ = error if isinstance(error, BaseException) else None
    return made
