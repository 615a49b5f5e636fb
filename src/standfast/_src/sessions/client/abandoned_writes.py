"""What nobody waits for and may still be done: what is asked for later does not overtake it (A13).

A caller who was cancelled leaves a write behind that has begun, and a run that was stopped submits its end without
waiting. Whoever asks next in this process, on that session, must find both done, or not done for good.
"""

from __future__ import annotations

import weakref
from typing import Any

from standfast._src.sessions.client.requests import Request
from standfast._src.sessions.storage import Name, ReadRequest


class AbandonedWrites:
    """The writes of one executor that nobody waits for, until each is over.

    Weakly: as long as one may be done, whoever does it has it, and one that is over would keep its session alive.
    Without a lock: a request may be given up by being collected as garbage, which can happen anywhere in here.
    """

    def __init__(self) -> None:
        self._refs: dict[weakref.ref[Request[Any]], None] = {}

    def add(self, request: Request[Any]) -> None:
        """Remember one until it is over."""
        self._refs[weakref.ref(request)] = None

    def wait_behind(self, request: Request[Any]) -> bool:
        """Whether a request has to wait for one of them.

        All wait for one that has begun. A detached one may wait for another program's lock without end, and so may what
        takes one back: only what may meet it waits for that.
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
    """Whether what is asked for may be about what a write that was left is about, by what each first looks at.

    Not if those are two sessions or two runs. What a session's write stores may be a run as well; a write that begins
    with a run is about one that no session has.
    """
    mine, other = _first_name(left), _first_name(request)
    if mine is None or other is None:
        return True
    return mine == other if mine.kind == other.kind else mine.kind == "session"


def _first_name(request: Request[Any]) -> Name | None:
    """What its plan first looks at; None if that is not one thing. To ask a plan is not to carry it out."""
    plan = request.plan()
    try:
        question = next(plan)
    except Exception:  # it refuses, or has nothing to ask
        return None
    finally:
        plan.close()
    return question.name if isinstance(question, ReadRequest) else None
