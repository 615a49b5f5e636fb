"""What an item says, as text: for a line in a listing, and to look for words in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from standfast._src.base.json_values import Item

SPOKEN = (
    *("content", "text", "refusal", "transcript", "name"),
    *("arguments", "output", "summary", "input", "code", "query"),
)
"""Where the words of an item stand. Everything else is ids, kinds and states."""

FIRST_WORDS_MAX = 120  # one line of a listing, also in a wide terminal


def text_of_item(item: Item) -> str:
    """The words of an item: of a message its text, of a call its tool and arguments, of an output what came back."""
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
    """One line that tells what a conversation is about: what the first person in it said, else its first words."""
    people = [item for item in items if item.get("role") == "user"]
    for item in people or items:
        line = " ".join(text_of_item(item).split())
        if line:
            return line if len(line) <= FIRST_WORDS_MAX else f"{line[: FIRST_WORDS_MAX - 1]}…"
    return ""


def excerpt(text: str, words: str, around: int = 40) -> str:
    """The line around the first place where these words stand, in any case; "" if they do not."""
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
