"""Sealed record: stored in place of the contents of a row or a cell (AES-256-GCM).

A row stays a JSON object, because every store and the OpenAI Agents SDK expect one: `{"__enc__":2,"kid":"<key
id>","payload":"<base64 of header, nonce, ciphertext>"}`. The header has the writer, the number and the time of the row.
It is readable and authenticated, so that reading a history needs no further request. The tenant and the session are
authenticated with it. So an altered row, or a row of another session or tenant, does not open. A repeated row, or one
before an earlier row of its writer, is found by the header.

A cell (a writer's count, a saved run) is bytes: its name is authenticated too.
"""

from __future__ import annotations

import os
import struct
import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Literal, NamedTuple

from cryptography.exceptions import InvalidTag

from standfast._src.base.errors import SealBrokenError, SealKeyError
from standfast._src.sessions.rules.history import SEALED as CELL_START, UNOPENED
from standfast._src.sessions.storage import Name, Tag
from standfast._src.sessions.wrappers.encrypted.keys import Key, KeyRing, join_parts, text_bytes

START, MIDDLE, END = b'{"__enc__":2,"kid":"', b'","payload":"', b'"}'
NONCE_BYTES = 12
HEADER = struct.Struct(">4sQQBI")
"""What the key is known by, microseconds since 1970, the number, whether a writer has a name, and its length."""

NOT_SEALED = "not sealed"
ALTERED = "altered, or sealed for another place"
OUT_OF_ORDER = "there twice, or not in the order its writer wrote"
MISSING = "sealed with a key that was not given"
OTHER_KEY = "sealed with another key"

Unreadable = Literal["raise", "leave_out"]
Foreign = Callable[[Name, bytes], "bytes | None"]
"""Opens a record of another format; None if it is none, or too old."""


class Author(NamedTuple):
    """Writer of a row, the row's number, and its time in microseconds since 1970.

    A batch without a writer (`add_items`) has a random name in place of a writer's.
    """

    writer: bytes
    number: int
    is_named: bool
    stamp: int

    def header(self, check: bytes) -> bytes:
        """The header of a row."""
        return HEADER.pack(check, self.stamp, self.number, self.is_named, len(self.writer)) + self.writer

    @property
    def who(self) -> bytes:
        """The writer or batch: names of writers never meet those of batches."""
        return b"1" + self.writer if self.is_named else b"0" + self.writer

    def tag(self, replaces: int) -> Tag:
        """The tag of the row, as its author's numbers say."""
        return Tag(self.writer.decode(), self.number, replaces) if self.is_named else Tag(replaces=replaces)


class Opened(NamedTuple):
    """Result of opening stored rows: contents in order, None for expired rows."""

    data: list[bytes | None]
    authors: list[Author | None]
    is_doubtful: bool
    """Nothing opened, and something says that it was sealed with another key: perhaps all of it was."""


def scope_of(name: Name) -> str:
    """Return the scope of a name's key, except for a run of a session."""
    return f"{name.kind}/{name.id}"


def place_of(tenant: str, name: Name) -> bytes:
    """Return the authenticated data for the place of a row."""
    return join_parts(b"row", text_bytes(tenant), name.kind.encode(), text_bytes(name.id))


def cell_place(tenant: str, name: Name, cell: str, scope: str) -> bytes:
    """Return the authenticated data for the place of a cell."""
    parts = (text_bytes(tenant), name.kind.encode(), text_bytes(name.id), text_bytes(cell), text_bytes(scope))
    return join_parts(b"cell", *parts)


def authors_of(tags: Iterable[Tag | None]) -> list[Author]:
    """Return the authors of new rows, written now; rows without a writer are one batch, numbered without a gap."""
    stamp, batch, places = time.time_ns() // 1000, os.urandom(8), count()
    return [
        Author(tag.writer.encode(), tag.ordinal, True, stamp)
        if tag is not None and tag.writer
        else Author(batch, next(places), False, stamp)
        for tag in tags
    ]


def mark_unopened(stored: bytes, reason: str) -> bytes:
    """Return a placeholder for a record that could not be opened."""
    return UNOPENED + reason.encode() + b"\x00" + stored


def fault_in(data: bytes) -> tuple[str, bytes]:
    """Return the reason why a record did not open, and the stored data; "" and the record itself if it opened."""
    if not data.startswith(UNOPENED):
        return "", data
    reason, _, stored = data[len(UNOPENED) :].partition(b"\x00")
    return reason.decode(), stored


