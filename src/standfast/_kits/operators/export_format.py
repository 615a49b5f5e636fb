"""The format of an exported session: JSON lines, one session in a file. See docs/reference/export-format.md.

The first line names the schema and its version, and the last one counts the lines and holds a digest of them: a file
that was cut or changed is noticed before anything of it is used. The line of a record contains the bytes that were
stored, so that what is read back is what was written, to the byte.

The digest notices accidents, and an author can write any digest. A key makes the last line hold an HMAC too.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from standfast._src.base.errors import (
    CorruptRecordError,
    ExportFileError,
    InvalidSettingError,
    SchemaTooNewError,
    StandfastError,
)
from standfast._src.base.identifiers import is_name
from standfast._src.base.json_values import DIGEST_BYTES, are_items, encode_value
from standfast._src.sessions.rules.append import AllWritten
from standfast._src.sessions.rules.inspection import cost_in
from standfast._src.sessions.rules.snapshot import (
    GenerationPicture,
    Picture,
    RunPicture,
    Stored,
    UsagePicture,
    is_text,
)
from standfast._src.sessions.storage import Tag

SCHEMA = "standfast.session"
VERSION = 1
AT_ONCE = 1024
# Lines that are written together: what a call of write costs does not count then, and memory stays small.

KEY_BYTES_MIN = 16
# A shorter key can be guessed by anyone with a file.

_SIGNS = b"standfast.session export\n"
# Begins what is signed: a signature of something else made with the same key does not fit.


def create_hmac(key: str | bytes | None) -> hmac.HMAC | None:
    """Create the signer of a file's lines, before the first line; None without a key."""
    if key is None:
        return None
    data = key.encode() if isinstance(key, str) else bytes(key)
    if len(data) < KEY_BYTES_MIN:
        raise InvalidSettingError(
            f"a key of {len(data)} bytes signs nothing: it can be guessed",
            f"Give {KEY_BYTES_MIN} random bytes or more, for example secrets.token_bytes(32).",
        )
    return hmac.new(data, _SIGNS, "sha256")


# --- writing ---------------------------------------------------------------------------------------------------------


def export_chunks(seen: Picture, moved: Sequence[RunPicture] = (), key: str | bytes | None = None) -> Iterator[bytes]:
    """Yield the file of a session in pieces of many lines. `moved`: runs that could still act and
    go with the session.
    """
    known, count = blake2b(digest_size=DIGEST_BYTES), 0
    signed = create_hmac(key)
    for piece, lines in _pieces(seen, moved):
        known.update(piece)
        if signed is not None:
            signed.update(piece)
        count += lines
        yield piece
    end = {"lines": count, "records": seen.item_count, "blake2b": known.hexdigest()}
    yield _line("end", end if signed is None else {**end, "hmac": signed.hexdigest()})


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
        b'{"kind":"cell","name":%s,"value":%s}\n' % (encode_value(name), embed(value, f"cell {name[:80]!r}"))
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
    """Yield lines of records, many at a time: the bytes of each record are copied unchanged into its line."""
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
            record = data if is_plain and b"\n" not in data and b"\r" not in data else embed(data, "a record")
            lines.append(b'%s%s%s%s"item":%s}\n' % (start, when, by, stands, record))
        yield b"".join(lines), len(lines)


def embed(data: bytes, what: str) -> bytes:
    """Embed stored JSON in a line: unchanged if an object on one line, otherwise as a string.

    Raises CorruptRecordError, which names `what`, for bytes that are not text.
    """
    if are_items([data]) and b"\n" not in data and b"\r" not in data:
        return data
    try:
        return json.dumps(data.decode()).encode()
    except UnicodeDecodeError:
        raise CorruptRecordError(
            f"{what} was damaged: it is not text", "Restore the store from a backup, or delete what is damaged."
        ) from None


def _run_line(run: RunPicture) -> bytes:
    name = f"saved run {run.run_id!r}"
    values: dict[str, Any] = {"id": run.run_id, "labels": dict(run.labels), "revision": run.revision}
    if run.created is not None:
        values["created"] = run.created
    if run.token:
        values["moved"] = run.token
    logs = b",".join(
        encode_value(log) + b":[" + b",".join(embed(record, name) for record in records) + b"]"
        for log, records in run.logs.items()
    )
    start = encode_value({"kind": "run", **values})
    return start[:-1] + b',"head":' + embed(run.head, name) + b',"logs":{' + logs + b"}}\n"


