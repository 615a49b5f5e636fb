"""Mistakes in times, values and ids."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from standfast._kits.conformance.reference_session import ReferenceSession
from standfast._src.sessions.protocol import SessionInfo
from tests.conformance.mistakes.mistake import Items, breaks

# --- times, values, ids ---------------------------------------------------------------------------


@breaks("A16", "the_creation_time_is_set_once_and_the_update_time_moves_with_changes")
class WholeSeconds(ReferenceSession):
    """keeps times in whole seconds."""

    async def info(self) -> SessionInfo | None:
        info = await super().info()
        if info is None:
            return None
        return SessionInfo(
            info.session_id, info.created_at.replace(microsecond=0), info.updated_at.replace(microsecond=0)
        )


@breaks("A16", "what_changes_nothing_does_not_move_the_update_time")
class ReadsTouch(ReferenceSession):
    """moves the update time when it is read."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        talk = self.store.conversation(self.session_id)
        if talk.updated_at is not None:
            talk.updated_at = datetime.now(UTC)
        return await super().get_items(limit)


@breaks("A16", "the_update_time_never_moves_back")
class TimeMovesBack(ReferenceSession):
    """takes the clock as it is."""

    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items))
        self.store.conversation(self.session_id).updated_at = datetime.fromtimestamp(time.time(), UTC)


@breaks("A16", "times_stored_by_a_clock_ahead_never_move_back")
class PopTakesTheClock(ReferenceSession):
    """takes the clock as it is when it pops."""

    async def pop_item(self) -> Any:
        item = await super().pop_item()
        self.store.conversation(self.session_id).updated_at = datetime.fromtimestamp(time.time(), UTC)
        return item


@breaks("A16", "neither_times_nor_backend_ids_show_up_in_an_item")
class AddsAnId(ReferenceSession):
    """puts its own id into the items."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [{**item, "id": number} for number, item in enumerate(await super().get_items(limit))]


@breaks("A17", "the_callers_objects_are_neither_changed_nor_shared")
class MutatesTheCaller(ReferenceSession):
    """writes into the caller's items."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([dict(item) for item in items])
        for item in items:
            item["stored"] = True


@breaks("A17", "the_callers_objects_are_neither_changed_nor_shared")
class SharesObjects(ReferenceSession):
    """gives every reader the same objects."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        cache = self.store.__dict__.setdefault("cache", {})
        return [cache.setdefault(json.dumps(item), item) for item in await super().get_items(limit)]


@breaks("A17", "plain_values_come_back_equal")
class ChangesNumberKinds(ReferenceSession):
    """turns 1.0 into 1."""

    async def add_items(self, items: Items) -> None:
        def change(value: Any) -> Any:
            if isinstance(value, float) and value.is_integer():
                return int(value)
            if isinstance(value, dict):
                return {key: change(inner) for key, inner in value.items()}
            return [change(inner) for inner in value] if isinstance(value, list) else value

        await super().add_items([change(item) for item in items])


@breaks("A17", "plain_values_come_back_equal")
class SortsKeys(ReferenceSession):
    """sorts the keys."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [json.loads(json.dumps(item, sort_keys=True)) for item in await super().get_items(limit)]


@breaks("A17", "hard_values_come_back_equal_or_are_refused")
class RoundsIntegers(ReferenceSession):
    """reads large integers as floats."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        def read(text: str) -> Any:
            return float(text) if abs(int(text)) >= 2**64 and len(text) < 300 else int(text)

        return [json.loads(json.dumps(item), parse_int=read) for item in await super().get_items(limit)]


@breaks("A17", "what_json_cannot_hold_is_refused_and_never_changed")
class TurnsTuplesIntoLists(ReferenceSession):
    """stores what json.dumps makes of it."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([json.loads(json.dumps(item, default=str)) for item in items])


@breaks("A17", "what_is_no_item_is_refused")
class WrapsWhatIsNoItem(ReferenceSession):
    """makes an item of what is none."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([item if isinstance(item, dict) else {"content": item} for item in items])


@breaks("A17", "any_json_object_comes_back_equal")
class LeavesEmptyListsOut(ReferenceSession):
    """leaves empty lists out."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [{key: value for key, value in item.items() if value != []} for item in await super().get_items(limit)]


@breaks("A18", "different_ids_never_meet")
class StripsIds(ReferenceSession):
    """strips session ids."""

    async def add_items(self, items: Items) -> None:
        await ReferenceSession(self.session_id.strip() or "_", store=self.store).add_items(list(items))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await ReferenceSession(self.session_id.strip() or "_", store=self.store).get_items(limit)


@breaks("A18", "what_is_no_id_is_refused")
class TakesAnyId(ReferenceSession):
    """takes the empty id."""

    def __init__(self, session_id: str, **options: Any) -> None:
        super().__init__(str(session_id or "default"), **options)
