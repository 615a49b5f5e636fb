"""Sealed session over a session with the five methods of the protocol only, such as a session class of the program.

Each item is sealed before the wrapped session stores anything, and becomes a dict of three texts. Altered items and
items of a different session or tenant do not open. A plain session has no head: a cut or an old copy stays unnoticed,
and no ability of part B survives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from standfast._src.base.errors import ReadBudgetError, SealBrokenError
from standfast._src.base.json_values import Item, encode
from standfast._src.sessions.client.session_wrapper import ContextForSession, SessionWrapper
from standfast._src.sessions.protocol import NO_LIMIT, Session, effective_limit
from standfast._src.sessions.signatures import has_parameter
from standfast._src.sessions.storage import Name
from standfast._src.sessions.wrappers.encrypted.sealed_records import END, MIDDLE, START, Records, authors_of, fault_in


class EncryptedPlainSession(SessionWrapper):
    """Result of `EncryptedSession(...)` around a plain session: sealed items, and no abilities.

    A record under a missing or another key raises SealKeyError or SealBrokenError. Altered records are left out.
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
            items = [item for item in self._open(stored) if item is not None]
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
        rows = zip([encode(item) for item in items], authors_of([None] * len(items)), strict=True)
        sealed = [json.loads(row) for row in self._records.sealed_rows(self._name, rows)]
        await super().add_items(sealed, wrapper=wrapper)

    async def pop_item(self, *, wrapper: ContextForSession = None) -> Item | None:
        """Remove and return the newest item, or None in an empty session. Expired items on the way are removed."""
        while True:
            newest = await self._fetch(1, wrapper)
            if not newest:
                return None
            if self._open(newest) == [None] and fault_in(self._read(newest)[0] or b"")[0]:
                raise SealBrokenError(
                    f"the newest record of session {self.session_id!r} does not open, and stays",
                    "Give the key of the record, or remove the record from the wrapped session.",
                )
            popped = await super().pop_item(wrapper=wrapper)
            item = self._open([popped])[0] if popped is not None else None
            if item is not None or popped is None:
                return item

    async def _fetch(self, limit: int | None, wrapper: ContextForSession) -> list[Item]:
        """Return the latest stored records; without a limit all records, despite a default limit."""
        if limit is None and has_parameter(self.underlying_session.get_items, "limit"):
            limit = NO_LIMIT if getattr(self.session_settings, "limit", None) is not None else None
        return await super().get_items(limit, wrapper=wrapper)

    def _within_budget(self, limit: int | None) -> int | None:
        if self.max_scan_items is None:
            return limit
        return int(self.max_scan_items) if limit is None else min(limit, int(self.max_scan_items))

    def _open(self, stored: Sequence[Item]) -> list[Item | None]:
        """Return the items in stored records, with None for each record to leave out."""
        return [None if data is None or fault_in(data)[0] else json.loads(data) for data in self._read(stored)]

    def _read(self, stored: Sequence[Item]) -> list[bytes | None]:
        return self._records.opened_rows(self._name, [_as_row(item) for item in stored], authors=False).data


def _as_row(item: Item) -> bytes:
    """Return a stored record as bytes of the sealed format, with the fields in order."""
    match item:
        case {"__enc__": 2, "kid": str(key_id), "payload": str(payload)} if len(item) == 3:
            return START + key_id.encode() + MIDDLE + payload.encode() + END
    return json.dumps(item).encode()
