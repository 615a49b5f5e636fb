"""Carrying plans to a server whose answers an event loop can wait for by itself: no thread is woken for an append.

A connection belongs to the carrier's thread, as in `pipelined`. While the thread has nothing to do, the loop that asks
takes its *turn*: it sends on the thread's connection without waiting, and its own selector tells it that the answer is
there. So an append costs no wake-up of a thread, and none of the loop by one: two of the four ways that it went.

Everything that is not the plain case is the thread's: opening a connection, an answer that comes in pieces or is an
error, one that does not come, what must be undone, what belongs to no loop. The loop then *passes* what it has sent to
the thread, which goes on where it stands. There is one connection and one state, and whoever has the turn has both; so
what was sent first is answered first, and nothing overtakes a write that nobody waits for any more (A13).

A loop may be blocked by its program, or closed, while its turn lasts: whoever else asks gets to the thread, and the
thread takes the turn from the loop after `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from standfast.carrying.pipelined import AT_ONCE_MAX, Active, PipelinedCarrier, Pipelining
from standfast.carrying.requests import Expiring, PutBack, deliver, waiting_in
from standfast.carrying.threads import AnyRequest, Writing
from standfast.sessions.port import Answer, Ask

PATIENCE_S = 0.05
"""How long the thread waits for a loop that has the turn. One whose program does not block it needs far less."""


class Sent(Protocol):
    """Questions that have left, and whose answers can be waited for."""

    connection: socket.socket
    """Where the answers arrive."""
    answer_s: float
    """How long they may take."""

    def arrived(self) -> list[Answer | Exception] | None:
        """The answers, if they are there and nothing is left to do; does not wait. None: `awaited` must go on."""
        ...

    def awaited(self, *, is_overdue: bool) -> list[Answer | Exception]:
        """The answers, waiting for them; or errors in their place, if they take too long or already have."""
        ...


class Lendable(Protocol):
    """A store that can send without waiting."""

    def sent(self, questions: Sequence[Ask]) -> Sent | None:
        """Send these, as far as that needs no waiting. None: nothing was sent, there is no connection for it now."""
        ...


class Inbox(SimpleQueue[Any]):
    """Messages for the thread, and whether it has come to all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen = set[int]()  # and not a count: adding to a set is one step for all threads

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add a message."""
        self.unseen.add(id(message))
        super().put(message, block, timeout)


class LendingCarrier(PipelinedCarrier):
    """Carries plans to a store on a network that can send without waiting (`Lendable`)."""

    def _begin(self) -> None:
        self._lending: Lending | None = None
        super()._begin()

    def _made_inbox(self) -> Inbox:
        return Inbox()

    def _writing(self) -> Writing:
        assert isinstance(self._writes, Inbox)
        self._lending = Lending(self._open_store, self._writes, self._loses_answers, self._under_way)
        return self._lending

    def _queue(self, request: AnyRequest) -> None:
        # Not a read, which has connections of its own; not what goes on without a loop, or may have to be undone.
        is_plain = request.kind == "write" and request.undo is None and not request.detached
        if not is_plain or self._lending is None or not self._lending.is_asked_in_loop(request):
            super()._queue(request)


class Flight:
    """What a loop has sent and has no answers to yet."""

    def __init__(self, sent: Sent, ready: Sequence[Active], late: Callable[[Flight], None]) -> None:
        self.sent, self.ready, self._late = sent, ready, late
        self.deadline = time.monotonic() + sent.answer_s
        self.is_overdue = False
        self._waiting: dict[Expiring, None] = {}

    def wait_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to wait for the answers, as long as they may take."""
        self._waiting = waiting_in(loop, self)

    def stop_waiting(self) -> None:
        """They are there, or somebody else waits for them."""
        self._waiting.pop(self, None)

    def expire(self) -> None:
        """The answers are late; runs in the loop that waits for them."""
        self.stop_waiting()
        self.is_overdue = True
        self._late(self)


