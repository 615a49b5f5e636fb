"""PostgreSQL connection with a time limit for each answer, and a way past psycopg's cursors."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready

from standfast._src.sessions.backends.postgres.postgres_errors import WARNING, OnlyHere

T = TypeVar("T")

ANSWER_S_MAX = 20.0
# How long one answer may take before the connection is given up; what was asked is then asked again over another.

CALL_OFF_S_MAX = 2.0
# Time for the server to confirm a cancelled statement: a server confirms at once, or not at all.


class LimitedConnection(psycopg.Connection[Any]):
    """Connection that fails if an answer takes too long: a broken network may never report an error."""

    share = 1
    """How many statements have to share the time there is for an answer."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the server's answer within a time limit, then cancel the statement.

        A statement that waits for a lock does not notice that its client has disconnected. Uncancelled, it would be
        executed when the lock is free, after other workers had seen that it was not (A13).
        """
        patience_s = ANSWER_S_MAX / self.share if timeout is None else timeout
        try:
            return super().wait(gen, interval, patience_s)
        except psycopg.errors._WaitTimeout as error:
            late = error
        told: list[str | None] = []

        def hear(notice: psycopg.errors.Diagnostic) -> None:
            told.append(notice.sqlstate)  # copied now: the notice's memory is freed afterwards

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


def _resume_reader(gen: PQGen[T]) -> PQGen[T]:
    """Present a reader already started as a new generator: psycopg cannot restart its own while
    data remain to be sent.
    """
    ready: Ready | int = Ready.R  # whether or not: there may just be nothing to read
    while True:
        try:
            waits_for = gen.send(ready)
        except StopIteration as end:
            done: T = end.value
            return done
        while not (ready := (yield waits_for)):
            continue


def read_result(connection: LimitedConnection) -> PGresult:
    """Wait for the result of the command sent over `connection.pgconn`; raise the server's error."""
    # psycopg's own reader, which sends what is left to send and waits where the connection says.
    results: list[PGresult] = connection.wait(generators.execute(connection.pgconn))
    for found in results:  # behind an answer there may be an error of the commit
        if found.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(found)
    return results[0]
