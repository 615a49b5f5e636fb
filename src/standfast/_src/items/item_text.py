"""Text of an item, for listings and full-text search."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from standfast._src.base.json_values import Item

SPOKEN = (
    *("content", "text", "refusal", "transcript", "name"),
    *("arguments", "output", "summary", "input", "code", "query"),
)
"""Fields that hold the words of an item. All remaining fields are ids, kinds and states."""

FIRST_WORDS_MAX = 120  # one line of a listing, also in a wide terminal


def text_of_item(item: Item) -> str:
    """Return the words of an item: a message's text, a call's tool and arguments, an output's result."""
    return "\n".join(_texts(item))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, dict):
        for name in SPOKEN:
            if name in value:
                yield from _texts(value[name])


def first_words(items: list[Item]) -> str:
    """Return a one-line title of a conversation: the first user message, else the first words of any item."""
    people = [item for item in items if item.get("role") == "user"]
    for item in people or items:
        line = " ".join(text_of_item(item).split())
        if line:
            return line if len(line) <= FIRST_WORDS_MAX else f"{line[: FIRST_WORDS_MAX - 1]}…"
    return ""


def excerpt(text: str, words: str, around: int = 40) -> str:
    """Return the text around the first match of `words`, ignoring case; "" without a match."""
    line = " ".join(text.split())
    folded, wanted = line.casefold(), " ".join(words.split()).casefold()
    place = folded.find(wanted)
    if place < 0:
        return ""
    if len(folded) != len(line):  # one letter may fold into several: the place is counted in letters of the line
        ends = list(accumulate(len(letter.casefold()) for letter in line))
        place = bisect_right(ends, place)
    start, end = max(0, place - around), min(len(line), place + len(wanted) + around)
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
