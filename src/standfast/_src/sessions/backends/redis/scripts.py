"""Commands for looks and steps, and the decoding of their answers. No I/O.

One script does each, in one round trip. The request is JSON with nothing but numbers: names, values and contents are
arguments, which the script compares and moves and never decodes (Lua's JSON turns 12345678901234567890 into
1.2345678901235e+19 and [] into {}).
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import msgspec

from standfast._src.sessions.backends.redis.keys import NameKeys, to_bytes, to_text
from standfast._src.sessions.backends.redis.sansio import Command
from standfast._src.sessions.backends.redis.writer_tags import (
    REPLACES,
    bare,
    decode_rows,
    encode_number,
    encode_rows,
    writer_mark,
)
from standfast._src.sessions.storage import (
    Answer,
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Load,
    Name,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
    only_appends,
)
from standfast._src.sessions.storage_helpers import Description, labels_of, of_writer

EPOCH = 16  # characters in front of a cell's value: the incarnation it was written in
EXPIRED = b"expired-expired-"  # in place of the incarnation, if that has expired; see rows.lua
NAMES_REMEMBERED_MAX = 10_000  # a ref that is guessed too low is not used by the server, so forgetting is safe

OLDEST_REF = 10**15
# In microseconds: 2001. A ref below that counts rows, it tells no time.


Script = tuple[str, str]
"""A Lua program, and the name the server caches it under."""


def _script(*names: str) -> Script:
    folder = files("standfast._src.sessions.backends.redis")
    text = "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


LOOK, COMMIT, APPEND = _script("rows", "look"), _script("rows", "commit"), _script("append")
TAKE_OUT = _script("take_out")

APPEND_CELLS_MAX = 100

cell_key = lru_cache(1024)(to_bytes)
# The same few cells are named by every write of a process: its lanes, and those of the writers that are at work.


class Asked(msgspec.Struct, frozen=True, gc=False):
    """Command, the decoder of its answer, and the text of the named script."""

    command: Command
    meaning: Callable[[Any], Answer]
    script: str = ""

    def with_script(self) -> Command:
        """Return the command with the script's text, for a server without the cached script."""
        return ("EVAL", self.script, *self.command[2:])


def _call_script(
    script: Script, keys: Sequence[bytes], args: Sequence[bytes], meaning: Callable[[Any], Answer]
) -> Asked:
    text, sha = script
    return Asked(("EVALSHA", sha, len(keys), *keys, *args), meaning, text)


class Arguments:
    """Collector of arguments, with a number for each."""

    def __init__(self, *reserved: bytes) -> None:
        self.values = [b"", *reserved]

    def add(self, value: bytes) -> int:
        """Add an argument and return its number in the script."""
        self.values.append(value)
        return len(self.values)

    def with_description(self, description: object) -> list[bytes]:
        """Return all arguments, the description first."""
        self.values[0] = json.dumps(description, separators=(",", ":")).encode()
        return self.values


# --- looking ----------------------------------------------------------------------------------------------------------


def build_look(look: ReadRequest, keys: NameKeys) -> Asked:
    """Build the command for a look: an LRANGE for contents alone, otherwise the script."""
    rows = look.rows[0] if look.only_data and look.rows else Rows(limit=0)
    if rows.limit != 0 and rows == Rows(limit=rows.limit, tags=rows.tags, times=rows.times):
        return Asked(
            ("LRANGE", keys.keys[1], -(rows.limit or 0), -1),
            lambda found: ReadAnswer(data=[bare(row) for row in found]),
        )
    args = Arguments()
    want: dict[str, Any] = {
        "cells": [args.add(to_bytes(cell)) for cell in look.cells],
        "prefixes": [args.add(to_bytes(prefix)) for prefix in look.prefixes],
        "rows": [_describe_rows(rows, args) for rows in look.rows],
        "mark": look.mark,
    }
    if look.upto is not None:
        want["upto"] = args.add(to_bytes(look.upto))
    return _call_script(LOOK, keys.keys, args.with_description(want), partial(sight_of, look))


def _describe_rows(rows: Rows, args: Arguments) -> dict[str, int]:
    found = {"box": rows.box, "before": rows.before, "after": rows.after}
    if rows.writer is None:
        found["limit"] = rows.limit
    else:
        found["writer"] = args.add(writer_mark(rows.writer))
    return {what: number for what, number in found.items() if number is not None}


