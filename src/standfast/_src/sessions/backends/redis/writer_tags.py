"""Writer tags: the author of each row, encoded as white space behind its JSON.

JSON readers do not see it, it cannot be separated from the row, and the ref in it makes each row of ours unique. Three
other places were tried for it and rejected: a parallel list drifts apart when the SDK pops, a hash by content cannot
tell two equal items apart, and a wrapped item would no longer be the SDK's (B10).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from standfast._src.sessions.storage import NOBODY, Row, Tag

TAG, WRITER, ORDINAL, REPLACES, REF = 88, 32, 16, 12, 28
# Widths in characters, of which four are a byte: of the whole tag, then of its parts in their order.
_TO = bytes.maketrans(b"0123", b" \t\n\r")
_FROM = bytes.maketrans(b" \t\n\r", b"0123")
_BYTE = [(b"%d%d%d%d" % (n >> 6, n >> 4 & 3, n >> 2 & 3, n & 3)).translate(_TO) for n in range(256)]
_PAIR = {high: [_BYTE[high] + low for low in _BYTE] for high in range(256)}


@lru_cache(64)  # most of a ref is a time, and stays the same for a while
def encode_number(number: int, width: int) -> bytes:
    """A number as white space, four characters for each byte."""
    return b"".join([_BYTE[byte] for byte in number.to_bytes(width // 4, "big")])


@lru_cache(4096)
def writer_mark(writer: str) -> bytes:
    """Return a writer's name as 32 characters; blanks for the empty name."""
    if not writer:
        return b" " * WRITER
    digest = hashlib.blake2b(writer.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return b"".join([_BYTE[byte] for byte in digest])


def encode_rows(rows: Iterable[tuple[bytes, Tag]], refs: Iterable[int]) -> list[bytes]:
    """Encode rows with the given refs for storage."""
    found: list[bytes] = []
    latest, who, high, before = NOBODY, _NOBODYS, -1, b""  # what the rows of a batch have in common is made once
    for (data, tag), ref in zip(rows, refs, strict=True):
        if tag is not latest:
            latest, (writer, ordinal, replaces) = tag, tag
            number = _BYTE[ordinal >> 24] + _BYTE[ordinal >> 16 & 255] + _PAIR[ordinal >> 8 & 255][ordinal & 255]
            who = writer_mark(writer) + number + (encode_number(replaces, REPLACES) if replaces else _NONE)
        if ref >> 16 != high:
            high = ref >> 16
            before = encode_number(high, REF - 8)
        found.append(b"".join((data, who, before, _PAIR[ref >> 8 & 255][ref & 255])))
    return found


_NONE = b" " * REPLACES
_NOBODYS = b" " * (WRITER + ORDINAL + REPLACES)


def bare(row: bytes) -> bytes:
    """The contents of a stored row."""
    # `isspace` sees at little cost most that are not ours; two of what it takes for white space JSON does not.
    is_ours = row[-TAG:].isspace() and len(row) >= TAG and not row[-TAG:].strip(b" \t\n\r")
    return row[:-TAG] if is_ours else row


def decode_rows(
    rows: Sequence[bytes], writers: Mapping[bytes, str], first: int, floor: int, below: int, *, boxed: bool
) -> list[Row]:
    """Stored rows with their refs and tags.

    `first` is the ref of the first. A row of another program counts on from the row before it, or, from place `floor`
    on, from `below` (see `ref_at` in rows.lua). In a box all refs count on.
    """
    found, ref = [], first - 1
    for place, row in enumerate(rows):
        tail = row[-TAG:]
        if len(tail) < TAG or tail.strip(b" \t\n\r"):
            ref = (below if place == floor and below > ref else ref) + 1
            found.append(Row(ref, row, None))
            continue
        digits = tail.translate(_FROM)
        ref = ref + 1 if boxed else int(digits[-REF:], 4)
        writer = writers.get(tail[:WRITER], "") if tail[:WRITER].strip(b" ") else ""
        ordinal = int(digits[WRITER : WRITER + ORDINAL], 4)
        replaces = int(digits[WRITER + ORDINAL : -REF], 4)
        found.append(Row(ref, row[:-TAG], Tag(writer, ordinal, replaces)))
    return found
