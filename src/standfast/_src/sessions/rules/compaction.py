"""Pure decisions of a compaction: the items that count, the items that must stay, the request, and the way back.

Everything here is a function of its arguments. The names with `OpenAI` in them, and the two defaults, are the OpenAI
Agents SDK's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, TypeGuard, runtime_checkable

from standfast._src.base.canonical_json import count_equal
from standfast._src.base.errors import CompactionRefusedError
from standfast._src.base.json_values import Item
from standfast._src.items.history import call_key, is_call, normalise, owner_key, pair
from standfast._src.items.items import to_input_json
from standfast._src.sessions.protocol import Session

DEFAULT_COMPACTION_THRESHOLD = 10
# The SDK's number. A compaction costs a request, so a handful of items is not worth one.

CompactionMode = Literal["auto", "input", "previous_response_id"]
ResolvedMode = Literal["input", "previous_response_id"]

_MODEL_NAME = re.compile(r"(ft:)?(gpt-|o[0-9])")

_SOURCES = {"input_image": ("image_url", "file_id"), "input_file": ("file_data", "file_url", "file_id")}
_EXTRAS = {"input_image": ("detail",), "input_file": ("filename", "detail")}


class OpenAIResponsesCompactionArgs(TypedDict, total=False):
    """Arguments of `run_compaction`, all of them optional."""

    response_id: str
    compaction_mode: CompactionMode
    store: bool
    force: bool


@runtime_checkable
class OpenAIResponsesCompactionAwareSession(Session, Protocol):
    """A session whose history can be compacted."""

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> object:
        """Compact the history if it is due, or if `force` is set."""
        ...


def is_openai_responses_compaction_aware_session(
    session: object,
) -> TypeGuard[OpenAIResponsesCompactionAwareSession]:
    """Return whether a session can be asked to compact its history."""
    return callable(getattr(session, "run_compaction", None))


def is_openai_model_name(model: str) -> bool:
    """Return whether a name belongs to OpenAI's models, the only ones that `responses.compact` takes."""
    return _MODEL_NAME.match(model.strip()) is not None


# --- when, and from what ---------------------------------------------------------------------------------------------


def is_user_message(item: Item) -> bool:
    """Return whether an item is a message of the user, in either form."""
    return item.get("role") == "user" and item.get("type", "message") == "message"


def select_compaction_candidate_items(items: Iterable[Item]) -> list[Item]:
    """Return the items that a compaction shortens: everything but user messages and earlier compactions."""
    return [item for item in items if not is_user_message(item) and item.get("type") != "compaction"]


def default_should_trigger_compaction(context: dict[str, Any]) -> bool:
    """Return whether there are at least `DEFAULT_COMPACTION_THRESHOLD` candidates."""
    return len(context["compaction_candidate_items"]) >= DEFAULT_COMPACTION_THRESHOLD


def resolve_mode(mode: CompactionMode, *, response_id: str | None, stored: bool | None, in_doubt: str) -> ResolvedMode:
    """Choose the source of a compaction: the items held here, or the chain held by the server (D8).

    `in_doubt` is the reason why the chain may differ from this session ("" if none is known): then `auto` sends the
    items, and asking for the chain is refused.
    """
    if mode == "input":
        return "input"
    if mode == "auto":
        return "input" if not response_id or stored is False or in_doubt else "previous_response_id"
    if not response_id:
        raise CompactionRefusedError(
            "compaction by previous_response_id needs a response_id and there is none",
            "Give one that the server has stored, or use compaction_mode='input'.",
        )
    if stored is False:
        raise CompactionRefusedError(
            f"compaction by previous_response_id needs a stored response; {response_id!r} was made with store=False",
            "Use compaction_mode='auto' or 'input', or let the server store responses (ModelSettings(store=True)).",
        )
    if in_doubt:
        raise CompactionRefusedError(
            f"the chain of response {response_id!r} is not this history: {in_doubt}",
            "Use compaction_mode='auto' or 'input': the items held here are then what is compacted.",
        )
    return "previous_response_id"


def is_unknown_response(error: BaseException) -> bool:
    """Return whether a provider's error means that it does not have the response."""
    body = getattr(error, "body", None)
    code = getattr(error, "code", None) or (body.get("code") if isinstance(body, dict) else None)
    return getattr(error, "status_code", None) == 404 or code == "previous_response_not_found"


# --- what must stay --------------------------------------------------------------------------------------------------