def sight_of(look: ReadRequest, reply: Sequence[Any]) -> ReadAnswer:
    """Decode the answer to a look."""
    mark, epoch, about, now, flat, lists, named, upto, size = reply
    writers = {named[place]: to_text(named[place + 1]) for place in range(0, len(named), 2)}
    created, updated = times_of(about)
    rows = tuple(
        of_writer(decode_rows(found, writers, *map(int, start), boxed=wanted.box > 0), wanted)
        for wanted, (*start, found) in zip(look.rows, lists, strict=True)
    )
    data: Sequence[bytes] = [row.data for row in rows[0]] if look.only_data and rows else ()
    place = int(upto)
    return ReadAnswer(
        mark=mark.decode(), now=float(now), epoch=epoch.decode(), created=created, updated=updated,
        labels=labels_of(about[5]), cells=_cells(flat, epoch), rows=rows, data=data, upto=None if place < 0 else place,
        count=int(size), times=tuple(_times(wanted, found) for wanted, found in zip(look.rows, rows, strict=True)),
    )  # fmt: skip


def _times(wanted: Rows, rows: Sequence[Row]) -> list[float | None]:
    """Return the times of rows. A ref of ours is about the microseconds since 1970; any other ref holds no time."""
    if not wanted.times:
        return []
    return [None if row.tag is None or row.ref < OLDEST_REF else row.ref / 1e6 for row in rows]


def times_of(about: Sequence[bytes | None]) -> tuple[float | None, float | None]:
    """Return the times of a name's creation and last change. The SDK's whole seconds count if they are later."""
    _, created_s, updated_s, created_us, updated_us = about[:5]
    if created_s is None and updated_s is None:
        return None, None
    updated = max(float(updated_s or 0), int(updated_us or 0) / 1e6)
    created = int(created_us) / 1e6 if created_us else float(created_s or updated)
    return created, max(created, updated)


def _cells(flat: Sequence[bytes], epoch: bytes) -> dict[str, Cell]:
    return {
        to_text(name): Cell(value[EPOCH:], bool(epoch) and value[:EPOCH] == epoch, value[:EPOCH] == EXPIRED)
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }


# --- changing ---------------------------------------------------------------------------------------------------------


