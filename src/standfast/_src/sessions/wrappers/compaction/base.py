"""Replacement of a session's history by a shorter one, without a moment of possible loss (C9).

On a store with abilities the new history replaces the old one in one step, provided that the old one is still the one
that was read. The old history is kept and can be restored. Items appended meanwhile stay behind the new history. A
plain session has no such step: the old history is captured, the session cleared and written again. After a failure the
old history is restored, once, by comparing it with the present one. A process killed in between loses it. The subclass
makes the new history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from standfast._src.base.errors import CompactionError, NotFoundError
from standfast._src.base.json_values import Item
from standfast._src.items.history import canonical
from standfast._src.sessions.client.process_lock import ProcessLock
from standfast._src.sessions.client.session_wrapper import ContextForSession, SessionWrapper
from standfast._src.sessions.protocol import Head, Session, abilities, check_session_id
from standfast._src.sessions.rules.compaction import OpenAIResponsesCompactionArgs, restoration

T = TypeVar("T")

READ_ATTEMPTS_MAX = 20
# Head and items are two reads. With a store that is written to all the time a few rounds may be needed to get both of
# one moment; a compaction that never gets them is a compaction too early.

RESTORE_ATTEMPTS_MAX = 4
# Each looks first at what stands there. A store that fails more often than this will go on failing, and the error that
# is raised then has the whole history.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Whole history and its head; no head on a plain session."""

    items: list[Item]
    head: Head | None

    @property
    def fingerprint(self) -> object:
        """Fingerprint of the history: equal for equal histories, as far as can be known."""
        return self.head if self.head is not None else (len(self.items), *map(canonical, self.items[-1:]))


