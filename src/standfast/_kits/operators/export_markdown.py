"""Session as Markdown, for people to read. An import needs the format of `export_format`.

Stored text is other people's: it is escaped, so that it shows what was said and makes no headings, links, images or
HTML, and its control characters are shown as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from standfast._kits.operators.copy_sessions import AnyStore, ensure_open_store, read_picture
from standfast._src.base.json_values import CorruptJSON, Item, decode, encode_value
from standfast._src.items.item_text import text_of_item
from standfast._src.sessions.rules.snapshot import Picture, Stored

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&=$:@^/])")
# Every character that can begin something in Markdown or one of its dialects; a bare address would become a link.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TICKS = re.compile(r"`+")


async def session_markdown(store: AnyStore, session_id: str) -> str:
    """Return a session as Markdown: messages with authors and times, tool calls with results, and costs.

    print(await session_markdown("talks.db", "user-7"))
    """
    async with ensure_open_store(store, read_only=True) as found:
        session = found.session(session_id)
        try:
            return markdown(await read_picture(session))
        finally:
            await session.close()


def markdown(seen: Picture) -> str:
    """The same, of a picture."""
    return "\n".join(_lines(seen))


def _lines(seen: Picture) -> Iterator[str]:
    yield f"# Session {escape(seen.session_id)}"
    yield ""
    yield f"- created {_moment(seen.created)}, changed {_moment(seen.updated)}"
    yield f"- {_format_count(len(seen.rows), 'record')}, {_format_count(len(seen.generations), 'kept generation')}"
    if seen.origin is not None:
        yield f"- forked from {escape(str(seen.origin[0]))} at item {seen.origin[1]}"
    for run in (*seen.unfinished, *seen.runs):
        yield f"- run {escape(run.run_id)}: {escape(run.status)}, agent {escape(run.labels.get('agent', ''))}"
    tokens = _tokens(seen)
    if tokens:
        yield f"- {tokens} tokens"
    yield ""
    for stored, at in zip(seen.rows, seen.times, strict=True):
        yield from _record(stored, at)


def _record(stored: Stored, at: float | None) -> Iterator[str]:
    data, tag = stored
    when = "" if at is None else f" · {_moment(at)}"
    by = f" · {escape(tag.writer)} number {tag.ordinal}" if tag.writer else ""
    try:
        item = decode(data)
    except CorruptJSON:
        yield f"## corrupt record{when}{by}"
        yield ""
        yield from fence_code(data.decode(errors="replace"))
        return
    yield f"## {escape(_title(item))}{when}{by}"
    yield ""
    kind = item.get("type", "message")
    if kind == "message":
        yield from (f"{escape(line)}  " if line else "" for line in text_of_item(item).split("\n"))
        yield ""
    else:
        shown = item.get("arguments", item.get("output", None))
        yield from fence_code(shown if isinstance(shown, str) else encode_value(shown or item).decode(errors="replace"))


def _title(item: Item) -> str:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return str(item.get("role", "message"))
    name = item.get("name")
    return f"{kind.replace('_', ' ')}{f' {name}' if isinstance(name, str) else ''}"


def escape(text: str) -> str:
    """Escape a text, so that any Markdown renders the text literally."""
    return _SPECIAL.sub(r"\\\1", _escape_controls(text.replace("\n", " ")))


def fence_code(text: str) -> Iterator[str]:
    """Yield a block of code with a fence longer than any inside."""
    fence = "`" * max(3, *(len(run) + 1 for run in _TICKS.findall(text)), 3)
    yield fence
    yield _escape_controls(text)
    yield fence
    yield ""


def _escape_controls(text: str) -> str:
    """Escape characters that control a terminal or the direction of writing."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _tokens(seen: Picture) -> int:
    found: list[Any] = [request.get("usage", {}) for part in seen.usage for request in part.requests]
    return sum(usage.get("total_tokens", 0) for usage in found if isinstance(usage, dict))