def split_open(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Split items into those for compaction, and those needed by open calls and approvals, in order (C9).

    A call without its output keeps its reasoning, the adjacent calls, and their outputs: a provider accepts these only
    together. The same holds for a program and the calls it made.
    """
    answers = pair(items)
    pinned: set[int] = set()
    waiting = [place for place, item in enumerate(items) if call_key(item) is not None and place not in answers]
    programs = {call_key(item): place for place, item in enumerate(items) if item.get("type") == "program"}
    while waiting:
        place = waiting.pop()
        if place in pinned:
            continue
        pinned.add(place)
        item = items[place]
        if is_call(item):
            waiting += _same_breath(items, place)
        if place in answers:
            waiting.append(answers[place])
        owner = owner_key(item)
        if owner in programs:
            waiting.append(programs[owner])
        if item.get("type") == "program":
            waiting += [at for at, other in enumerate(items) if owner_key(other) == call_key(item)]
    return (
        [item for place, item in enumerate(items) if place not in pinned],
        [item for place, item in enumerate(items) if place in pinned],
    )


def _same_breath(items: Sequence[Item], place: int) -> list[int]:
    """Return the adjacent calls, and the reasoning before them."""
    first = last = place
    while first > 0 and is_call(items[first - 1]):
        first -= 1
    while last + 1 < len(items) and is_call(items[last + 1]):
        last += 1
    while first > 0 and items[first - 1].get("type") == "reasoning":
        first -= 1
    return list(range(first, last + 1))


def turn_boundary(items: Sequence[Item], keep_last: int) -> int:
    """Return the place of the user message with which at least `keep_last` last items begin; 0 if there is none.

    The items before it may be summarised: no turn is cut in two.
    """
    for place in range(len(items) - keep_last, 0, -1):
        if place < len(items) and is_user_message(items[place]):
            return place
    return 0


# --- what comes back -------------------------------------------------------------------------------------------------


def sanitised_output(output: Iterable[Any]) -> list[Item]:
    """Convert a compaction's output to items for storing and sending; raises before anything is replaced."""
    items = [normalise(to_input_json(item)) for item in output]
    items = [_user_message(item) if is_user_message(item) else item for item in items]
    if not any(item.get("type") == "reasoning" for item in items):
        # A provider takes an id for a reference to what it has stored, and refuses a message without its reasoning.
        items = [_without_id(item) if item.get("role") == "assistant" else item for item in items]
    return items


def _without_id(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "id"}


def _user_message(item: Item) -> Item:
    content = item.get("content")
    if not isinstance(content, list):
        return item
    return {**item, "content": [_part(part) if isinstance(part, dict) else part for part in content]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert an image or a file to its input form: with a source, and without output-only fields."""
    kind = part.get("type")
    if kind not in _SOURCES:
        return part
    sources = {name: part[name] for name in _SOURCES[kind] if isinstance(part.get(name), str) and part[name]}
    if not sources:
        raise CompactionRefusedError(
            f"the compacted history has an {kind} without {' or '.join(_SOURCES[kind])}",
            "Nothing was replaced; compact again, or leave the history as it is.",
        )
    extras = {name: part[name] for name in _EXTRAS[kind] if part.get(name) is not None}
    return {"type": kind, **sources, **extras}


# --- putting back ----------------------------------------------------------------------------------------------------


class Restoration(NamedTuple):
    """Way to repair a plain session whose replacement failed half-way."""

    verdict: Literal["old", "new", "add", "clear"]
    """`old` or `new` is stored whole; or the old is to be added from `start` on; or all is to be cleared first."""
    start: int
    """With `add`: the place in the old history to continue from. With `clear`: where items of other writers begin."""


def restoration(old: Sequence[bytes], new: Sequence[bytes], seen: Sequence[bytes]) -> Restoration:
    """Decide how to restore the old history once, keeping items added behind it by other writers.

    The stored items may be the old history with its beginning or its end cleared, a beginning of the new one, or
    nothing; each followed by items of other writers.
    """
    kept = count_equal(seen, old)
    if kept == len(old):
        return Restoration("old", kept)
    written = count_equal(seen, new)
    if written == len(new):
        return Restoration("new", written)
    if kept == len(seen):
        return Restoration("add", kept)
    left = max((size for size in range(1, len(old)) if list(seen[:size]) == list(old[-size:])), default=0)
    return Restoration("clear", max(kept, written, left))
