"""Mistakes that a cancellation, a stall or a corrupt record brings to light."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from standfast._kits.conformance.reference_session import ReferenceSession
from standfast._src.base.errors import SessionBusyError
from standfast._src.sessions.protocol import Head
from tests.conformance.mistakes.mistake import Items, breaks

# --- cancellation and deadlines -------------------------------------------------------------------


@breaks("A13", "a_cancelled_pop_loses_nothing")
class LosesACancelledPop(ReferenceSession):
    """loses the item of a pop that is cancelled on its way back."""

    async def pop_item(self) -> Any:
        item = await super().pop_item()
        await asyncio.sleep(0)
        return item


@breaks("A13", "a_cancelled_call_leaves_the_store_as_before_or_after")
class LeaksALock(ReferenceSession):
    """keeps its lock when it is cancelled."""

    async def add_items(self, items: Items) -> None:
        held = self.store.__dict__.setdefault("held", {})
        deadline = time.monotonic() + 1
        while held.get(self.session_id):
            if time.monotonic() > deadline:
                raise SessionBusyError("the session is locked", "Find out who has the lock.")
            await asyncio.sleep(0.01)
        held[self.session_id] = True
        await asyncio.sleep(0)
        await super().add_items(list(items))
        held[self.session_id] = False


@breaks("A13", "a_cancelled_call_leaves_the_store_as_before_or_after")
class ClearsHalf(ReferenceSession):
    """clears in two steps that a cancellation can come between."""

    async def clear_session(self) -> None:
        await self.pop_item()
        await asyncio.sleep(0)
        await super().clear_session()


@breaks("A13", "a_cancelled_change_leaves_the_store_as_before_or_after")
class CountsFirst(ReferenceSession):
    """counts an append before it is stored."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        head = await super().append(items, writer=writer, start=start, **options)
        if start:
            popped = [await self.pop_item() for _ in items]
            await asyncio.sleep(0)
            await self.add_items(popped[::-1])
        return head


@breaks("A13", "a_call_past_its_deadline_says_so")
class NoDeadline(ReferenceSession):
    """waits for ever."""

    def __init__(self, session_id: str, *, timeout_s: float = 30, **options: Any) -> None:
        super().__init__(session_id, timeout_s=1e9, **options)


@breaks("A13", "a_cancelled_caller_gets_control_back_from_a_store_that_stalls")
class FinishesFirst(ReferenceSession):
    """finishes its write before it lets a cancelled caller go."""

    async def add_items(self, items: Items) -> None:
        writing = asyncio.ensure_future(super().add_items(list(items)))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise


@breaks("A13", "readers_and_other_sessions_work_after_a_stall")
class DoesItLater(ReferenceSession):
    """does a cancelled write later."""

    async def add_items(self, items: Items) -> None:
        writing = asyncio.ensure_future(super().add_items(list(items)))
        self.store.__dict__.setdefault("writing", set()).add(writing)
        await asyncio.shield(writing)


# --- corrupt records ------------------------------------------------------------------------------


@breaks("A14", "a_corrupt_record_hides_no_history")
class CorruptHides(ReferenceSession):
    """stops reading at a corrupt record."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [] if await self.corrupt_records() else await super().get_items(limit)


@breaks("A14", "a_pop_takes_a_valid_item_and_leaves_corrupt_records")
class DeletesCorrupt(ReferenceSession):
    """deletes corrupt records on the way to the newest item."""

    async def pop_item(self) -> Any:
        talk = self.store.conversation(self.session_id)
        talk.rows = [row for row in talk.rows if not row.fault]
        return await super().pop_item()


@breaks("A14", "corrupt_records_are_listed_oldest_first")
class ListsNothingCorrupt(ReferenceSession):
    """lists no corrupt records."""

    async def corrupt_records(self) -> list[Any]:
        return []


@breaks("A14", "a_replace_an_undo_and_a_fork_delete_no_corrupt_record")
class ReplaceDeletesCorrupt(ReferenceSession):
    """deletes corrupt records when it replaces."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        talk = self.store.conversation(self.session_id)
        head = await super().replace(items, upto=upto, lease=lease)
        talk.rows = [row for row in talk.rows if not row.fault]
        return head


@breaks("A14", "a_corrupt_record_is_logged_once_and_without_its_content")
class LogsTheContent(ReferenceSession):
    """logs what a corrupt record says."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        import logging

        for record in await self.corrupt_records():
            logging.getLogger("broken").warning("corrupt: %r", record.data)
        return await super().get_items(limit)
