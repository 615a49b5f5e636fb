"""The format of an exported session: JSON lines, one session in a file. See docs/reference/export-format.md.

The first line names the schema and its version, and the last one counts the lines and holds a digest of them: a file
that was cut or changed is noticed before anything of it is used. A record stands in its line as the bytes that were
stored, so that what is read back is what was written, to the byte.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from standfast.ground.errors import ExportFileError, SchemaTooNewError
from standfast.ground.jsonvalue import DIGEST_BYTES, are_items, encode_value
from standfast.sessions.picture_rules import (
    GenerationPicture,
    Picture,
    RunPicture,
    Stored,
    UsagePicture,
)
from standfast.sessions.port import Tag
from standfast.sessions.writer_rules import AllWritten

SCHEMA = "standfast.session"
VERSION = 1
AT_ONCE = 1024
# Lines that are written together: what a call of write costs does not count then, and memory stays small.

_encode = msgspec.json.Encoder().encode


# --- writing ---------------------------------------------------------------------------------------------------------


def export_chunks(seen: Picture, moved: Sequence[RunPicture] = ()) -> Iterator[bytes]:
    """The file of a session, in pieces of many lines. `moved`: runs that could still act and go with it."""
    known, count = blake2b(digest_size=DIGEST_BYTES), 0
    for piece, lines in _pieces(seen, moved):
        known.update(piece)
        count += lines
        yield piece
    yield _line("end", {"lines": count, "records": seen.item_count, "blake2b": known.hexdigest()})


def _pieces(seen: Picture, moved: Sequence[RunPicture]) -> Iterator[tuple[bytes, int]]:
    header = {"session": seen.session_id, "created": seen.created, "updated": seen.updated, "exported": time.time()}
    yield encode_value({"schema": SCHEMA, "version": VERSION, **header}) + b"\n", 1
    few: list[bytes] = []
    if seen.origin is not None:
        session_id, index, generation, at, *by = seen.origin
        told = {"session": session_id, "index": index, "generation": generation, "at": at}
        few.append(_line("origin", {**told, "by": by[0]} if by else told))
    for name, (total, base, digests) in seen.writers.items():
        few.append(_line("writer", {"name": name, "items": total, "known_from": base, "digests": digests.hex()}))
    few += [
        b'{"kind":"cell","name":%s,"value":%s}\n' % (encode_value(name), embedded(value))
        for name, value in seen.others.items()
    ]
    for kept in seen.generations:
        known = {"number": kept.number, "created": kept.created, "items": kept.item_count}
        few.append(_line("generation", {**known, "by": kept.by} if kept.by is not None else known))
    yield b"".join(few), len(few)
    for kept in seen.generations:
        yield from _records(kept.rows, [None] * len(kept.rows), b'"generation":%d,' % kept.number)
    yield from _records(seen.rows, seen.times, b"")
    few = [
        _line("usage", {"run": one.run_id, "number": one.number, "at": one.at, "requests": one.requests})
        for one in seen.usage
    ]
    few += [_run_line(run) for run in (*seen.runs, *moved)]
    yield b"".join(few), len(few)


def _line(kind: str, values: Mapping[str, Any]) -> bytes:
    return encode_value({"kind": kind, **values}) + b"\n"


def _records(rows: Sequence[Stored], times: Sequence[float | None], where: bytes) -> Iterator[tuple[bytes, int]]:
    """Lines of records, many at a time: the bytes of each record are put into its line as they are."""
    start = b'{"kind":"record",' + where
    names: dict[str, bytes] = {"": b""}
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        is_plain = are_items([data for data, _ in some])
        lines: list[bytes] = []
        for (data, tag), at in zip(some, times[first : first + AT_ONCE], strict=True):
            writer, ordinal, replaces = tag
            who = names.get(writer)
            if who is None:
                who = names[writer] = b'"writer":' + encode_value(writer).replace(b"%", b"%%") + b',"number":%d,'
            by = who % ordinal if who else b""
            when = b"" if at is None else b'"at":%s,' % repr(at).encode()
            stands = b'"replaces":%d,' % replaces if replaces else b""
            record = data if is_plain and b"\n" not in data and b"\r" not in data else embedded(data)
            lines.append(b'%s%s%s%s"item":%s}\n' % (start, when, by, stands, record))
        yield b"".join(lines), len(lines)


def embedded(data: bytes) -> bytes:
    """Stored JSON as part of a line: itself where that is a JSON object on one line, else a string that holds it."""
    if are_items([data]) and b"\n" not in data and b"\r" not in data:
        return data
    return json.dumps(data.decode()).encode()


def _run_line(run: RunPicture) -> bytes:
    values: dict[str, Any] = {"id": run.run_id, "labels": dict(run.labels), "revision": run.revision}
    if run.created is not None:
        values["created"] = run.created
    if run.token:
        values["moved"] = run.token
    logs = b",".join(
        encode_value(log) + b":[" + b",".join(embedded(record) for record in records) + b"]"
        for log, records in run.logs.items()
    )
    start = encode_value({"kind": "run", **values})
    return start[:-1] + b',"head":' + embedded(run.head) + b',"logs":{' + logs + b"}}\n"


# --- reading ---------------------------------------------------------------------------------------------------------


class _Header(msgspec.Struct):
    session: str
    created: float
    updated: float
    exported: float = 0.0


class _Origin(msgspec.Struct, tag_field="kind", tag="origin"):
    session: str
    index: int
    generation: str | None
    at: float
    by: str | None = None


class _Writer(msgspec.Struct, tag_field="kind", tag="writer"):
    name: str
    items: int
    known_from: int
    digests: str


class _Generation(msgspec.Struct, tag_field="kind", tag="generation"):
    number: int
    created: float
    items: int
    by: str | None = None


class _Record(msgspec.Struct, tag_field="kind", tag="record", gc=False):
    item: msgspec.Raw
    at: float | None = None
    writer: str = ""
    number: int = 0
    replaces: int = 0
    generation: int = 0


class _Cell(msgspec.Struct, tag_field="kind", tag="cell"):
    name: str
    value: msgspec.Raw


class _Usage(msgspec.Struct, tag_field="kind", tag="usage"):
    run: str
    number: int
    at: float
    requests: list[dict[str, Any]]


class _Run(msgspec.Struct, tag_field="kind", tag="run"):
    id: str
    labels: dict[str, str]
    revision: int
    head: msgspec.Raw
    logs: dict[str, list[msgspec.Raw]]
    created: float | None = None
    moved: str = ""


class _End(msgspec.Struct, tag_field="kind", tag="end"):
    lines: int
    records: int
    blake2b: str


_decode = msgspec.json.Decoder(_Origin | _Writer | _Cell | _Generation | _Record | _Usage | _Run | _End).decode


class Exported(msgspec.Struct, frozen=True):
    """What a file holds: the session, and runs that could still act and were moved into the file."""

    picture: Picture
    moved: tuple[RunPicture, ...]
    digest: str


def read_export(lines: Iterable[bytes]) -> Exported:
    """What an exported file holds; raises what says why it cannot be used, before anything of it is."""
    made = _Reading()
    known = blake2b(digest_size=DIGEST_BYTES)
    end: _End | None = None
    for number, line in enumerate(lines, 1):
        if end is not None:
            raise _damaged(f"line {number} comes behind its last one")
        if not line.endswith(b"\n"):
            raise _damaged(f"it ends in the middle of line {number}")
        if number == 1:
            made.begin(line)
        else:
            try:
                one = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise _damaged(f"line {number} is none of an exported session") from None
            if type(one) is _Record:
                made.record(one)
            elif isinstance(one, _End):
                end = one
                if (end.lines, end.blake2b) != (number - 1, known.hexdigest()):
                    raise _damaged("what it holds is not what its last line says")
            else:
                made.other(one)
        known.update(line)
    if end is None:
        raise _damaged("its last line is missing: it was cut")
    return made.exported(end)


class _Reading:
    """What was read of a file so far."""

    def __init__(self) -> None:
        self.header: _Header | None = None
        self.origin: list[object] | None = None
        self.writers: dict[str, AllWritten] = {}
        self.generations: dict[int, _Generation] = {}
        self.boxes: dict[int, list[Stored]] = {}
        self.rows: list[Stored] = []
        self.times: list[float | None] = []
        self.usage: list[UsagePicture] = []
        self.others: dict[str, bytes] = {}
        self.runs: list[RunPicture] = []

    def begin(self, line: bytes) -> None:
        try:
            header = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            raise ExportFileError(
                "this file is no exported session", "Give a file that export_session or `sessions export` has written."
            )
        version = header.get("version")
        if not isinstance(version, int) or version > VERSION:
            raise SchemaTooNewError(
                f"this session was exported in format version {version}, and this standfast reads up to {VERSION}",
                "Upgrade standfast, or export it again with this release.",
            )
        try:
            self.header = msgspec.convert(header, _Header)
        except msgspec.ValidationError:
            raise _damaged("its first line does not say which session it is") from None

    def record(self, one: _Record) -> None:
        stored = (_extracted(one.item), Tag(one.writer, one.number, one.replaces))
        if one.generation:
            self.boxes.setdefault(one.generation, []).append(stored)
        else:
            self.rows.append(stored)
            self.times.append(one.at)

    def other(self, one: _Origin | _Writer | _Cell | _Generation | _Usage | _Run) -> None:
        match one:
            case _Origin():
                self.origin = [one.session, one.index, one.generation, one.at, *([] if one.by is None else [one.by])]
            case _Writer():
                self.writers[one.name] = AllWritten(one.items, one.known_from, bytes.fromhex(one.digests))
            case _Cell():
                self.others[one.name] = _extracted(one.value)
            case _Generation():
                self.generations[one.number] = one
            case _Usage():
                self.usage.append(UsagePicture(one.run, one.number, one.at, one.requests))
            case _Run():
                logs = {log: [_extracted(record) for record in records] for log, records in one.logs.items()}
                head = _extracted(one.head)
                self.runs.append(RunPicture(one.id, one.labels, one.revision, head, logs, one.created, one.moved))

    def exported(self, end: _End) -> Exported:
        header = self.header
        if header is None or not self.boxes.keys() <= self.generations.keys():
            raise _damaged("it has records of a generation that it does not name")
        generations = [
            GenerationPicture(one.number, one.created, one.items, self.boxes.get(one.number, []), one.by)
            for one in self.generations.values()
        ]
        ended = [run for run in self.runs if not run.token]
        picture = Picture(
            header.session, header.created, header.updated, self.rows, self.times, generations,
            dict(sorted(self.writers.items())), self.usage, self.origin, self.others,
            ended,
        )  # fmt: skip
        if picture.item_count != end.records:
            raise _damaged("its records are not as many as its last line says")
        return Exported(picture, tuple(run for run in self.runs if run.token), end.blake2b)


def _extracted(raw: msgspec.Raw) -> bytes:
    """The bytes of a record, from its place in a line."""
    data = bytes(raw)
    if not data.startswith(b'"'):
        return data
    text: str = json.loads(data)
    return text.encode()


def _damaged(why: str) -> ExportFileError:
    return ExportFileError(
        f"this exported session was damaged: {why}; nothing was imported",
        "Export it again, or take another copy of it.",
    )