# --- reading ---------------------------------------------------------------------------------------------------------


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Time = Annotated[float, Meta(ge=0, le=253402300799.0)]
# Seconds since 1970, up to the end of the year 9999: what Python and every store can hold.
Hex = Annotated[str, Meta(pattern="^[0-9a-f]*$")]


class _Header(msgspec.Struct):
    session: str
    created: Time
    updated: Time
    exported: Time = 0.0


class _Origin(msgspec.Struct, tag_field="kind", tag="origin"):
    session: str
    index: Number
    generation: str | None
    at: Time
    by: str | None = None


class _Writer(msgspec.Struct, tag_field="kind", tag="writer"):
    name: str
    items: Number
    known_from: Number
    digests: Hex


class _Generation(msgspec.Struct, tag_field="kind", tag="generation"):
    number: Annotated[int, Meta(ge=1, le=2**53)]
    created: Time
    items: Number
    by: str | None = None


class _Record(msgspec.Struct, tag_field="kind", tag="record", gc=False):
    item: msgspec.Raw
    at: Time | None = None
    writer: str = ""
    number: Number = 0
    replaces: Number = 0
    generation: Number = 0


class _Cell(msgspec.Struct, tag_field="kind", tag="cell"):
    name: str
    value: msgspec.Raw


class _Request(msgspec.Struct):
    turn: Number
    usage: dict[str, Any]
    model: str | None = None
    agent: str | None = None
    nested: bool = False


class _Usage(msgspec.Struct, tag_field="kind", tag="usage"):
    run: str
    number: Number
    at: Time
    requests: list[dict[str, Any]]


class _Run(msgspec.Struct, tag_field="kind", tag="run"):
    id: str
    labels: dict[str, str]
    revision: Number
    head: msgspec.Raw
    logs: dict[str, list[msgspec.Raw]]
    created: Time | None = None
    moved: Annotated[str, Meta(pattern="^[0-9a-f]{0,64}$")] = ""


class _End(msgspec.Struct, tag_field="kind", tag="end"):
    lines: int
    records: int
    blake2b: str
    hmac: Hex = ""


_decode = msgspec.json.Decoder(_Origin | _Writer | _Cell | _Generation | _Record | _Usage | _Run | _End).decode


class Exported(msgspec.Struct, frozen=True):
    """Contents of a file: the session, its runs, and a flag for a valid signature with the caller's key."""

    picture: Picture
    """The session without any of its runs."""
    runs: tuple[RunPicture, ...]
    digest: str
    is_signed: bool


def read_export(lines: Iterable[bytes], key: str | bytes | None = None) -> Exported:
    """Read an exported file whole. Raises ExportFileError or SchemaTooNewError if any part of it cannot be used.

    With `key`, a file that this key has not signed is refused.
    """
    signed = create_hmac(key)
    try:
        return _read(lines, signed)
    except StandfastError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise _damaged_error(f"{type(error).__name__} while it was read") from error


def _read(lines: Iterable[bytes], signed: hmac.HMAC | None) -> Exported:
    made = _Reading()
    known = blake2b(digest_size=DIGEST_BYTES)
    end: _End | None = None
    for number, line in enumerate(lines, 1):
        if end is not None:
            raise _damaged_error(f"line {number} comes behind its last one")
        if not line.endswith(b"\n"):
            raise _damaged_error(f"it ends in the middle of line {number}")
        if number == 1:
            made.begin(line)
        else:
            try:
                one = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise _damaged_error(f"line {number} is none of an exported session") from None
            if type(one) is _Record:
                made.record(one)
            elif isinstance(one, _End):
                end = one
                if (end.lines, end.blake2b) != (number - 1, known.hexdigest()):
                    raise _damaged_error("what it holds is not what its last line says")
            else:
                made.other(one)
        known.update(line)
        if signed is not None and end is None:
            signed.update(line)
    if end is None:
        raise _damaged_error("its last line is missing: it was cut")
    if signed is not None:
        _check_signature(signed, end)
    return made.exported(end, is_signed=signed is not None)


def _check_signature(signed: hmac.HMAC, end: _End) -> None:
    if not end.hmac:
        raise ExportFileError(
            "this exported session is not signed; nothing was imported",
            "Export it again with the key, or import it without one: decisions about calls are then asked for again.",
        )
    if not hmac.compare_digest(signed.hexdigest(), end.hmac):
        raise ExportFileError(
            "this exported session was signed with another key, or was changed since; nothing was imported",
            "Give the key it was exported with, or ask its author for another copy.",
        )


