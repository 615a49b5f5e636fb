"""A process that moves a session and is killed at a step. It imports only what it needs: there are dozens of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from typing import Any

from standfast import copy_sessions, export_session
from standfast._src.sessions.client.stored_session import StoredSession


class _Killed:
    """Kills this process at a step of a move: each read and each change of a store is one, and behind each change."""

    def __init__(self, step: int) -> None:
        self.left = step
        looked, changed = StoredSession.looked, StoredSession.changed

        def looked_at(session: StoredSession, plan: Any) -> Awaitable[Any]:
            self.step()
            return looked(session, plan)

        async def changed_at(session: StoredSession, plan: Any) -> Any:
            self.step()
            done = await changed(session, plan)
            self.step()
            return done

        StoredSession.looked, StoredSession.changed = looked_at, changed_at  # type: ignore[method-assign, assignment]

    def step(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def move_and_die(source: str, target: str, session_id: str, step: int) -> None:
    """What the child does: it ends with 0 if the move was done before its step came."""
    _Killed(step)
    if target.endswith(".jsonl"):
        asyncio.run(export_session(source, session_id, target, move=True))
    else:
        asyncio.run(copy_sessions(source, target, [session_id], move=True))
