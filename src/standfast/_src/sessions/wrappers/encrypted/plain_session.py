"""Sealed session over a session with the five methods of the protocol only, such as a session class of the program.

Each item is sealed before the wrapped session stores anything, and becomes a dict of three texts. Altered items and
items of a different session or tenant do not open. A plain session has no head: a cut or an old copy stays unnoticed,
and no ability of part B survives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from standfast._src.base.errors import ReadBudgetError, SealBrokenError
from standfast._src.base.json_values import Item, encode
from standfast._src.sessions.client.session_wrapper import ContextForSession, SessionWrapper
from standfast._src.sessions.protocol import NO_LIMIT, Ability, Session, effective_limit, require
from standfast._src.sessions.signatures import has_parameter
from standfast._src.sessions.storage import Name
from standfast._src.sessions.wrappers.encrypted.sealed_records import (
    END,
    MIDDLE,
    START,
    Opened,
    Records,
    authors_of,
    fault_in,
    wrong,
)


class EncryptedPlainSession(SessionWrapper):
    """Result of `EncryptedSession(...)` around a plain session: sealed items, and no abilities.

    A missing key, or a key that opens nothing, raises SealKeyError. Altered records are left out.
    """

    declared_abilities: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self, session_id: str, underlying_session: Session, records: Records, max_scan_items: float | None
    ) -> None:
        super().__init__(underlying_session)
        self.session_id, self._name, self._records = session_id, Name("session", session_id), records
        self.ttl, self.max_scan_items = records.ttl_s, max_scan_items

    async def get_items(self, limit: int | None = None, *, wrapper: ContextForSession = None) -> list[Item]:
        """Return the whole history, or the latest `limit` items; oldest first. Expired items are left out.

        Raises ReadBudgetError for a read of more than `max_scan_items` records.
        """
        wanted = effective_limit(limit, self.session_settings)
        if wanted == 0:
            return []
        asked = self._within_budget(wanted)
        while True:
            stored = await self._fetch(asked, wrapper)
            items = [item for item in _items_in(await self._read(stored, wrapper)) if item is not None]
            if asked is None or len(stored) < asked or (wanted is not None and len(items) >= wanted):
                return items if wanted is None else items[-wanted:]
            if self.max_scan_items is not None and asked >= self.max_scan_items:
                raise ReadBudgetError(
                    f"session {self.session_id!r} has more than the {self.max_scan_items} records of one read",
                    "Raise max_scan_items, or give a limit.",
                )
            asked = self._within_budget(asked * 2)  # records left out make room for older ones

    async def add_items(self, items: list[Item], *, wrapper: ContextForSession = None) -> None:
        """Seal a batch and append the sealed items with one call of the wrapped session."""
        await self._check_key(wrapper)
        rows = zip([encode(item) for item in items], authors_of([None] * len(items)), strict=True)
        sealed = [json.loads(row) for row in self._records.sealed_rows(self._name, rows)]
        await super().add_items(sealed, wrapper=wrapper)

    async def pop_item(self, *, wrapper: ContextForSession = None) -> Item | None:
        """Remove and return the newest item, or None in an empty session. Expired items on the way are removed."""
        while True:
            newest = await self._fetch(1, wrapper)
            if not newest:
                return None
            if fault_in((await self._read(newest, wrapper))[0] or b"")[0]:
                raise SealBrokenError(
                    f"the newest record of session {self.session_id!r} does not open, and stays",
                    "Give the key of the record, or remove the record from the wrapped session.",
                )
            popped = await super().pop_item(wrapper=wrapper)
            item = _items_in(await self._read([popped], wrapper))[0] if popped is not None else None
            if item is not None or popped is None:
                return item

    async def clear_session(self, *, wrapper: ContextForSession = None) -> None:
        """Remove everything stored for this session id. Raises SealKeyError, with nothing changed, for a wrong key."""
        await self._check_key(wrapper)
        await super().clear_session(wrapper=wrapper)

    async def _fetch(self, limit: int | None, wrapper: ContextForSession) -> list[Item]:
        """Return the latest stored records; without a limit all records, despite a default limit."""
        if limit is None and has_parameter(self.underlying_session.get_items, "limit"):
            limit = NO_LIMIT if getattr(self.session_settings, "limit", None) is not None else None
        return await super().get_items(limit, wrapper=wrapper)

    def _within_budget(self, limit: int | None) -> int | None:
        if self.max_scan_items is None:
            return limit
        return int(self.max_scan_items) if limit is None else min(limit, int(self.max_scan_items))

    async def _read(self, stored: Sequence[Item], wrapper: ContextForSession) -> list[bytes | None]:
        """Return the contents of stored records. Raises SealKeyError if the keys open no record of the history."""
        opened = self._open_rows(stored)
        if opened.is_doubtful and self._records.unreadable == "raise":
            # Altered records, or the wrong key? If nothing at all opens, it is the key.
            if self._open_rows(await self._fetch(None, wrapper)).is_doubtful:
                raise wrong(self._name, self._records.ring.current)
        elif stored:
            self._records.fitting.add(self._name)
        return opened.data

    def _open_rows(self, stored: Sequence[object]) -> Opened:
        return self._records.opened_rows(self._name, [_as_row(item) for item in stored], authors=False)

    async def _check_key(self, wrapper: ContextForSession) -> None:
        """Read the newest record, once in a session object, and refuse a write or a clear with a wrong key."""
        if self._name in self._records.fitting or self._records.unreadable != "raise":
            return
        await self._read(await self._fetch(1, wrapper), wrapper)
        self._records.fitting.add(self._name)

    def _require(self, ability: Ability) -> Any:
        # Not of the wrapped session: what goes around the five methods would be stored in clear.
        return require(self, ability)


def _items_in(opened: Sequence[bytes | None]) -> list[Item | None]:
    """Return the items, with None for each record to leave out."""
    return [None if data is None or fault_in(data)[0] else json.loads(data) for data in opened]


def _as_row(item: object) -> bytes:
    """Return a stored record as bytes of the sealed format, with the fields in order."""
    match item:
        case {"__enc__": 2, "kid": str(key_id), "payload": str(payload)}:  # what a store adds beside them is not read
            texts = [one.encode(errors="surrogatepass") for one in (key_id, payload)]
            return START + texts[0] + MIDDLE + texts[1] + END
        case dict():
            with suppress(TypeError, ValueError, RecursionError):
                return json.dumps(item).encode()
    return b"{}"  # whatever it is, it was not sealed, and is no item