class _Ear:
    """One more number for a connection's file, for a loop to be told by.

    The thread may close the connection at any moment. If its own number were among the loop's files then, it could be
    another file's by the time the loop looks. Closed when nobody refers to it: a loop may be closed without a word.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.number = os.dup(connection.fileno())
        self._is_open = True

    def close(self) -> None:
        """Give the number back."""
        if self._is_open:
            self._is_open = False
            os.close(self.number)

    __del__ = close


class Lending(Pipelining):
    """What the thread does, and what a loop does in its place."""

    def __init__(self, open_store: Any, inbox: Inbox, loses_answers: bool, under_way: set[int]) -> None:
        super().__init__(open_store, inbox, loses_answers, under_way)
        self._messages = inbox
        self._turn = threading.Lock()
        """Whoever has it may use the connection, and all that a round changes. It may be given back by another."""
        self._guard = threading.RLock()
        """Who takes a flight, the loop or the thread, is decided under it, and which loop it is that may ask here."""
        self._flight: Flight | None = None
        self._passed: Flight | None = None
        """A flight that the thread has to bring to its end, before anything else."""
        self._home: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._requested: deque[AnyRequest] = deque()
        self._is_scheduled = self._is_over = False
        self._is_broken = False
        """Whether an answer may come on the connection that nobody waits for: it would be taken for another one."""
        self._is_crowded = False
        """Whether several asked at once lately. Then sending waits until the loop has done whatever else it does now:
        what many tasks ask for in one go is sent in one go. Else it does not wait: each round of a loop costs."""
        self._watched: tuple[socket.socket, _Ear] | None = None
        """The connection whose answers the loop is told of, and by what."""

    # --- in the loop ------------------------------------------------------------------------------------------------

    def is_asked_in_loop(self, request: AnyRequest) -> bool:
        """Take a request that this thread's loop will send itself; False if it must go to the thread."""
        loop = asyncio.get_running_loop()
        if (self._home is None or self._home() is not loop) and not self._is_made_home(loop):
            return False
        self._requested.append(request)
        if self._flight is None and not self._is_scheduled:
            if self._is_crowded:
                self._is_scheduled = True
                loop.call_soon(self._send)
            else:
                self._send()
        return True

    def _is_made_home(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this loop may ask here from now on: one at a time, and the first until it is closed."""
        if os.name != "posix":
            return False
        with self._guard:
            home = None if self._home is None else self._home()
            if (home is not None and not home.is_closed()) or self._flight is not None:
                return home is loop
            self._pass_on()  # what the old one asked for and never sent
            self._unwatch(home)
            self._home, self._is_scheduled = weakref.ref(loop), False
            return True

    def _pass_on(self) -> None:
        """Leave to the thread what has not been sent."""
        with self._guard:  # else the thread could end between the two
            while self._requested:
                self._messages.put(self._requested.popleft())

    def _send(self) -> None:
        """Send what was asked for, if the thread has nothing to do."""
        self._is_scheduled = False
        if self._flight is not None or not self._requested:
            return
        if self._messages.unseen or not self._turn.acquire(blocking=False):
            self._pass_on()
            return
        if self._handed:
            self._look_for_orphans()
        if self._messages.unseen or self._passed or self._active or self._owed:
            self._turn.release()
            self._pass_on()
            return
        try:
            while self._requested and len(self._active) < AT_ONCE_MAX:
                self._accept(self._requested.popleft())
            self._is_crowded = len(self._active) > 1
            self._begin_flight(self._ready())
        except BaseException:  # Ctrl-C, at any line of this: nobody knows whether it has left
            self._is_broken = True
            for active in self._active:
                active.request.in_doubt |= active.is_step
            raise
        finally:
            if self._flight is None:
                self._end_turn()

    def _begin_flight(self, ready: Sequence[Active]) -> None:
        store: Any = self._store
        if not ready or store is None:
            return
        try:
            sent = store.sent([active.question for active in ready])
        except Exception as error:
            self._settle(ready, [error] * len(ready))
            return
        if sent is None:
            return
        loop = asyncio.get_running_loop()
        flight = Flight(sent, ready, self._pass)
        if self._watched is None or self._watched[0] is not sent.connection:
            self._unwatch(loop)
            try:
                self._watch(loop, sent.connection)
            except Exception:  # a loop that cannot, or too many files: the thread can
                self._passed = flight
                return
        flight.wait_in(loop)
        self._flight = flight

    def _end_turn(self) -> None:
        """Give the turn back, and wake the thread if there is something for it to do."""
        has_more = self._active or self._owed or self._passed or self._is_broken
        self._turn.release()
        if has_more:
            self._pass_on()
            self._messages.put(_NUDGE)

    def _landed(self) -> None:
        """Something arrived on the connection."""
        with self._guard:
            flight, self._flight = self._flight, None
        loop = asyncio.get_running_loop()
        if flight is None:  # it is not for this loop: the thread reads here, or the server has closed the connection
            self._unwatch(loop)
            return
        flight.stop_waiting()
        answers = None
        try:
            answers = flight.sent.arrived()
        finally:
            if answers is None:
                self._passed = flight
                self._unwatch(loop)
            else:
                self._settle(flight.ready, answers)
            self._end_turn()
        self._send()

    def _wake(self, requests: Sequence[AnyRequest]) -> None:
        deliver(requests, asyncio._get_running_loop())  # the thread has none

    def _pass(self, flight: Flight) -> None:
        """Give up waiting in the loop: the thread sees what can be done."""
        with self._guard:
            if self._flight is not flight:
                return
            self._flight, self._passed = None, flight
        self._end_turn()

    def _watch(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        ear = _Ear(connection)
        # In a context of its own: that of the task which happens to be here would live as long as the connection.
        Context().run(loop.add_reader, ear.number, self._landed)
        self._watched = connection, ear

    def _unwatch(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Tell a loop no more of answers; in that loop, or when it is closed."""
        watched, self._watched = self._watched, None
        if watched is not None:
            if loop is not None and not loop.is_closed():
                loop.remove_reader(watched[1].number)
            watched[1].close()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do what is asked for until told to end."""
        try:
            while not self._is_over:
                message = self._inbox.get()
                self._take_turn()
                if self._is_broken:
                    self._is_broken = False
                    self._close_store()  # it is opened again when it is needed
                if self._passed is not None:
                    flight, self._passed = self._passed, None
                    self._settle(flight.ready, self._awaited(flight))
                self._see(message)
                del message  # or, while this waits for the next, it would keep alive whatever its plan refers to
                self._round()
                while self._active or not self._inbox.empty():
                    self._take_what_is_there()
                    self._round()
                if not self._is_over:
                    self._turn.release()
            self._end()
        finally:
            self._close_store()
            self._leave_loop()

    def _take_turn(self) -> None:
        """Get the turn: a loop that does not give it back, because it is blocked or closed, loses it."""
        while not self._turn.acquire(timeout=PATIENCE_S if self._is_home_open() else 0):
            with self._guard:
                flight, self._flight = self._flight, None
            if flight is not None:
                self._passed = flight
                break
        self._pass_on()  # what was asked for while the loop waited

    def _is_home_open(self) -> bool:
        home = None if self._home is None else self._home()
        return home is not None and not home.is_closed()

    def _awaited(self, flight: Flight) -> Sequence[Answer | Exception]:
        try:
            return flight.sent.awaited(is_overdue=flight.is_overdue)
        except Exception as error:
            return [error] * len(flight.ready)

    def _see(self, message: AnyRequest | PutBack | object | None) -> None:
        """Take a message."""
        self._messages.unseen.discard(id(message))
        if message is None:
            self._is_over = True
            self._pass_on()
        elif message is not _NUDGE:
            self._accept(message)  # type: ignore[arg-type]

    def _take_what_is_there(self) -> None:
        while len(self._active) < AT_ONCE_MAX:
            try:
                message = self._inbox.get(block=False)
            except Empty:
                break
            self._see(message)

    def _leave_loop(self) -> None:
        """Close what a loop was told by, in the loop itself if it is still open."""
        loop = None if self._home is None else self._home()
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._unwatch, loop)
                return
            except RuntimeError:
                pass  # closed meanwhile
        self._unwatch(None)


_NUDGE = object()
"""A message for the thread that says only that there is something to do."""
