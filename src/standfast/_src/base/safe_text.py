r"""Escaping of stored text for display: content cannot move a cursor, clear a screen or change the reading order.

What a terminal would act on, and what people cannot see, is shown as it would be written in Python: `\x1b`, `\u202e`.
"""

from __future__ import annotations

import re

# C0 and C1 controls and DEL; marks that turn the reading order or join what stands beside them; line and paragraph
# separators; invisible operators; the byte order mark; annotation marks; tags, of which invisible words can be made;
# and halves of surrogate pairs, which no stream can write. Not the two joiners: Persian, Hindi and emoji need them.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def safe(text: str) -> str:
    """Return the text on one line, with all terminal control characters escaped."""
    return UNSAFE.sub(_escape_character, text)


def safe_lines(text: str) -> list[str]:
    """The text's own lines, each safe; tabs become spaces, because a text may be code."""
    return [safe(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def _escape_character(found: re.Match[str]) -> str:
    character = found.group()
    match character:
        case "\n":
            return "\\n"
        case "\t":
            return "\\t"
        case "\r":
            return "\\r"
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def width_of(text: str) -> int:
    """Count the terminal columns of a text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def shorten(text: str, width: int) -> str:
    """The text in at most so many columns, with an ellipsis where something was left out."""
    if width_of(text) <= width:
        return text
    kept, used = [], 1
    for one in text:
        used += width_of(one)
        if used > width:
            break
        kept.append(one)
    return "".join(kept) + "…"
