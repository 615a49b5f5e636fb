"""What nobody waits for and may still be done: what is asked for later does not overtake it (A13).

A caller who was cancelled leaves a write behind that has begun, and a run that was stopped submits its end without
waiting. Whoever asks next in this process, on that session, must find both done, or not done for good.
"""

from __future__ import annotations

import weakref
from typing import Any

from standfast.carrying.requests import Request
from standfast.sessions.port import Look, Name


class LeftWrites:
    """The writes of one carrier that nobody waits for, until each is over.

    Weakly: as long as one may be done, whoever does it has it, and one that is over would keep its session alive.
    Without a lock: a request may be given up by being collected as garbage, which can happen anywhere in here.
    """

    def __init__(self) -> None:
        self._refs: dict[weakref.ref[Request[Any]], None] = {}

    def add(self, request: Request[Any]) -> None:
        """Remember one until it is over."""
        self._refs[weakref.ref(request)] = None

    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._refs) and bool(self._open())

    def hold_back(self, request: Request[Any]) -> bool:
        """Whether a request has to wait for one of them.

        A detached one may wait for another program's lock without end: only its own session waits for it.
        """
        return bool(self._refs) and any(not left.detached or _may_meet(left, request) for left in self._open())

    def _open(self) -> list[Request[Any]]:
        found: list[Request[Any]] = []
        for ref in list(self._refs):
            request = ref()
            if request is None or request.is_over:
                self._refs.pop(ref, None)
            else:
                found.append(request)
        return found


def _may_meet(one: Request[Any], other: Request[Any]) -> bool:
    """Whether two requests may be about the same thing: not if each begins with a session, and not with the same."""
    mine = _session_of(one)
    return mine is None or mine == (_session_of(other) or mine)


def _session_of(request: Request[Any]) -> Name | None:
    """The session that its plan first looks at; None if that is anything else. To ask a plan is not to carry it out."""
    plan = request.plan()
    try:
        question = next(plan)
    except Exception:  # it refuses, or has nothing to ask
        return None
    finally:
        plan.close()
    return question.name if isinstance(question, Look) and question.name.kind == "session" else None