class Records:
    """Seals and opens the records of a store with a ring of keys."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        ttl_s: float | None = None,
        unreadable: Unreadable = "raise",
        foreign: Foreign | None = None,
    ) -> None:
        self.ring, self.ttl_s, self.unreadable, self._foreign = ring, ttl_s, unreadable, foreign
        self.fitting: set[Name] = set()
        """Names whose rows these keys have opened, or sealed: what is written there can be read again."""

    def check(self, name: Name) -> None:
        """Raise SessionErasedError if the key of a session was destroyed, though nothing of it may be left to open."""
        if self.ring.session_keys is not None and name.kind == "session":
            self.ring.session_keys.key_of(self.ring.tenant, scope_of(name), make=False)

    # --- rows --------------------------------------------------------------------------------------------------------

    def sealed_rows(self, name: Name, rows: Iterable[tuple[bytes, Author]]) -> list[bytes]:
        """Return rows in their stored form."""
        key, place = self.ring.sealing_key(scope_of(name)), place_of(self.ring.tenant, name)
        start = START + self.ring.current.encode() + MIDDLE
        sealed: list[bytes] = []
        for data, author in rows:
            header, nonce = author.header(key.check), os.urandom(NONCE_BYTES)
            inside = header + nonce + key.cipher.encrypt(nonce, data, place + header)
            sealed.append(start + b2a_base64(inside, newline=False) + END)
        return sealed

    def opened_rows(
        self, name: Name, stored: Sequence[bytes], *, authors: bool = True, whatever_age: bool = False
    ) -> Opened:
        """Return the contents of stored rows. A missing key is an error; other unopened rows are left out.

        This is the most frequent operation, so the loop is written out. `authors=False` leaves authors out.
        """
        oldest = 0 if self.ttl_s is None or whatever_age else int((time.time() - self.ttl_s) * 1e6)
        place, start, key = place_of(self.ring.tenant, name), b"\xff", None
        found, order, has_other_key = Opened([], [], False), _Order(), False
        unpack, fixed, skip = HEADER.unpack_from, HEADER.size, 0
        for data in stored:
            if not data.startswith(start):
                start, key = self._key_for(name, data) or (b"\xff", None)
                skip = len(start)
            if key is None:
                found.data.append(self._handle_unsealed(name, data))
                found.authors.append(None)
                continue
            try:
                inside = a2b_base64(data[skip:-2])
                _, stamp, number, is_named, length = unpack(inside)
                end = fixed + length
                at = end + NONCE_BYTES
                plain: bytes | None = key.cipher.decrypt(inside[end:at], inside[at:], place + inside[:end])
            except (InvalidTag, ValueError, struct.error):
                is_other = not data.startswith(_payload_prefix(key.check), skip)
                has_other_key = has_other_key or is_other
                found.data.append(mark_unopened(data, OTHER_KEY if is_other else ALTERED))
                found.authors.append(None)
                continue
            if stamp < oldest:
                plain = None
            elif order.is_broken(inside[fixed - 5 : end], number, stamp):
                plain = mark_unopened(data, OUT_OF_ORDER)
            found.data.append(plain)
            if authors:
                found.authors.append(Author(inside[fixed:end], number, bool(is_named), stamp))
        is_doubtful = has_other_key and all(data is not None and data.startswith(UNOPENED) for data in found.data)
        return found._replace(is_doubtful=is_doubtful)

    def _key_for(self, name: Name, data: bytes) -> tuple[bytes, Key] | None:
        """How rows of the same key begin, and the key; None if it is no sealed row, or its key may be missing."""
        end = data.find(MIDDLE, len(START), len(START) + 64 + len(MIDDLE)) if data.startswith(START) else -1
        if end < 0:
            return None
        key_id = data[len(START) : end].decode(errors="replace")
        key = self.ring.opening_key(key_id, scope_of(name))
        if key is None and self.unreadable == "raise":
            raise missing_key_error(name, key_id, self.ring)
        return None if key is None else (data[: end + len(MIDDLE)], key)

    def _handle_unsealed(self, name: Name, data: bytes) -> bytes | None:
        """What a record without a key of ours becomes: another format's contents, or something to leave out."""
        if data.startswith(START):
            return mark_unopened(data, MISSING)
        if self._foreign is not None and b'"__enc__"' in data:
            return self._foreign(name, data)
        # What is no JSON object anyway stays as it is. Everything else would be taken for an item.
        return mark_unopened(data, NOT_SEALED) if data.lstrip()[:1] == b"{" else data

    # --- cells -------------------------------------------------------------------------------------------------------

    def sealed_cell(self, name: Name, cell: str, scope: str, value: bytes) -> bytes:
        """A cell's value as it is stored."""
        key, nonce = self.ring.sealing_key(scope), os.urandom(NONCE_BYTES)
        header = CELL_START + join_parts(self.ring.current.encode(), text_bytes(scope)) + key.check + nonce
        return header + key.cipher.encrypt(nonce, value, cell_place(self.ring.tenant, name, cell, scope) + header)

    def opened_cell(self, name: Name, cell: str, stored: bytes) -> tuple[bytes, str]:
        """Return a cell's value and scope; raise an error with the reason if the cell does not open."""
        parts = _cell_parts(stored)
        if parts is None:
            raise broken(name, cell, NOT_SEALED)
        key_id, scope, end = parts
        key = self.ring.opening_key(key_id, scope)
        if key is None:
            raise missing_key_error(name, key_id, self.ring)
        check, header = stored[end - NONCE_BYTES - len(key.check) : end - NONCE_BYTES], stored[:end]
        if check != key.check:
            raise wrong(name, key_id)
        place = cell_place(self.ring.tenant, name, cell, scope)
        try:
            return key.cipher.decrypt(stored[end - NONCE_BYTES : end], stored[end:], place + header), scope
        except InvalidTag:
            raise broken(name, cell, ALTERED) from None


