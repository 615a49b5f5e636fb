"""A session as a run uses it: read once, appended to by writer and ordinal, held by one run at a time.

The run asks for abilities, never for a class. A session with exactly-once append is written to as it is; any other
goes through the adapter for plain sessions, which does what can be done and says what it cannot promise.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Hashable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from standfast.agents.context import RunContextWrapper
from standfast.agents.run_config import Concurrency
from standfast.engine.run_store import RunStore
from standfast.ground.errors import LeaseLostError, OwnerError, StoreError
from standfast.ground.jsonvalue import Item
from standfast.plain.adapter import PlainSession
from standfast.sessions.protocol import Lease, Session, SessionSettings, abilities

logger = logging.getLogger("standfast")


def session_id_of(session: Session) -> str | None:
    """The session's id; None for one that has no id before its first use."""
    try:
        return str(session.session_id)
    except (ValueError, AttributeError):
        return None


def conversation_key(session: Session) -> Hashable:
    """What two objects share that are the same conversation: the store they use, and the id in it.

    To be `standfast.sessions.protocol.conversation_key` once sessions say it themselves; until then the store is found
    by looking: through wrappers, by the file's path however it is spelt, by the store object.
    """
    inner: Any = session
    while (wrapped := getattr(inner, "underlying_session", None)) is not None:
        inner = wrapped
    path, store = getattr(inner, "db_path", None), getattr(inner, "store", None)
    if path is not None and str(path) != ":memory:":
        return (os.path.abspath(path), session_id_of(inner))
    if store is not None:
        return (id(store), session_id_of(inner))
    return id(inner)


class SessionHold:
    """One run's hold on a session."""

    def __init__(
        self,
        session: Session,
        *,
        concurrency: Concurrency = "wait",
        lease_ttl_s: float,
        lease_wait_s: float,
        settings: SessionSettings | None = None,
        wrapper: RunContextWrapper[Any] | None = None,
        outer: SessionHold | None = None,
    ) -> None:
        self.session: Any = session  # what it can do beyond the five methods is asked of `abilities`, not of its type
        self.session_id = session_id_of(session)
        self._concurrency, self._settings = concurrency, settings
        self._lease_ttl_s, self._lease_wait_s = lease_ttl_s, lease_wait_s
        self._able = "append" in abilities(session)
        self._leasable = "lease" in abilities(session)
        self._plain = None if self._able else PlainSession(session, wrapper=wrapper)
        self._lease: Lease | None = None
        self._runs: RunStore | None = None
        self._stack: AsyncExitStack | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        # A nested run on its parent's session uses the parent's lease (C13).
        self._outer = outer if outer is not None and outer.is_same(session) else None

    def is_same(self, session: Session) -> bool:
        """Whether this is the same conversation in the same store, also through another object or a wrapper."""
        return conversation_key(self.session) == conversation_key(session)

    @property
    def cannot(self) -> tuple[str, ...]:
        """What this session cannot promise."""
        return self._plain.cannot if self._plain is not None else ()

    def run_store(self) -> RunStore | None:
        """The run store beside the history, where the session has one."""
        if self._runs is None and "runs" in abilities(self.session):
            self._runs = self.session.run_store()
        return self._runs

    def is_beside(self, store: RunStore) -> bool:
        """Whether this run store is the session's own: then its lease tells of the session's open runs."""
        beside = self.run_store()
        return beside is not None and (store is beside or store == beside)

    # --- one run at a time -------------------------------------------------------------------------------------------

    async def hold(self) -> None:
        """Become the only run on this conversation, as the concurrency policy says (C13)."""
        # Holding twice would be waiting for oneself: a parent's lease covers a nested run on the same conversation.
        held = (self._outer, self._lease, self._stack)
        if self._concurrency == "allow" or any(one is not None for one in held):
            return
        wait_s = 0.0 if self._concurrency == "reject" else self._lease_wait_s
        if self._leasable:
            self._lease = await self.session.lease(ttl_s=self._lease_ttl_s, wait_s=wait_s)
            self._renew_later()
        elif self._plain is not None:
            stack = AsyncExitStack()
            await stack.enter_async_context(self._plain.hold(wait_s))
            self._stack = stack

    async def release(self) -> None:
        """Give back what was borrowed. The session stays open (C14)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
        lease, self._lease = self._lease, None
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()
        if lease is not None:
            try:
                await lease.release()
            except StoreError as error:  # it expires by itself; the run's own outcome is what counts
                logger.warning("a lease on session %r was not given back: %s", self.session_id, error)

    @property
    def lease(self) -> Lease | None:
        """The lease that writes carry."""
        return self._outer.lease if self._outer is not None else self._lease

    def _renew_later(self) -> None:
        loop = asyncio.get_running_loop()
        # A third of its life: two renewals may fail before it is lost.
        self._timer = loop.call_later(self._lease_ttl_s / 3, self._renew_now)

    def _renew_now(self) -> None:
        self._renewal = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        if self._lease is None:
            return
        try:
            await self._lease.renew()
        except LeaseLostError:
            return  # the next write will be refused and say so
        except StoreError as error:
            logger.warning("a lease on session %r could not be renewed: %s", self.session_id, error)
        self._renew_later()

    # --- history -----------------------------------------------------------------------------------------------------

    def limit(self) -> int | None:
        """How many of the latest items the run reads: the session's settings with the run's on top (A3)."""
        own = getattr(self.session, "session_settings", None)
        if not isinstance(own, SessionSettings):  # a dict, or the settings of the SDK's own sessions
            limit = own.get("limit") if isinstance(own, dict) else getattr(own, "limit", None)
            own = SessionSettings(limit)
        return own.resolve(self._settings).limit

    async def read(self) -> list[Item]:
        """The history a run starts from."""
        limit = self.limit()
        if self._plain is not None:
            return await self._plain.read(limit)
        items: list[Item] = await (self.session.get_items() if limit is None else self.session.get_items(limit=limit))
        return items

    async def append(self, items: Sequence[Item], *, writer: str, start: int) -> None:
        """Store this run's items from number `start` on, once."""
        if self._plain is not None:
            await self._plain.append(items, writer=writer, start=start)
        else:
            await self.session.append(items, writer=writer, start=start, lease=self.lease)

    async def accepted(self, writer: str) -> int:
        """How many items of this run the session has, as far as it, or this process, can tell."""
        if self._plain is not None:
            return await self._plain.accepted(writer)
        return int(await self.session.accepted(writer))

    async def stored_count(self, writer: str, known: int) -> int:
        """`accepted`, where at least `known` must be there; raises OwnerError if this is another store's session."""
        held = await self.accepted(writer)
        # A plain session can forget (its owner may have edited it); one that counts writers cannot.
        if self._able and held < known:
            raise OwnerError(
                f"session {self.session_id!r} holds {held} items of run {writer!r}, which stored {known}: it has the"
                " same name and is another, or it was removed",
                "Resume the run with the session it was started with; if that is gone, start a new run.",
            )
        return held

    async def written(self, writer: str) -> list[Item]:
        """What this run wrote before, if the session can tell."""
        if self._able:
            items: list[Item] = await self.session.written(writer)
            return items
        return []