class Refs:
    """Guesses of the next free ref of a name, so that a row can be encoded before the server has seen it.

    Microseconds since 1970, or one more than what was given out last. A guess that is too low is mended by the script;
    one that is too high costs nothing.
    """

    def __init__(self) -> None:
        self._last: dict[Name, int] = {}

    def guess(self, name: Name, count: int) -> int:
        """The first of `count` refs."""
        last = self._last
        first = max(last.get(name, 0) + 1, time.time_ns() // 1000)
        if len(last) >= NAMES_REMEMBERED_MAX:
            last.clear()
        last[name] = first + count - 1
        return first

    def note(self, name: Name, ref: int) -> None:
        """Remember the last used ref of a name."""
        self._last[name] = max(ref, self._last.get(name, 0))


def build_step(step: CommitRequest, keys_of: Callable[[Name], NameKeys], refs: Refs, ttl_ms: int | None) -> Asked:
    """Build the general script's command for a step."""
    args = Arguments(secrets.token_hex(EPOCH // 2).encode())
    all_keys: list[bytes] = []
    described = []
    for change in step:
        own, first = keys_of(change.name), len(all_keys) + 1
        all_keys += own.keys
        labels = sorted((change.labels or {}).items())
        labels_at = list(range(len(all_keys) + 1, len(all_keys) + 1 + len(labels)))
        all_keys += [own.index_of(change.name.kind, label) for label in labels]
        others: dict[Name, int] = {}
        for part in () if change.arrange is None else change.arrange.live:
            if isinstance(part, Range) and part.of is not None and part.of not in others:
                others[part.of] = len(all_keys) + 1
                all_keys += keys_of(part.of).keys
        found = _Numbered(change, args, refs, others).made()
        found |= {"first": first, "labels_at": labels_at, "hold": math.ceil(change.hold_s * 1000)}
        if change.name.kind == "session":
            found["whole"] = 1 if own.is_shared else 2
        if ttl_ms is not None:
            found["ttl"] = ttl_ms
        described.append(found)
    return _call_script(COMMIT, all_keys, args.with_description(described), lambda reply: outcome_of(step, reply, refs))


def build_append(step: CommitRequest, keys: NameKeys, refs: Refs, ttl_ms: int | None) -> Asked | None:
    """Build the small script's command for a plain append; return None for any other step."""
    change = step[0]
    if not only_appends(step) or len(change.put) > APPEND_CELLS_MAX:
        return None
    push = change.push
    base = refs.guess(change.name, len(push))
    writers: dict[str, None] = {}
    for _, tag in push:
        if tag.writer:
            writers[tag.writer] = None
    wants, puts, names = b"%d" % len(change.cells), b"%d" % len(change.put), b"%d" % len(writers)
    ttl = b"" if ttl_ms is None else b"%d" % ttl_ms
    shared = b"" if not keys.is_shared else b"2" if change.name.kind == "session" else b"1"
    args = [keys.id, b"%d" % base, ttl, wants, puts, names, shared]
    for cell, value in change.cells.items():
        args += (cell_key(cell), b"n" if value is None else b"v" + value)
    for cell, value in change.put.items():
        args += (cell_key(cell), value or b"")
    for writer in writers:
        args += (writer_mark(writer), to_bytes(writer))
    args += encode_rows(push, range(base, base + len(push)))
    return Asked(("EVALSHA", APPEND[1], len(keys.keys), *keys.keys, *args), _parse_done, APPEND[0])


def _parse_done(mark: bytes) -> Done:
    return Done((mark.decode(),))


class _Numbered(Description):
    """Description of a change for the general script: rows are arguments like all other strings, with their tags."""

    def __init__(self, change: KeyUpdate, args: Arguments, refs: Refs, others: Mapping[Name, int]) -> None:
        super().__init__(change)
        self._args, self._refs, self._others = args, refs, others
        self._writers: dict[str, None] = {}

    def argument(self, value: bytes) -> int:
        return self._args.add(value)

    def text(self, value: str) -> int:
        return self._args.add(to_bytes(value))

    def rows(self, rows: Sequence[tuple[bytes, Tag]], refs: Sequence[int] = ()) -> tuple[int, int]:
        first = len(self._args.values) + 1
        for _, tag in rows:
            if tag.writer:
                self._writers[tag.writer] = None
        self._args.values += encode_rows(rows, refs or range(len(rows)))
        return first, len(self._args.values)

    def put_back(self, row: Row) -> int:
        # A row of another program gets an empty tag: without a tag it could not keep its ref.
        return self.rows([(row.data, row.tag or Tag())], [row.ref])[0]

    def pushed(self, rows: Sequence[tuple[bytes, Tag]]) -> dict[str, Any]:
        base = self._refs.guess(self.change.name, len(rows))
        return {"base": base, "push": self.rows(rows, range(base, base + len(rows)))}

    def of(self, name: Name) -> int:
        return self._others[name]

    def replaces(self, generation: int) -> int:
        return self._args.add(encode_number(generation, REPLACES))

    def loaded(self, load: Load) -> dict[str, Any]:
        found: dict[str, Any] = {"rows": self.rows(load.live, load.rising_us(1))}  # a ref is a time; 1 tells of none
        found["boxes"] = [(box, *self.rows(rows)) for box, rows in load.boxes.items()]
        return found if load.created is None else {**found, "created": round(load.created * 1e6)}

    def made(self) -> dict[str, Any]:
        found = {"field": f"{self.change.name.kind}_id", **super().made()}
        writers = [(self._args.add(writer_mark(writer)), self.text(writer)) for writer in self._writers]
        return {**found, "writers": writers}


def outcome_of(step: CommitRequest, reply: Sequence[Any], refs: Refs) -> Done | Refused:
    """Decode the answer to a step."""
    if reply[0] == 1:
        for change, first in zip(step, reply[2::2], strict=True):
            if change.push:
                refs.note(change.name, int(first) + len(change.push) - 1)
        return Done(tuple(mark.decode() for mark in reply[1::2]))
    _, place, why, mark, epoch, *flat = reply
    return Refused(place, "cell" if why == b"cell" else "mark", mark.decode(), _cells(flat, epoch))
