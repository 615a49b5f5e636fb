"""Carrying a write in the event loop that asks for it, over the writing thread's own connection.

The way into a thread and back wakes two sleepers more than the server does, and on idle cores that takes longer than
all rules together. So where nothing else is under way, the loop that asks sends the question itself, without waiting,
and its selector tells it of the answer. Everything else is the thread's: what comes while an answer is awaited, a
question that did not leave whole, an answer that did not come whole, an error, a second question, a caller who left.

Two things keep the thread and the loops apart:

- **The turn.** Whoever has this lock has the store, and what is under way; the thread gives it back only while it waits
  for its next message. A loop takes it without waiting, and never holds it while it waits for the server.
- **What is lent.** A question that a loop has sent stands in `lent` until somebody takes its answer, under the turn.
  The thread does so, by waiting for it, whenever it is woken. So a loop that stands still, ends, or was told to leave
  keeps nobody waiting, and whoever finds that an answer is not for it wakes the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Protocol, cast

import msgspec

from standfast._src.base.errors import OutcomeUnknownError, SessionClosedError, StandfastError
from standfast._src.sessions.client.pipeline import AT_ONCE_MAX, Active, AnyRequest, Inbox, Pipeline, question_of
from standfast._src.sessions.client.requests import CompensationMessage, deliver, waiting_in
from standfast._src.sessions.client.threaded_executor import LAST_WAIT_S, PipelinedExecutor
from standfast._src.sessions.storage import Answer, Ask, Store

PATIENCE_S_MAX = 1.0
"""How long a loop waits for an answer before the thread does, at most; the thread waits as long as it always does."""


class SentQuestions(Protocol):
    """Questions that were sent, and whose answers nobody has taken yet."""

    is_sent: bool
    """Whether all of it has left; if not, no answer comes before `finish` has sent the rest."""
    patience_s: float
    """How long to wait for a selector's word before somebody should look."""

    def take(self) -> list[Answer | Exception] | None:
        """The answers, if they have come whole; what is missing is for `finish`. Never waits."""
        ...

    def finish(self) -> list[Answer | Exception]:
        """The answers, waited for; whatever is needed for them is done."""
        ...


class Line(Protocol):
    """A connection whose answers a selector can wait for."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


class Lends(Protocol):
    """A store that can be asked without waiting for the answer."""

    def line(self, count: int) -> Line | None:
        """Its connection, the same object for as long as it is the same; None: it cannot be asked so many things so."""
        ...

    def begin(self, questions: Sequence[Ask]) -> SentQuestions | None:
        """Send what asks for all of it, as far as that goes without waiting. None: nothing was sent, ask otherwise."""
        ...

    def break_off(self) -> None:
        """Close the connection: what comes over it now is nobody's answer."""
        ...


class LineWatch:
    """A loop's look at a line, through a descriptor of its own.

    Of its own, because the thread may close the line at any moment, and its number be somebody else's: a selector that
    still knew it would then refuse that one.
    """

    _fd = -1

    def __init__(self, loop: asyncio.AbstractEventLoop, line: Line, arrived: Callable[[LineWatch], None]) -> None:
        self.loop, self.line = loop, line
        self._fd = os.dup(line.fileno())
        try:
            is_blocking = os.get_blocking(self._fd)
            # In a context of nobody's: this stays for longer than the request that is the first to need it.
            Context().run(loop.add_reader, self._fd, arrived, self)
            # uvloop makes what it watches non-blocking, and with it the line, which shares that with its duplicate. The
            # thread would then take an answer that has not come yet for one whose time is up.
            os.set_blocking(self._fd, is_blocking)
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Look no more; in its loop."""
        if self._fd >= 0:
            self.loop.remove_reader(self._fd)
            self._close()

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to."""
        return self._fd < 0

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def __del__(self) -> None:  # its loop was closed, and has forgotten it
        if self._fd >= 0:
            self._close()


class Lent(msgspec.Struct, eq=False):
    """A round whose questions a loop has sent."""

    ready: list[Active]
    begun: SentQuestions
    watch: LineWatch


TAKE_BACK: Any = object()

"""A message to the thread: look after what is lent, or was left half done."""


