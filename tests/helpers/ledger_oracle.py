"""The one rule: whatever a tool did is in the history the next model sees, once, or is said there to be unknown.

Tools write what they do into a book, a file to which every effect appends one line with its call's id, in the moment
in which it happens. `wrongs` compares a book with a request.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from helpers.counts import saw_effects

from standfast import Agent, RunConfig, Runner
from standfast.testing import ScriptedModel, final

Item = dict[str, Any]

_UNKNOWN = re.compile(r"not known|unknown", re.IGNORECASE)
_NOT_RUN = re.compile(r"(did|has|was) not (run|begin|begun|completed|approved)|wait(s|ing) for", re.IGNORECASE)


def write(book: str | Path, call_id: str) -> None:
    """The effect itself: one line, whole, at the end, whoever else writes."""
    line = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(line, f"{call_id}\n".encode())
    finally:
        os.close(line)


def lines(book: str | Path) -> list[str]:
    """What was done, in order."""
    try:
        found = Path(book).read_text().split()
    except FileNotFoundError:
        return []
    saw_effects(book, len(found))
    return found


def done(call_id: str) -> str:
    """What a tool returns that has done its work."""
    return f"{call_id} done"


def says_unknown(output: Any) -> bool:
    return isinstance(output, str) and bool(_UNKNOWN.search(output))


def says_not_run(output: Any) -> bool:
    return isinstance(output, str) and not says_unknown(output) and bool(_NOT_RUN.search(output))


def outputs(items: Iterable[Item]) -> dict[str, list[Any]]:
    """By call id: the outputs, in order."""
    found: dict[str, list[Any]] = {}
    for item in items:
        if item.get("type") == "function_call_output":
            found.setdefault(item["call_id"], []).append(item["output"])
    return found


def wrongs(done_lines: Sequence[str], seen: Sequence[Item]) -> list[str]:
    """Where a request (or a history) breaks the rule; empty if it keeps it."""
    found: list[str] = []
    calls = Counter(item["call_id"] for item in seen if item.get("type") == "function_call")
    results = outputs(seen)
    for call_id, times in Counter(done_lines).items():
        if times > 1:
            found.append(f"{call_id} ran {times} times")
        if calls[call_id] != 1 or len(results.get(call_id, ())) != 1:
            found.append(f"{call_id} ran and is there {calls[call_id]} times, with outputs {results.get(call_id)}")
    for call_id, texts in results.items():
        for text in texts:
            if text == done(call_id):
                ok = call_id in done_lines
            elif says_unknown(text):
                ok = True
            else:
                ok = call_id not in done_lines
            if not ok:
                found.append(f"{call_id} is in the book {done_lines.count(call_id)} times and is told as {text!r}")
    for call_id in calls:
        if call_id not in results:
            found.append(f"{call_id} has no output")
    return found


async def asked_next(session: Any, **config: Any) -> list[Item]:
    """What the next model sees: the request of a plain message on this session, under default policies."""
    model = ScriptedModel([final("noted")])
    settings = RunConfig(**{"lease_wait_s": 10.0, **config})
    await Runner.run(Agent(name="Next", model=model), "what happened?", session=session, run_config=settings)
    assert model.first_call is not None
    seen: Any = model.first_call.input
    return list(seen)


def short(items: Iterable[Item]) -> list[str]:
    """Items in a few letters: `U(text)`, `A(text)`, `C(call id)`, `O(call id: output)`."""
    return [_short(item) for item in items]


def _short(item: Item) -> str:
    match item.get("type"):
        case "function_call":
            return f"C({item['call_id']})"
        case "function_call_output":
            return f"O({item['call_id']}: {_kind(item['output'], item['call_id'])})"
        case "reasoning":
            return "R"
    content = item.get("content")
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
    return f"{'U' if item.get('role') == 'user' else 'A'}({text})"


def _kind(output: Any, call_id: str) -> str:
    if output == done(call_id):
        return "done"
    if says_unknown(output):
        return "unknown"
    return "not run" if says_not_run(output) else str(output)
