"""Stored items and arguments as text for the page: exact, total, and without a character that acts on the reader.

The page shows what it is given and parses nothing of it: JavaScript has no integers beyond 2**53, and one item of an
unknown form must not hide a conversation. Marks and controls are written out as in the terminal
(`_src.base.safe_text`).
"""

from __future__ import annotations

import json
import re
from functools import cache
from string import Formatter
from typing import Any

from standfast._src.base.safe_text import safe, safe_lines
from standfast._src.items.texts_for_models import known_texts

View = dict[str, Any]

TITLE_MAX = 120
DEPTH_MAX = 20
"""How deep a text is indented: each level costs two characters of every line."""
ROLES = ("user", "assistant", "system", "developer", "tool")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+', re.DOTALL)


def escape_text(text: str) -> str:
    """Return a text of any number of lines with everything unsafe written out."""
    return "\n".join(safe_lines(text))


def indent_json(text: str) -> str:
    """Lay a JSON object or array out on lines; return any other text unchanged.

    Numbers and strings are not parsed: every token stays as written, repeated keys included.
    """
    if not _is_json(text):
        return escape_text(text)
    tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
    lines, depth = [""], 0
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if token in ("{", "["):
            depth += 1
            lines[-1] += token
            if after not in ("}", "]"):
                lines.append("  " * depth)
        elif token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                lines.append("  " * depth)
            lines[-1] += token
        elif token == ",":
            lines[-1] += token
            lines.append("  " * depth)
        else:
            lines[-1] += ": " if token == ":" else safe(token)
        if depth > DEPTH_MAX:
            return escape_text(text)
    return "\n".join(lines)


def _is_json(text: str) -> bool:
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict | list)


# --- items -----------------------------------------------------------------------------------------------------------


def item_view(item: object) -> View:
    """Return the page's view of any item of a history."""
    try:
        return _view(item) if isinstance(item, dict) else _other("item", item)
    except Exception:  # an item of a form that nobody has thought of must not hide the others
        return {"kind": "folded", "title": "an item that cannot be shown", "text": escape_text(repr(item)[:10_000])}


def _view(item: dict[str, Any]) -> View:
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and isinstance(role, str):
        known = role if role in ROLES else "other"
        text = _join(words(item.get("content")), _rest(item, "role", "content"))
        laid = indent_json(text)
        form = "markdown" if laid == text else "json"
        return {"kind": "said", "role": known, "title": safe(role), "text": laid, "form": form}
    if not isinstance(kind, str) or kind == "message":
        return _other("an item of no known type", item)
    call_id = item.get("call_id") if isinstance(item.get("call_id"), str) else None
    if kind.endswith("_output"):
        text = indent_json(output) if isinstance(output := item.get("output"), str) else words(output)
        text = _join(text, _rest(item, "output"))
        return {"kind": "output", "title": "output", "text": text, "call": call_id, "failed": failure_in(item)}
    if kind.endswith("_call"):
        field = "arguments" if "arguments" in item else "input"
        given, called = item.get(field), item.get("name")
        is_named = isinstance(called, str)
        text = given if isinstance(given, str) else _json(given) if given is not None else ""
        title = safe(f"{called if is_named else kind}  {text[:TITLE_MAX]}")
        laid, failed = _join(indent_json(text), _rest(item, field, *(["name"] if is_named else []))), failure_in(item)
        return {"kind": "folded", "title": title, "text": laid, "call": call_id, "failed": failed}
    if kind == "reasoning":
        said = _join(words(item.get("summary")), words(item.get("content")), _rest(item, "summary", "content"))
        return {"kind": "folded", "title": "reasoning", "text": said or "(not shown by the provider)"}
    return _other(kind, item)


FAILURES = {
    "tool_failed": "failed",
    "agent_tool_failed": "failed",
    "tool_timed_out": "timed out",
    "tool_not_found": "no such tool",
    "call_rejected": "not approved",
    "arguments_refused": "arguments refused",
    "outcome_unknown": "outcome unknown",
    "not_completed": "outcome unknown",
    "did_not_run": "did not run",
    "output_too_large": "output too large",
    "output_withheld": "withheld by a guardrail",
}
"""Texts that a model reads in place of an output, by name, with what the page says of them."""


def failure_in(item: dict[str, Any]) -> str | None:
    """Return the reason of a call's failure in a word or two, or None.

    An item has no field for it. An output is therefore compared with the texts given to models; an application's own
    wording is not recognized.
    """
    if item.get("error"):
        return "failed"
    output = item.get("output")
    if isinstance(output, str):
        for name, word in FAILURES.items():
            if any(_pattern(text).fullmatch(output) for text in known_texts(name)):
                return word
    return "incomplete" if item.get("status") in ("incomplete", "failed") else None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    fields = Formatter().parse(text)
    parts = (re.escape(literal) + ("" if field is None else ".*") for literal, field, _, _ in fields)
    return re.compile("".join(parts), re.DOTALL)


def _other(title: str, value: object) -> View:
    return {"kind": "folded", "title": safe(title), "text": escape_text(_json(value))}


def words(content: object) -> str:
    """Return the text of an item's content: a text, the texts of its parts, or any other value as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return escape_text(content)
    if not isinstance(content, list):
        return escape_text(_json(content))
    return "\n".join(_part(part) for part in content)


def _part(part: object) -> str:
    if not isinstance(part, dict):
        return escape_text(_json(part))
    kind = part.get("type")
    texts = [name for name in ("text", "transcript", "refusal") if isinstance(part.get(name), str)]
    is_media = isinstance(kind, str) and kind in MEDIA
    if not texts and not is_media:
        return escape_text(_json(part))
    said = [escape_text(part[name]) for name in texts] or [f"[{kind}]"]
    return _join(*said, _rest(part, *texts, *(MEDIA_FIELDS if is_media else ())))


QUIET = frozenset(
    ("type", "id", "call_id", "status", "phase", "annotations", "logprobs", "encrypted_content", "provider_data")
)
"""What says nothing to a reader. Every other field is shown, so that none hides behind those that are known."""
MEDIA = ("input_image", "input_file", "input_audio", "output_audio", "audio", "image")
MEDIA_FIELDS = ("image_url", "file_url", "file_data", "file_id", "filename", "audio", "data", "format", "detail")


def _rest(value: dict[str, Any], *shown: str) -> str:
    """Return the fields that were not shown as JSON, or an empty text."""
    rest = {name: one for name, one in value.items() if name not in shown and name not in QUIET and one is not None}
    return escape_text(_json(rest)) if rest else ""


def _join(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