class CallerLoopExecutor(PipelinedExecutor):
    """Carries plans to a store that may lend its connection (`Lends`)."""

    def _begin(self) -> None:
        super()._begin()
        self._lending: Lending | None = None
        self._gathered: list[AnyRequest] = []  # of one loop, which sends them in its next turn
        self._had_company = False

    def _make_pipeline(self) -> Pipeline:
        self._lending = Lending(self._open_store, self._writes, self._loses_answers, self._under_way)
        return self._lending

    def _submit(self, request: AnyRequest) -> None:
        if self._pid != os.getpid():
            self._begin()
        lending = self._lending
        if lending is not None and request.undo is None and request.kind == "write" and not request.detached:
            with self._gate:
                if self._is_gathered(request):
                    return
                is_alone = self._is_alone(request)
            if is_alone:
                if lending.lend([request]):
                    return
                self._under_way.discard(id(request))
        with self._gate:
            if request.kind != "read" or self._left.any():
                self._pass_on()
            super()._submit(request)

    def _is_gathered(self, request: AnyRequest) -> bool:
        """Whether it goes with others of its loop, which sends them in its next turn."""
        gathered, loop = self._gathered, request.loop
        if gathered:
            if gathered[0].loop is not loop or len(gathered) >= AT_ONCE_MAX:
                return False
        elif self._had_company and loop is not None and self._is_free():  # then it will have again, perhaps
            loop.call_soon(self._send_gathered, loop)
        else:
            return False
        self._under_way.add(id(request))
        self._gathered.append(request)  # asked for anew: garbage that was collected meanwhile may have passed it on
        return True

    def _is_alone(self, request: AnyRequest) -> bool:
        """Whether nothing is under way here that it would overtake; then it is, so that nothing overtakes it."""
        if self._is_free():
            self._under_way.add(id(request))
            return True
        lent = None if self._lending is None else self._lending.lent
        self._had_company |= lent is not None and lent.watch.loop is request.loop
        return False

    def _is_free(self) -> bool:
        return not (self._is_closed or self._under_way or self._left.any())

    def _send_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered: list[AnyRequest] = []
        try:
            with self._gate:
                # Another loop's, if what this one had gathered was passed on before it came to this.
                if self._lending is None or not self._gathered or self._gathered[0].loop is not loop:
                    return
                gathered, self._gathered = self._gathered, []
            self._had_company = len(gathered) > 1
            if not self._lending.lend(gathered):
                with self._gate:
                    self._gathered[:0] = gathered
                    self._pass_on()
        except BaseException:
            self._writes.put(cast(Any, gathered))  # interrupted: those that nobody has are the thread's
            raise

    def _pass_on(self) -> None:
        """Give what was gathered to the thread, before anything that came later; if that was told to end, refuse it."""
        for request in self._gathered:
            if self._is_closed:
                self._under_way.discard(id(request))
                request.fail(SessionClosedError())
                deliver([request])
            else:
                self._writes.put(request)
        self._gathered = []

    def _give_up(self, request: AnyRequest, owes_undo: bool) -> None:
        super()._give_up(request, owes_undo)
        if not request.is_open:  # withdrawn, also where an interrupt kept it from being sent
            self._under_way.discard(id(request))
        if self._lending is not None and self._lending.lent is not None and self._pid == os.getpid():
            self._writes.put(TAKE_BACK)

    def close(self, timeout_s: float = LAST_WAIT_S) -> None:
        """End when all that was submitted is done, and wait for that."""
        with self._gate:
            self._pass_on()
            self._is_closed = True
        super().close(timeout_s)


