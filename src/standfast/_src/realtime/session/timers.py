"""Timer of a voice call: wakes it at the end of playback, for a silent server, and at time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from standfast._src.realtime.machine.live_call import LiveCall
from standfast._src.realtime.machine.opaque_connection import OpaqueConnection
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.connections import ConnectionManager

RECYCLE_AGAIN_S = 0.25  # a reply or speech is under way: try again soon, between two turns


class CallTimers:
    """Timer of a voice call."""

    def __init__(self, scope: CallScope, connecting: ConnectionManager, *, looked: Callable[[], None]) -> None:
        self._scope, self._connecting, self._looked = scope, connecting, looked
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def _exchange(self) -> LiveCall:
        return self._scope.hands.exchange

    def stop(self) -> None:
        """Stop the timer, also for requests later in the same loop iteration."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tracker = self._scope.model_config.get("playback_tracker")
        if tracker is not None and tracker.on_change == self.note_playback:
            tracker.on_change = None

    # --- what was played ---------------------------------------------------------------------------------------------

    def follow_tracker(self) -> None:
        """Use the application's playback tracker, if any."""
        tracker = self._scope.model_config.get("playback_tracker")
        if tracker is not None:
            self._exchange.playback.tracked = True
            tracker.on_change = self.note_playback

    def note_playback(self) -> None:
        """Process a report to the tracker."""
        self.ask_tracker()
        self._scope.hands.happen(lambda exchange, now: exchange.listen(now))

    def ask_tracker(self) -> None:
        """Read the tracker's position."""
        tracker = self._scope.model_config.get("playback_tracker")
        if tracker is not None:
            self._exchange.playback.report(tracker.get_state(), self._exchange.received_ms())

    # --- the timer ---------------------------------------------------------------------------------------------------

    def arm_for_playback(self) -> None:
        """Schedule a wake-up for the end of taken audio, unless an earlier one is scheduled."""
        timer = self._timer
        if timer is None or timer.when() > self._exchange.playback.placed_until + 0.1:
            asyncio.get_running_loop().call_soon(self.arm)  # then a burst of it has been taken

    def arm(self) -> None:
        """Look again when something will have been heard, when a server has been silent for too long, or expires."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_over or self._scope.hands.stopped:
            return
        exchange, now = self._exchange, self._scope.hands.now()
        moments = [exchange.playback.ends_at(part.id) for part in exchange.talk.open if part.kind == "spoken"]
        moments.append(self._overdue_at())
        moments.append(self._connecting.recycle_at())
        coming = [moment for moment in moments if moment is not None]
        if coming:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(min(coming), now) + 0.005, self._tick)

    def _overdue_at(self) -> float | None:
        """Return the time at which a silent server counts as overdue, or None if no reply is pending."""
        link, talk = self._exchange.link, self._exchange.talk
        if link is None or isinstance(link, OpaqueConnection) or not link.seeded or link.active is not None:
            return None
        looks = link.search is not None and not link.search.is_over
        waits = (
            link.creating is not None
            or looks
            or any(not ask.ours and ask.by is None and ask.id in link.has for ask in talk.asks)
        )
        if not waits:
            return None
        return self._connecting.last_heard + self._scope.config.get("reply_timeout_s", 10.0)

    def _tick(self) -> None:
        hands = self._scope.hands
        self._timer = None
        if self._is_over or hands.stopped:
            return
        now = hands.now()
        overdue, recycle = self._overdue_at(), self._connecting.recycle_at()
        hands.happen(lambda exchange, now: exchange.listen(now))
        if overdue is not None and now >= overdue:
            self._connecting.last_heard = now
            hands.happen(lambda exchange, now: exchange.overdue(now))
        if recycle is not None and now >= recycle and not self._connecting.recycle():
            self._timer = asyncio.get_running_loop().call_later(RECYCLE_AGAIN_S, self._tick)
            return
        self._looked()
        self.arm()
