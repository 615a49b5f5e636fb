"""Answers of the model behind the loopback provider.

An answer is a text, an item, a list of items, a `Reply`, or a function from `Asked` to any of these. `Script` gives
prepared answers one after another; a plain function is a rule for every request. The builders (`text`, `call`,
`reasoning`, `refusal`) make items as the service would emit them; the server assigns ids when it takes the request, so
that a scripted answer can be used twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias

from standfast._src.base.json_values import Item, copy_json

DELTA_CHARS = 12
# How much text one delta carries. Small, so that even a short answer is streamed in several events.


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the model: its output items, and the tokens it claims to have used."""

    items: tuple[Item, ...] = ()
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """Argument of a rule: the request, and the model's whole input (history first, then the new items)."""

    body: dict[str, Any]
    """The parsed request."""
    context: tuple[Item, ...]
    """The model's whole input: the server's history, then this request's items."""
    input: tuple[Item, ...]
    """Items of this request."""

    @property
    def last_text(self) -> str:
        """The text of the newest user message in sight; empty if there is none."""
        for item in reversed(self.context):
            if item.get("role") == "user":
                return text_of(item)
        return ""

    @property
    def outputs(self) -> dict[str, Any]:
        """Tool outputs at the end of the request, by call id."""
        found: dict[str, Any] = {}
        for item in reversed(self.input):
            if item.get("role") == "tool":
                found[item["tool_call_id"]] = item.get("content")
            elif "call_id" in item and "output" in item:
                found[item["call_id"]] = item["output"]
            else:
                break
        return dict(reversed(found.items()))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the function tools that the model may call."""
        functions = (tool.get("function", tool) for tool in self.body.get("tools") or ())
        return tuple(tool["name"] for tool in functions if "name" in tool)


Answer: TypeAlias = "str | Item | Reply | Sequence[str | Item] | Rule"
Rule: TypeAlias = "Callable[[Asked], Answer]"


class ScriptExhausted(Exception):
    """More requests came than the script has answers."""


class Script:
    """Prepared answers, given one after another; each accepted request uses up one."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers = list(answers)
        self._given = 0
        self._lock = Lock()

    def __call__(self, asked: Asked) -> Answer:
        """The next answer."""
        with self._lock:
            if self._given >= len(self._answers):
                raise ScriptExhausted(f"the script has {len(self._answers)} answers and this is one request more")
            answer = self._answers[self._given]
            self._given += 1
        return answer

    def then(self, *answers: Answer) -> Script:
        """Add answers at the end; the script itself is returned."""
        with self._lock:
            self._answers.extend(answers)
        return self

    @property
    def left(self) -> int:
        """Number of answers not given yet."""
        return len(self._answers) - self._given


@dataclass(frozen=True, slots=True)
class Echo:
    """Default rule: answers with the newest user text, or lists the given tool outputs."""

    prefix: str = field(default="You said: ")

    def __call__(self, asked: Asked) -> Answer:
        """Return the newest user text, or the tool outputs."""
        if asked.outputs:
            return "; ".join(f"{call_id} gave {output}" for call_id, output in asked.outputs.items())
        return self.prefix + asked.last_text


def as_rule(answers: Rule | Script | Sequence[Answer] | None) -> Rule:
    """Answers in any of the forms a server takes them in, as a rule; without any, an echo."""
    if answers is None:
        return Echo()
    return answers if callable(answers) else Script(answers)


def resolve(rule: Rule, asked: Asked) -> Reply:
    """The reply a rule leads to, however many functions stand in between."""
    answer: Any = rule
    while callable(answer):
        answer = answer(asked)
    if isinstance(answer, Reply):
        return Reply(
            tuple(copy_json(item) for item in answer.items),
            answer.input_tokens,
            answer.output_tokens,
            answer.cached_tokens,
            answer.reasoning_tokens,
        )
    parts: Sequence[Any] = [answer] if isinstance(answer, str | dict) else answer
    return Reply(tuple(text(part) if isinstance(part, str) else copy_json(part) for part in parts))


# --- builders ------------------------------------------------------------------------------------------------------


def text(content: str) -> Item:
    """An assistant message."""
    part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def refusal(reason: str) -> Item:
    """Build an assistant message that refuses."""
    part = {"type": "refusal", "refusal": reason}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def call(name: str, arguments: dict[str, Any] | str | None = None, *, call_id: str | None = None) -> Item:
    """Build a function call; without a `call_id` the server assigns one. A str is sent unchanged as the arguments."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, separators=(",", ":"))
    item: Item = {"type": "function_call", "name": name, "arguments": written, "status": "completed"}
    return item if call_id is None else {**item, "call_id": call_id}


def reasoning(summary: str = "", *, encrypted_content: str | None = None) -> Item:
    """Build a reasoning item, as reasoning models put before their result."""
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    item: Item = {"type": "reasoning", "summary": parts}
    return item if encrypted_content is None else {**item, "encrypted_content": encrypted_content}


def text_of(item: Item) -> str:
    """Return the text of a message in any notation of its content."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict))