class Lending(Pipeline):
    """The writing thread, and what loops do in its place."""

    def __init__(self, open_store: Callable[[], Store], inbox: Inbox, loses_answers: bool, under_way: set[int]) -> None:
        super().__init__(open_store, inbox, loses_answers, under_way)
        # It knows whose it is: somebody who is interrupted cannot tell whether it was before or after taking it.
        self.turn = threading.RLock()
        self._pid = os.getpid()
        self.lent: Lent | None = None
        self._at_work: list[Active] = []  # what a loop is working on; if that was interrupted, what it left half done
        self._watch: weakref.ref[LineWatch] | None = None  # its loop's, and gone with it
        self._done: list[AnyRequest] = []  # for whoever has the turn to hand out, when it has given it back

    # --- the thread ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do what is asked for until told to end."""
        with self.turn:
            try:
                super().run()
            finally:
                self._store = None
                self._hand_out()

    def _next_message(self) -> AnyRequest | CompensationMessage | None:
        if self._active:
            return super()._next_message()
        done, self._done = self._done, []  # a loop that has the turn would hand them out itself, to other loops too
        self.turn.release()
        try:
            # Only now: whoever has its answer asks for the next thing at once, and finds the turn free.
            if done:
                deliver(done)
                del done  # or, while this waits, it would keep alive whatever their plans refer to
            message = super()._next_message()
        finally:
            self.turn.acquire()
        self._take_back()
        return message

    def _accept(self, message: AnyRequest | CompensationMessage | list[AnyRequest]) -> None:
        if isinstance(message, list):  # a loop was interrupted when it was about to send them, or had sent them
            known = {id(active.request) for active in self._active}
            for request in message:
                if request.is_open and id(request) not in known:
                    super()._accept(request)
        elif message is not TAKE_BACK:
            super()._accept(message)

    def _round(self) -> None:
        self._hand_out()
        super()._round()

    def _hand_over(self, requests: list[AnyRequest]) -> None:
        self._done += requests

    def _hand_out(self) -> None:
        if self._done:
            done, self._done = self._done, []
            deliver(done)

    def _take_back(self) -> None:
        """Bring to its end what a loop has sent, or had begun to."""
        lent, cut = self.lent, self._at_work
        self.lent, self._at_work = None, []
        if cut:
            self._mend(cut)
        elif lent is not None:
            try:
                answers = lent.begun.finish()
            except Exception as error:
                answers = [error] * len(lent.ready)
            self._take_answers(lent.ready, answers)

    def _mend(self, cut: list[Active]) -> None:
        """Somebody interrupted a loop's work, by Ctrl-C say: ask again, or say that nobody knows."""
        cast(Lends, self._store).break_off()
        for active in cut:
            request = active.request
            if request.is_open and not request.is_claimed:  # nothing of it was sent that changes anything
                active.begin_anew()
                if active not in self._active:
                    self._active.append(active)
                continue
            if active in self._active:
                if active.asks_again():
                    continue
                self._active.remove(active)
            request.fail(  # unless it has its outcome, and was only not handed over
                OutcomeUnknownError(
                    "it was interrupted while its answer was read",
                    "It was done whole or not at all; repeating an append under the same writer and number is safe.",
                )
            )
            self._under_way.discard(id(request))
            self._done.append(request)

    # --- a loop, in its own thread ------------------------------------------------------------------------------------

    def lend(self, requests: list[AnyRequest]) -> bool:
        """Send what requests ask for, from the loop that waits for them. False: not now, and nothing was done."""
        try:
            if not self.turn.acquire(blocking=False):
                return False
            watch = self._watch_line(requests[0].loop, len(requests))
            if watch is None:
                return False
            self._at_work = [Active(request, request.plan()) for request in requests]
            self._active += self._at_work
            self._go_on(watch)
        except BaseException:
            self._wake()
            raise
        finally:
            try:  # here and not in a function of its own: a signal can come where one begins
                self.turn.release()
            except RuntimeError:
                pass  # it was somebody else's
        return True

    def _go_on(self, watch: LineWatch) -> None:
        """Send what can be asked for now, hand out what has its outcome, and leave everything else to the thread."""
        store = cast(Lends, self._store)
        # Over another connection it would be for the thread to ask: that waits until it is there.
        ready = self._ready() if self._active and store.line(len(self._active)) is watch.line else []
        if ready:
            try:
                begun = store.begin(list(map(question_of, ready)))
            except Exception as error:
                self._take_answers(ready, [error] * len(ready))
            else:
                if begun is not None:
                    self.lent = Lent(ready, begun, watch)
                    self._be_patient(ready[0].request, watch.loop, begun.patience_s)
        for request in self._done:
            request.hand_over()
        self._done.clear()
        self._at_work = []
        lent = self.lent
        if self._to_undo or (self._active and (lent is None or not lent.begun.is_sent)):
            self._wake()

    def _be_patient(self, request: AnyRequest, loop: asyncio.AbstractEventLoop, patience_s: float) -> None:
        """Wake the thread when nothing has come for so long: it may still get an answer over another connection."""
        if request.is_taken:  # whoever left may not have seen that it is lent
            self._wake()
        else:
            request.hurry, request.soft_deadline = self._hurry, time.monotonic() + min(patience_s, PATIENCE_S_MAX)
            waiting_in(loop, request)

    def _hurry(self) -> None:
        """Leave it to the thread, in the loop that waits. If its look is at fault, the next one needs another."""
        watch = None if self._watch is None else self._watch()
        if watch is not None and watch.loop is asyncio.get_running_loop():
            watch.stop()
        self._wake()

    def _watch_line(self, loop: asyncio.AbstractEventLoop | None, count: int) -> LineWatch | None:
        """The look of that loop at the connection; None where that, or anything else, is in the way."""
        store: Any = self._store
        if store is None or loop is None or self._active or self.lent is not None or self._at_work:
            return None
        if self._untaken:
            self._look_for_orphans()
        line: Line | None = None if self._to_undo else store.line(count)
        if line is None:
            return None
        watch = None if self._watch is None else self._watch()
        if watch is None or watch.is_stopped or watch.loop is not loop or watch.line is not line:
            try:
                watch = LineWatch(loop, line, self._on_readable)
            except (NotImplementedError, OSError, RuntimeError, ValueError):  # not every loop can
                return None
            self._watch = weakref.ref(watch)
        return watch

    def _on_readable(self, watch: LineWatch) -> None:
        """Something came over a watched connection, or its end."""
        try:
            if self._pid != os.getpid():  # the loop of a parent, in its child: the answer is the parent's
                watch.stop()
                return
            if not self.turn.acquire(blocking=False):
                self._wake()  # whoever has the turn may have looked already whether something is lent
                watch.stop()
                return
            lent = self.lent
            if lent is None or lent.watch is not watch:
                watch.stop()
                return
            self._at_work = list(self._active)
            try:
                answers = lent.begun.take()
            except StandfastError as error:
                answers = [error] * len(lent.ready)
            except Exception:  # of a kind that nobody expects: the thread closes the connection, and asks again
                watch.stop()
                self._wake()
                return
            if answers is None:
                self._at_work = []
                watch.stop()
                self._wake()
                return
            self.lent = None
            self._take_answers(lent.ready, answers)
            self._go_on(watch)
        except BaseException:
            self._wake()
            raise
        finally:
            try:
                self.turn.release()
            except RuntimeError:
                pass

    def _wake(self) -> None:
        self._inbox.put(TAKE_BACK)