class _Order:
    """Detector of repeated rows, and of rows in another order than their writer or batch wrote them."""

    def __init__(self) -> None:
        self._latest: dict[bytes, tuple[int, int]] = {}

    def is_broken(self, who: bytes, number: int, stamp: int) -> bool:
        """Return whether a row is a repeated or older one of its writer, at a later place."""
        before = self._latest.get(who)
        # A number comes again, later, where its writer rewound. What comes again as it was, or older, was put there.
        if before is not None and number <= before[0] and stamp <= before[1]:
            return True
        self._latest[who] = number, stamp
        return False


def _payload_prefix(check: bytes) -> bytes:
    """How the payload of a row begins that was sealed with the key known by this: three bytes, four characters."""
    return b2a_base64(check[:3], newline=False)


def _cell_parts(stored: bytes) -> tuple[str, str, int] | None:
    """Return the key id and the scope of a sealed cell, and the place of the ciphertext."""
    at, texts = len(CELL_START), []
    if not stored.startswith(CELL_START):
        return None
    try:
        for _ in range(2):
            (length,) = struct.unpack_from(">I", stored, at)
            texts.append(stored[at + 4 : at + 4 + length].decode("utf-8", "surrogatepass"))
            at += 4 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return texts[0], texts[1], at + 4 + NONCE_BYTES


# --- what is said when it does not open -------------------------------------------------------------------------------


def missing_key_error(name: Name, key_id: str, ring: KeyRing) -> SealKeyError:
    """The error for a record under a key id that was not given."""
    return SealKeyError(
        f"{name.kind} {name.id!r} has records under key {key_id!r}, and the keys given are {sorted(ring.secrets)}; "
        "nothing was changed",
        "Give that key too, under its id. If it is lost for good, open the session with unreadable='leave_out'.",
    )


def wrong(name: Name, key_id: str) -> SealKeyError:
    """The error for a key that opens nothing."""
    return SealKeyError(
        f"the key {key_id!r} is not the one that {name.kind} {name.id!r} was sealed with; nothing was changed",
        "Give the secret, tenant and session_keys that it was written with. If they are lost for good, open it with "
        "unreadable='leave_out'.",
    )


def broken(name: Name, cell: str, why: str) -> SealBrokenError:
    """Return the error for an untrusted cell: a cell cannot be left out like a row."""
    return SealBrokenError(
        f"record {cell!r} of {name.kind} {name.id!r} cannot be used, it is {why}; nothing was changed",
        "Restore the store from a copy, or clear the session. A session that was written without encryption is taken "
        "over by copying its items into an encrypted one.",
    )