class CompactingSession(SessionWrapper):
    """Base of compacting wrappers: a safe replacement, and `undo_compaction`."""

    def __init__(self, session_id: str, underlying_session: Session) -> None:
        super().__init__(underlying_session)
        self.session_id = check_session_id(session_id)
        self._lock = ProcessLock()
        self._replaced: tuple[list[Item], list[Item]] | None = None

    @property
    def declared_abilities(self) -> frozenset[str]:
        """Abilities of the wrapped session: the methods overridden here only keep plain sessions in order."""
        return super().declared_abilities

    async def run_compaction(
        self, args: OpenAIResponsesCompactionArgs | None = None, *, wrapper: ContextForSession = None
    ) -> list[Item] | None:
        """Compact the history if due. Return the items now in its place, or None if nothing was done.

        Raises CompactionError after a failure; the history is then unchanged.
        """
        try:
            return await self._compact(args or {}, wrapper)
        except CompactionError:
            raise
        except Exception as error:
            raise CompactionError(
                f"session {self.session_id!r} was not compacted: {type(error).__name__}: {error}",
                "The history is as it was; it will be tried again when it is next due.",
            ) from error

    async def undo_compaction(self) -> None:
        """Restore the history before the last replacement; items appended since stay behind it. A second call is redo
        (B4).

        On a plain session this works only through this object, and only for its last compaction.
        """
        if "replace" in abilities(self.underlying_session):
            kept = await self.generations()
            if not kept:
                raise self._nothing_to_undo()
            await self.restore(kept[0].id)
            return
        if self._replaced is None:
            raise self._nothing_to_undo()
        old, new = self._replaced
        await self._rewrite(new, old, None)

    async def _compact(self, args: OpenAIResponsesCompactionArgs, wrapper: object) -> list[Item] | None:
        raise NotImplementedError

    def _nothing_to_undo(self) -> NotFoundError:
        return NotFoundError(
            f"no earlier history of session {self.session_id!r} is kept",
            "Undo works for the last few compactions, and on plain sessions only in the object that did it.",
        )

    # --- reading and replacing ------------------------------------------------------------------------------

    async def _snapshot(self, wrapper: object) -> Snapshot:
        if "head" not in abilities(self.underlying_session):
            return Snapshot(await self._whole(wrapper), None)
        for _ in range(READ_ATTEMPTS_MAX):
            before = await self.head()
            items = await self._whole(wrapper)
            if before == await self.head():
                return Snapshot(items, before)
        raise CompactionError(
            f"session {self.session_id!r} was written to all the time and could not be read in one piece",
            "Compact it when it is quieter.",
        )

    async def _swap(self, snapshot: Snapshot, new: list[Item], wrapper: object) -> None:
        """Replace the history that was read by the new one; items appended since stay (B3)."""
        if snapshot.head is not None and "replace" in abilities(self.underlying_session):
            await self.replace(new, upto=snapshot.head)
        else:
            await self._rewrite(snapshot.items, new, wrapper)

    # --- plain sessions ------------------------------------------------------------------------------

    async def add_items(self, items: list[Item], *, wrapper: ContextForSession = None) -> None:
        """Append one batch, in order; on a plain session never during a replacement."""
        if "replace" in abilities(self.underlying_session):
            return await super().add_items(items, wrapper=wrapper)
        async with self._lock:
            return await super().add_items(items, wrapper=wrapper)

    async def pop_item(self, *, wrapper: ContextForSession = None) -> Item | None:
        """Remove and return the newest item; None when there is none."""
        if "replace" in abilities(self.underlying_session):
            return await super().pop_item(wrapper=wrapper)
        async with self._lock:
            return await super().pop_item(wrapper=wrapper)

    async def clear_session(self, *, wrapper: ContextForSession = None) -> None:
        """Remove everything stored for this session id."""
        if "replace" in abilities(self.underlying_session):
            return await super().clear_session(wrapper=wrapper)
        async with self._lock:
            self._replaced = None
            return await super().clear_session(wrapper=wrapper)

    async def _rewrite(self, old: list[Item], new: list[Item], wrapper: object) -> None:
        """Capture, clear and write; the cancelled caller waits, since half a rewrite is a lost history."""
        async with self._lock:
            captured = await self._whole(wrapper)
            if _forms(captured[: len(old)]) != _forms(old):
                raise CompactionError(
                    f"session {self.session_id!r} no longer begins with the history that was read",
                    "Somebody removed or replaced items meanwhile; nothing was changed. Compact it again.",
                )
            behind = captured[len(old) :]
            await _to_the_end(self._clear_and_write(captured, [*new, *behind], wrapper))
            self._replaced = (old, new)

    async def _clear_and_write(self, captured: list[Item], new: list[Item], wrapper: object) -> None:
        try:
            await SessionWrapper.clear_session(self, wrapper=wrapper)
            await SessionWrapper.add_items(self, new, wrapper=wrapper)
        except (Exception, asyncio.CancelledError) as first:
            try:
                if await self._bring_back(captured, new, wrapper):
                    return  # it had been written after all
            except Exception as trouble:
                raise self._lost(captured, trouble) from first
            raise

    async def _bring_back(self, old: list[Item], new: list[Item], wrapper: object) -> bool:
        """Restore the old history, each item once, by comparison; return True if the new one is stored instead."""
        others: list[Item] = []
        trouble: Exception | None = None
        for _ in range(RESTORE_ATTEMPTS_MAX):
            try:
                seen = await self._whole(wrapper)
                plan = restoration(_forms([*old, *others]), _forms(new), _forms(seen))
                match plan.verdict:
                    case "old":
                        return False
                    case "new":
                        return True
                    case "add":
                        await SessionWrapper.add_items(self, [*old, *others][plan.start :], wrapper=wrapper)
                    case "clear":  # what others wrote meanwhile goes behind the old history
                        others = self._others(old, new, seen, others)
                        await SessionWrapper.clear_session(self, wrapper=wrapper)
            except Exception as error:
                trouble = error
        seen = await self._whole(wrapper)
        if restoration(_forms([*old, *others]), _forms(new), _forms(seen)).verdict == "old":
            return False
        raise trouble or self._lost([*old, *others], None)

    @staticmethod
    def _others(old: list[Item], new: list[Item], seen: list[Item], known: list[Item]) -> list[Item]:
        """Return other writers' items as seen now; if a failed clear has left only a part of them, as seen before."""
        found = seen[restoration(_forms(old), _forms(new), _forms(seen)).start :]
        there, size = _forms(known), len(found)
        again = any(there[at : at + size] == _forms(found) for at in range(len(there) - size + 1))
        return known if again else found

    def _lost(self, history: list[Item], trouble: Exception | None) -> CompactionError:
        why = "" if trouble is None else f" ({type(trouble).__name__}: {trouble})"
        error = CompactionError(
            f"session {self.session_id!r} failed while its history was being replaced, and could not be restored{why}",
            "The whole history is in this error's `history`: write it back, or keep it.",
        )
        error.history = history
        return error


def _forms(items: Sequence[Item]) -> list[bytes]:
    return [canonical(item) for item in items]


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work despite cancellations, then raise the first cancellation."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        if not task.cancelled() and (trouble := task.exception()) is not None:
            cancelled.add_note(f"Meanwhile: {type(trouble).__name__}: {trouble}")
        raise cancelled
    return task.result()
