"""A session as Markdown, for people to read. (`standfast sessions export` writes a file that can be imported again.)

    python session_as_markdown.py talks.db user-7 > user-7.md

Stored text is other people's: it is escaped, so that it makes no headings, links, images or HTML, and its control
characters are shown as such. Without arguments this program writes a conversation that tries all of that, and shows it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from standfast import Record, SQLiteSession, Store, open_store

SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&=$:@^/])")
# Every character that can begin something in Markdown or one of its dialects; a bare address would become a link.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


async def session_as_markdown(store: Store, session_id: str) -> AsyncIterator[str]:
    """Yield the lines of a session: messages with authors and times, tool calls with their results."""
    session = store.session(session_id)
    yield f"# Session {escape(session_id)}"
    cursor = ""
    try:
        while True:
            page = await session.records(after=cursor, limit=200)
            for record in page.records:
                for line in shown(record):
                    yield line
            if page.is_newest:
                return
            cursor = page.after
    finally:
        await session.close()


def shown(record: Record) -> Iterator[str]:
    """Yield the lines of one record."""
    item = record.item or {}
    title = record.fault if record.item is None else f"{item.get('role') or item.get('type')} {item.get('name', '')}"
    at = "" if record.at is None else f" · {record.at:%Y-%m-%d %H:%M:%S UTC}"
    by = "" if record.writer is None else f" · {escape(record.writer)} number {record.number}"
    yield f"\n## {escape(str(title).strip())}{at}{by}\n"
    content = item.get("content", item.get("arguments", item.get("output")))
    if isinstance(content, list):  # the parts of a message
        content = "\n".join(str(part.get("text", part)) for part in content if isinstance(part, dict))
    if "role" in item and isinstance(content, str):
        yield from (f"{escape(line)}  " for line in content.split("\n"))
    else:
        yield from in_a_fence(content if isinstance(content, str) else json.dumps(item))


def in_a_fence(text: str) -> Iterator[str]:
    """Yield a block of code with a fence longer than any inside."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    yield from (fence, *map(without_controls, text.split("\n")), fence)


def escape(text: str) -> str:
    """Escape a text, so that any Markdown shows the text as it is."""
    return SPECIAL.sub(r"\\\1", without_controls(text.replace("\n", " ")))


def without_controls(text: str) -> str:
    """Escape characters that control a terminal or the direction of writing."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


async def main(arguments: list[str]) -> None:
    """Print a session of a store, or the one that tries to be more than text."""
    if arguments:
        async with open_store(arguments[0], read_only=True) as store:
            async for line in session_as_markdown(store, arguments[1]):
                print(line)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "talks.db"
        session = SQLiteSession("a *talk*", file)
        await session.add_items(
            [
                {"role": "user", "content": "# no heading\n<script>x</script> [a](http://b) \x1b[31m ![i](j) ```"},
                {"type": "function_call", "name": "look", "call_id": "c", "arguments": "```\n# out\x07"},
            ]
        )
        await session.close()
        async with open_store(file, read_only=True) as store:
            text = "\n".join([line async for line in session_as_markdown(store, "a *talk*")])
    print(text)
    assert text.startswith("# Session a \\*talk\\*\n")
    assert "\\# no heading" in text
    assert "\\<script\\>" in text
    assert "\\[a\\]\\(http\\:\\/\\/b\\)" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\n````\n```\n# out\\u0007\n````" in text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
