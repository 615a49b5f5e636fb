"""A session around another session, passing every method on by name.

A wrapper declares exactly the abilities of the wrapped session, and each ability is a method here. Nothing is found by
attribute delegation, so a subclass that overrides a method has covered every way to it (part B). The run context is
passed on by the rule of the runner (C10).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from standfast._src.base.aio import maybe_await
from standfast._src.base.json_values import Item, copy_json
from standfast._src.runs.engine.run_store import RunStore
from standfast._src.sessions.client.completed import Completed
from standfast._src.sessions.conversation_identity import conversation_key
from standfast._src.sessions.protocol import (
    NO_LIMIT,
    Ability,
    CanAppend,
    CanList,
    CanPage,
    CanReplace,
    CanReportCorrupt,
    CanRewind,
    CorruptRecord,
    Generation,
    HasTimes,
    Head,
    Lease,
    Page,
    Position,
    Session,
    SessionABC,
    SessionInfo,
    SessionPage,
    SessionSettings,
    abilities,
    effective_limit,
    require,
)
from standfast._src.sessions.records import Holder, Origin, Record, RecordPage, RunUsage, SearchPage
from standfast._src.sessions.rules.messages import Receipt, WaitingMessage, WhenBusy
from standfast._src.sessions.rules.saved_runs import HeardMessage, NestedItems, Recorded, RunSave
from standfast._src.sessions.signatures import accepts_wrapper, has_parameter

ContextForSession: TypeAlias = Any
"""The run's `RunContextWrapper`, handed on to the wrapped session unread. Any: that class lives in a room above."""


class _Able(CanAppend, CanReplace, CanRewind, CanPage, CanList, CanReportCorrupt, HasTimes, Protocol):
    """A wrapped session with the ability in question."""