class _Reading:
    """Parser of a file, with everything read so far."""

    def __init__(self) -> None:
        self.header: _Header | None = None
        self.origin: list[object] | None = None
        self.writers: dict[str, AllWritten] = {}
        self.generations: dict[int, _Generation] = {}
        self.boxes: dict[int, list[Stored]] = {}
        self.rows: list[Stored] = []
        self.times: list[float | None] = []
        self.usage: dict[tuple[int, str], UsagePicture] = {}
        self.others: dict[str, bytes] = {}
        self.runs: dict[str, RunPicture] = {}
        self.names: set[str] = {""}

    def begin(self, line: bytes) -> None:
        try:
            header = json.loads(line)
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            raise ExportFileError(
                "this file is no exported session", "Give a file that export_session or `sessions export` has written."
            )
        version = header.get("version")
        if type(version) is not int or version > VERSION:
            raise SchemaTooNewError(
                f"this session was exported in format version {version}, and this standfast reads up to {VERSION}",
                "Upgrade standfast, or export it again with this release.",
            )
        try:
            self.header = msgspec.convert(header, _Header)
        except msgspec.ValidationError:
            raise _damaged_error("its first line does not say which session it is") from None
        if not is_name(self.header.session):
            raise _damaged_error("its session has no name that a store can hold")

    def record(self, one: _Record) -> None:
        if one.writer not in self.names:
            self.name(one.writer)
        stored = (_extract(one.item), Tag(one.writer, one.number, one.replaces))
        if one.generation:
            self.boxes.setdefault(one.generation, []).append(stored)
        else:
            self.rows.append(stored)
            self.times.append(one.at)

    def name(self, given: str) -> str:
        if not is_name(given):
            raise _damaged_error("it names a writer or a run as no store can")
        self.names.add(given)
        return given

    def other(self, one: _Origin | _Writer | _Cell | _Generation | _Usage | _Run) -> None:
        match one:
            case _Origin():
                self.origin = [one.session, one.index, one.generation, one.at, *([] if one.by is None else [one.by])]
            case _Writer():
                known = AllWritten(one.items, one.known_from, bytes.fromhex(one.digests))
                if known.base + len(known.digests) / DIGEST_BYTES != known.total:
                    raise _damaged_error("the digests of a writer are not as many as its items")
                self.writers[self.name(one.name)] = known
            case _Cell():
                self.others[one.name] = _extract(one.value)
            case _Generation():
                self.generations[one.number] = one
            case _Usage():
                for request in one.requests:
                    msgspec.convert(request, _Request)
                    cost_in(request)
                msgspec.msgpack.encode(one.requests)  # as stores keep it: a number of more than 64 bits is refused here
                kept = UsagePicture(self.name(one.run), one.number, one.at, one.requests)
                self.usage[(one.number, one.run)] = kept
            case _Run():
                logs = {log: [_extract(record) for record in records] for log, records in one.logs.items()}
                head, run_id = _extract(one.head), self.name(one.id)
                if run_id in self.runs:
                    raise _damaged_error("it has two runs of one id")
                self.runs[run_id] = RunPicture(run_id, one.labels, one.revision, head, logs, one.created, one.moved)

    def exported(self, end: _End, *, is_signed: bool) -> Exported:
        header = self.header
        if header is None or not self.boxes.keys() <= self.generations.keys():
            raise _damaged_error("it has records of a generation that it does not name")
        generations = [
            GenerationPicture(one.number, one.created, one.items, self.boxes.get(one.number, []), one.by)
            for one in self.generations.values()
        ]
        picture = Picture(
            header.session, header.created, header.updated, self.rows, self.times, generations,
            dict(sorted(self.writers.items())), list(self.usage.values()), self.origin, self.others,
        )  # fmt: skip
        if any(one.item_count > len(one.rows) for one in generations):
            raise _damaged_error("a generation has fewer records than items")
        if picture.item_count != end.records:
            raise _damaged_error("its records are not as many as its last line says")
        return Exported(picture, tuple(self.runs.values()), end.blake2b, is_signed)


def _extract(raw: msgspec.Raw) -> bytes:
    """Return the bytes of a record from its place in a line; raise ValueError for an invalid record."""
    data = bytes(raw)
    if data.startswith(b'"'):
        text: str = json.loads(data)
        data = text.encode()
    elif not data.startswith(b"{"):
        raise ValueError("neither an object nor a text")
    if not is_text(data):
        raise ValueError("not a text that a store can hold")
    return data


def _damaged_error(why: str) -> ExportFileError:
    return ExportFileError(
        f"this exported session was damaged: {why}; nothing was imported",
        "Export it again, or take another copy of it.",
    )
