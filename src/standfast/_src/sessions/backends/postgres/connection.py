"""A connection whose answers do not take for ever, and what is sent over it past psycopg's cursors."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from standfast._src.sessions.backends.postgres.postgres_errors import WARNING, OnlyHere

T = TypeVar("T")

ANSWER_S_MAX = 20.0
# How long one answer may take before the connection is given up; what was asked is then asked again over another.

CALL_OFF_S_MAX = 2.0
# How long the server has to say that it has stopped what it was told to stop: it answers that at once, or not at all.


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that gives up on an answer that does not come: a broken network may never say so."""

    share = 1
    """How many statements have to share the time there is for an answer."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None, *, already_s: float = 0.0) -> T:
        """Wait for the server, for so long and no longer, what was waited already included.

        What it has not answered by then it is told to stop. A statement that waits for a lock does not notice that its
        client is gone, and would be done when the lock is free: after others had seen that it was not (A13).
        """
        patience_s = ANSWER_S_MAX / self.share if timeout is None else timeout
        try:
            return super().wait(gen, interval, max(0.0, patience_s - already_s))
        except psycopg.errors._WaitTimeout as error:
            late = error
        told: list[str | None] = []

        def hear(notice: psycopg.errors.Diagnostic) -> None:
            told.append(notice.sqlstate)  # now: what it reads from is gone afterwards

        self.add_notice_handler(hear)
        try:
            self.cancel_safe(timeout=CALL_OFF_S_MAX)
            done = super().wait(
                _resume_reader(gen), interval, CALL_OFF_S_MAX
            )  # it says that it stopped, or what it had done
        except (psycopg.errors._WaitTimeout, psycopg.errors.CancellationTimeout):
            raise psycopg.OperationalError(f"no answer within {patience_s} s") from late
        finally:
            self.remove_notice_handler(hear)
        if WARNING in told:
            raise OnlyHere("its commit waited for a standby in vain: what it did is on this server, maybe nowhere else")
        return done

    def break_off(self) -> None:
        """Have the server stop what it does for this connection, and close it."""
        until = time.monotonic() + CALL_OFF_S_MAX
        try:
            while self.pgconn.transaction_status == TransactionStatus.ACTIVE and time.monotonic() < until:
                self.cancel_safe(timeout=CALL_OFF_S_MAX)
                with suppress(psycopg.errors._WaitTimeout):  # it had not begun when it was told: once more
                    super().wait(generators.execute(self.pgconn), timeout=CALL_OFF_S_MAX / 20)
        except psycopg.Error:  # then it does not stop, and whoever asks again finds what it did
            pass
        finally:
            self.close()


def _resume_reader(gen: PQGen[T]) -> PQGen[T]:
    """A reader that has begun, as one to begin: psycopg's own cannot be begun again while they still have to send."""
    ready: Ready | int = Ready.R  # whether or not: there may just be nothing to read
    while True:
        try:
            waits_for = gen.send(ready)
        except StopIteration as end:
            done: T = end.value
            return done
        while not (ready := (yield waits_for)):
            continue


class Sent:
    """A statement that was sent, as far as that goes without waiting, and its answer."""

    def __init__(self, connection: LimitedConnection) -> None:
        """Begin to read; `connection.pgconn` was given what to send."""
        self.connection, self._at = connection, time.monotonic()
        # psycopg's own reader, which waits nowhere: it says what it waits for, and is told when that has come.
        self._reading = generators.execute(connection.pgconn)
        self._waits_for: Any = None
        self._results: list[PGresult] | None = None
        self._error: psycopg.Error | None = None
        self._read_on(None)

    @property
    def is_sent(self) -> bool:
        """Whether all of it has left. What did not leave whole is not answered."""
        return bool(self._waits_for == Wait.R)

    def come(self) -> PGresult | None:
        """The answer, if it has come whole and is no error."""
        self._read_on(Ready.R)
        results = self._results
        is_plain = results is not None and len(results) == 1 and results[0].status == ExecStatus.TUPLES_OK
        return results[0] if results and is_plain else None

    def wait_for_result(self) -> PGresult:
        """The answer, waited for; raises the error that the server answers with."""
        if self._error is not None:
            raise self._error
        if self._results is None:
            self._results = self.connection.wait(_resume_reader(self._reading), already_s=time.monotonic() - self._at)
        for found in self._results:  # behind an answer there may be an error of the commit
            if found.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(found)
        return self._results[0]

    def _read_on(self, ready: Ready | None) -> None:
        try:
            self._waits_for = self._reading.send(ready)  # None begins it
        except StopIteration as end:
            self._results = end.value
        except psycopg.Error as error:
            self._error = error
