"""Order later requests behind writes whose callers stopped waiting (A13).

A cancelled caller leaves a begun write behind, and a stopped run submits its last write without waiting. The next
request of this process on the same session must find both finished: committed, or certainly never to be.
"""

from __future__ import annotations

import weakref
from typing import Any

from standfast._src.sessions.client.requests import Request
from standfast._src.sessions.storage import Name, ReadRequest


class AbandonedWrites:
    """Abandoned writes of one executor, until each has finished.

    References are weak: a write that may still be executed is held by the thread that executes it, and a finished one
    would keep its session alive. Without a lock, because a request may be abandoned by garbage collection, at any
    point in these methods.
    """

    def __init__(self) -> None:
        self._refs: dict[weakref.ref[Request[Any]], None] = {}

    def add(self, request: Request[Any]) -> None:
        """Track a request until its end."""
        self._refs[weakref.ref(request)] = None

    def wait_behind(self, request: Request[Any]) -> bool:
        """Return whether a request has to wait for an abandoned write.

        Every request waits for a write that has begun. A detached write, or a compensation, may wait for another
        program's lock without end: only requests that may concern the same name wait for these.
        """
        return bool(self._refs) and any(_is_soon_over(left) or may_meet(left, request) for left in self._open())

    def _open(self) -> list[Request[Any]]:
        found: list[Request[Any]] = []
        for ref in list(self._refs):
            request = ref()
            if request is None or request.is_over:
                self._refs.pop(ref, None)
            else:
                found.append(request)
        return found


def _is_soon_over(left: Request[Any]) -> bool:
    return left.is_left and not left.detached


def may_meet(left: Request[Any], request: Request[Any]) -> bool:
    """Return whether a request may concern the same data as an abandoned write, judged by the first name that each
    reads.

    Two sessions, or two runs, do not meet. A session's write may store a run as well; a write that begins with a run
    belongs to a run without a session.
    """
    mine, other = _first_name(left), _first_name(request)
    if mine is None or other is None:
        return True
    return mine == other if mine.kind == other.kind else mine.kind == "session"


def _first_name(request: Request[Any]) -> Name | None:
    """Return the name that a request's plan reads first; None if the plan does not begin with one read. Does not
    execute the plan.
    """
    plan = request.plan()
    try:
        question = next(plan)
    except Exception:  # it refuses, or has nothing to ask
        return None
    finally:
        plan.close()
    return question.name if isinstance(question, ReadRequest) else None