class SessionWrapper(SessionABC):
    """Passes everything on to `underlying_session`, which may be any session, plain or with abilities."""

    def __init__(self, underlying_session: Session) -> None:
        # Any session: whether it has an ability is checked before its use, and its methods need not be async.
        self.underlying_session: Any = underlying_session
        self._passes_wrapper = accepts_wrapper(underlying_session)

    @property
    def declared_abilities(self) -> frozenset[str]:
        """The abilities of the wrapped session, all of them passed on."""
        return abilities(self.underlying_session)

    @property
    def session_settings(self) -> SessionSettings | None:
        """The wrapped session's settings; assigning changes them there."""
        settings: SessionSettings | None = getattr(self.underlying_session, "session_settings", None)
        return settings

    @session_settings.setter
    def session_settings(self, settings: SessionSettings | None) -> None:
        self.underlying_session.session_settings = settings

    # --- the five methods ------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None, *, wrapper: ContextForSession = None) -> list[Item]:
        """Return the whole history, or the latest `limit` items; oldest first."""
        effective_limit(limit, self.session_settings)  # a plain session may not refuse what is no limit
        named = self._context_kwargs(wrapper)
        if limit is None:
            found: list[Item] = await maybe_await(self.underlying_session.get_items(**named))
        elif has_parameter(self.underlying_session.get_items, "limit"):
            found = await maybe_await(self.underlying_session.get_items(limit=limit, **named))
        else:
            found = await maybe_await(self.underlying_session.get_items(**named))
            found = found[max(0, len(found) - limit) :]
        return found

    async def add_items(self, items: list[Item], *, wrapper: ContextForSession = None) -> None:
        """Append one batch, in order, whole or not at all."""
        await maybe_await(self.underlying_session.add_items(items, **self._context_kwargs(wrapper)))

    async def pop_item(self, *, wrapper: ContextForSession = None) -> Item | None:
        """Remove and return the newest item; None when there is none."""
        item: Item | None = await maybe_await(self.underlying_session.pop_item(**self._context_kwargs(wrapper)))
        return item

    async def clear_session(self, *, wrapper: ContextForSession = None) -> None:
        """Remove everything stored for this session id."""
        await maybe_await(self.underlying_session.clear_session(**self._context_kwargs(wrapper)))

    def close(self) -> Coroutine[Any, Any, None]:
        """Close the wrapped session, now; the result may be awaited, and must be where the wrapped one's must."""
        close = getattr(self.underlying_session, "close", None)
        result = close() if callable(close) else None
        if inspect.iscoroutine(result) or isinstance(result, Completed):
            return result
        return maybe_await(result) if inspect.isawaitable(result) else Completed()

    # --- abilities ------------------------------------------------------------------------------

    async def head(self) -> Head:
        """Return the head: where the history ends now."""
        return await self._able("head").head()

    async def append(
        self,
        items: Sequence[Item],
        *,
        writer: str,
        start: int,
        expect: Head | None = None,
        lease: Lease | None = None,
        digests: Sequence[bytes] | None = None,
    ) -> Head:
        """Store `items` as this writer's items from number `start` on, once, however often the call is repeated
        (B1).
        """
        return await self._able("append").append(
            items, writer=writer, start=start, expect=expect, lease=lease, digests=digests
        )

    async def accepted(self, writer: str) -> int:
        """Return how many items this writer has written (B1)."""
        return await self._able("append").accepted(writer)

    async def written(self, writer: str) -> list[Item]:
        """Return this writer's stored items, in order (B1)."""
        return await self._able("written").written(writer)

    def record(
        self,
        *,
        items: Sequence[Item] = (),
        writer: str = "",
        start: int = 0,
        digests: Sequence[bytes] | None = None,
        run: RunSave | None = None,
        lease: Lease | None = None,
        release: bool = False,
        detached: bool = False,
        costs: tuple[int, Sequence[Item]] | None = None,
        nested: Sequence[NestedItems] = (),
        heard: Sequence[HeardMessage] = (),
    ) -> Coroutine[Any, Any, Recorded]:
        """Append items, save a run, and release the lease, in one step or not at all."""
        given: dict[str, Any] = {} if costs is None else {"costs": costs}
        given |= {"nested": nested} if nested else {}
        given |= {"heard": heard} if heard else {}
        waiting: Coroutine[Any, Any, Recorded] = self._require("record").record(
            items=items, writer=writer, start=start, digests=digests, run=run, lease=lease, release=release,
            detached=detached, **given,
        )  # fmt: skip
        return waiting

    async def replace(self, items: Sequence[Item], *, upto: Head, lease: Lease | None = None) -> Head:
        """Put `items` in place of the history up to `upto`; items appended since stay behind them (B3)."""
        return await self._able("replace").replace(items, upto=upto, lease=lease)

    async def generations(self) -> list[Generation]:
        """Return the kept generations, newest first."""
        return await self._able("replace").generations()

    async def read_generation(self, generation_id: str) -> list[Item]:
        """Return the items of a kept generation."""
        return await self._able("replace").read_generation(generation_id)

    async def restore(self, generation_id: str, *, expect: Head | None = None, by: str | None = None) -> Head:
        """Put a generation back in place of its replacement, which becomes a generation itself (B4)."""
        restoring = self._require("replace").restore
        head: Head = await restoring(generation_id, expect=expect, **_who(restoring, by))
        return head

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        """Remove this writer's items from number `to` on, if they are the whole tail (B5)."""
        return await self._able("rewind").rewind(writer=writer, to=to, expect=expect)

    async def fork(
        self,
        new_id: str,
        *,
        at: Position | None = None,
        recode: Callable[[Item], Item] | None = None,
        by: str | None = None,
    ) -> Any:
        """Make session `new_id` in the same store continue from that position; the two never meet again (B6)."""
        forking = self._require("fork").fork
        given: dict[str, Any] = {} if recode is None else {"recode": recode}
        return self._rewrap(await forking(new_id, at=at, **given, **_who(forking, by)))

    async def lease(self, *, ttl_s: float, wait_s: float, holder: str = "") -> Lease:
        """Acquire the lease, waiting at most `wait_s` for the holder to release it (B7)."""
        leasing = self._require("lease").lease
        given = {"holder": holder} if holder and has_parameter(leasing, "holder") else {}
        lease: Lease = await leasing(ttl_s=ttl_s, wait_s=wait_s, **given)
        return lease

    def conversation_key(self) -> Hashable:
        """Return the wrapped session's key: a wrapper is not another conversation."""
        return conversation_key(self.underlying_session)

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        """Return the `limit` items before a cursor (B8)."""
        return await self._able("page").page(before=before, limit=limit)

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        """Return the sessions of the wrapped session's store, newest change first (B9)."""
        return await self._able("list").list_sessions(after=after, limit=limit)

    async def count_sessions(self) -> int:
        """Return the number of sessions in the store."""
        return await self._able("list").count_sessions()

    async def corrupt_records(self) -> list[CorruptRecord]:
        """Return every corrupt record of this session, oldest first (A14)."""
        return await self._able("corrupt").corrupt_records()

    async def info(self) -> SessionInfo | None:
        """Return this session's times (A16)."""
        return await self._able("times").info()

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        """Return the records before a cursor, or after one; with neither, the latest (B11)."""
        page: RecordPage = await self._require("records").records(before=before, after=after, limit=limit)
        return page

    def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        """Yield each record after a cursor as it is written (B12)."""
        found: AsyncIterator[Record] = self._require("watch").watch(after=after, poll_s=poll_s)
        return found

    async def search(self, text: str, *, after: str | None = None, limit: int = 50) -> SearchPage:
        """Return the newest records that contain these words (B13)."""
        page: SearchPage = await self._require("search").search(text, after=after, limit=limit)
        return page

    async def holder(self) -> Holder | None:
        """Return the holder of the wrapped session's lease (B14)."""
        found: Holder | None = await self._require("holder").holder()
        return found

    async def origin(self) -> Origin | None:
        """Return the session and position the wrapped session was forked from (B14)."""
        found: Origin | None = await self._require("origin").origin()
        return found

    async def usage(self) -> list[RunUsage]:
        """Return the cost of each run (B15)."""
        found: list[RunUsage] = await self._require("usage").usage()
        return found

    async def send(
        self,
        message: str | list[Item],
        *,
        agent: str,
        message_id: str | None = None,
        when_busy: WhenBusy = "steer",
        by: str | None = None,
        max_turns: int | None = 10,
    ) -> Receipt:
        """Send a message to the wrapped session's conversation (F1)."""
        receipt: Receipt = await self._require("send").send(
            message, agent=agent, message_id=message_id, when_busy=when_busy, by=by, max_turns=max_turns
        )
        return receipt

    async def receipt(self, message_id: str) -> Receipt | None:
        """Return the receipt of a message to the wrapped session; None for an unknown id (F1)."""
        receipt: Receipt | None = await self._require("send").receipt(message_id)
        return receipt

    async def waiting_messages(self) -> list[WaitingMessage]:
        """List the waiting messages of the wrapped session (F1)."""
        found: list[WaitingMessage] = await self._require("send").waiting_messages()
        return found

    def run_store(self) -> RunStore:
        """Return the run store of the wrapped session."""
        store: RunStore = self._require("runs").run_store()
        return store

    # --- inside ------------------------------------------------------------------------------

    def _able(self, ability: Ability) -> _Able:
        """Return the wrapped session; raises if the ability is missing."""
        able: _Able = self._require(ability)
        return able

    def _require(self, ability: Ability) -> Any:
        """Return the wrapped session; raises if the ability is missing. Every ability is used through this method."""
        return require(self.underlying_session, ability)

    def _rewrap(self, session: Session) -> SessionWrapper:
        """Wrap another session in the same way, for a fork of the wrapped one."""
        return SessionWrapper(session)

    def _context_kwargs(self, wrapper: object) -> dict[str, Any]:
        return {"wrapper": wrapper} if self._passes_wrapper else {}

    async def _whole(self, wrapper: object = None) -> list[Item]:
        """Return copies of the whole history, whatever the default limit (A3)."""
        limited = getattr(self.session_settings, "limit", None) is not None
        limit = NO_LIMIT if limited and has_parameter(self.underlying_session.get_items, "limit") else None
        found = await SessionWrapper.get_items(self, limit, wrapper=wrapper)
        return [copy_json(item) for item in found]


def _who(method: Callable[..., object], by: str | None) -> dict[str, Any]:
    """Return the author as a keyword argument, for a method that keeps it; third-party sessions may not."""
    return {"by": by} if by is not None and has_parameter(method, "by") else {}
