"""Operational events: a log line for each, and an event on the current span.

They contain ids, numbers and seconds, never content. One table here has all the lines, and the page on tracing prints
it. A tracer registers itself with `subscribe`; this module does not know spans.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from standfast._src.base.logs import logger as _log
from standfast._src.base.safe_text import safe

EVENTS: Mapping[str, tuple[int, str]] = {
    "lease_waited": (logging.INFO, "%(holder)s waited %(seconds).1f s for session %(session)r"),
    "lease_taken_over": (logging.WARNING, "%(holder)s took %(what)s over from %(before)s, which had not given it back"),
    "run_resumed": (logging.INFO, "run %(run)s is resumed; it was %(status)s"),
    "run_unfinished": (logging.INFO, "run %(run)s of this conversation had not ended (%(found)s): %(done)s"),
    "message_sent": (logging.INFO, "message %(message)s was sent to session %(session)r"),
    "message_heard": (logging.INFO, "run %(run)s has heard message %(message)s"),
    "outcome_unknown": (logging.WARNING, "what became of %(what)s of run %(run)s is not known: %(done)s"),
    "lease_lost": (
        logging.WARNING,
        "run %(run)s has lost its conversation (%(reason)s): it stops and writes nothing more",
    ),
    "run_recovered": (logging.INFO, "run %(run)s was recovered: %(outcome)s"),
    "run_settled": (logging.WARNING, "run %(run)s, whose worker is gone, was settled by run %(by)s"),
    "message_refused": (logging.WARNING, "a message to session %(session)r was refused: %(reason)s"),
    "session_repaired": (logging.WARNING, "session %(session)r was repaired: %(count)d records were taken out"),
    "store_retried": (
        logging.WARNING,
        "%(store)s was asked again %(count)d times, for %(seconds).1f s, %(what)s: %(reason)s",
    ),
}
"""The name of each event, the level of its line, and the line; the names in it are the event's attributes."""

MEASURES: Mapping[str, tuple[str, str]] = {
    "standfast.runs.waiting": ("{run}", "Runs that wait for a worker: decided, or left by a worker that is gone."),
    "standfast.runs.waiting.age": ("s", "Time since the last change of the run that has waited longest for a worker."),
    "standfast.approvals.waiting": ("{call}", "Tool calls that wait for a decision of a person."),
    "standfast.budget.left": ("1", "Remainder of a budget under the limit of its store, in the budget's unit."),
    "standfast.budget.used": ("1", "Use of a budget in its present period, reservations included."),
}
"""The name of each gauge, its unit and its meaning."""

Fact = str | int | float
Watcher = Callable[[str, Mapping[str, Fact]], None]
Gauge = Callable[[str, float, Mapping[str, Fact]], None]

SELDOM_S = 60.0
# A server that is away is away for all who ask: one line tells as much as one for each of them.

_watchers: list[Watcher] = []
_gauges: list[Gauge] = []
_told_at: dict[tuple[str, str], float] = {}


def subscribe(watcher: Watcher) -> None:
    """Notify a watcher of every later event, for the life of the process."""
    if watcher not in _watchers:
        _watchers.append(watcher)


def subscribe_gauge(gauge: Gauge) -> None:
    """Pass every measure to this function, for as long as the process lives."""
    if gauge not in _gauges:
        _gauges.append(gauge)


def measure(name: str, value: float, **facts: Fact) -> None:
    """Report the present value of a gauge in `MEASURES`."""
    assert name in MEASURES
    for gauge in _gauges:
        gauge(name, value, facts)


def emit(event: str, **facts: Fact) -> None:
    """Log an event, and notify the watchers."""
    _write(event, facts)
    _show(event, facts)


def tell_seldom(event: str, about: str, **facts: Fact) -> None:
    """Log an event at most once in `SELDOM_S` for each `about`; notify the watchers every time."""
    now, last = time.monotonic(), _told_at.get((event, about))
    if last is None or now - last >= SELDOM_S:
        _told_at[event, about] = now
        _write(event, facts)
    _show(event, facts)


def _write(event: str, facts: Mapping[str, Fact]) -> None:
    level, line = EVENTS[event]
    if _log.isEnabledFor(level):
        # Models choose ids of calls: a line end in one would forge a line of the log.
        shown = {name: safe(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
        _log.log(level, line, shown)


def _show(event: str, facts: Mapping[str, Fact]) -> None:
    for watcher in _watchers:
        watcher(event, facts)
