"""What compaction decides, without doing any of it: what counts, what must stay, how to ask, and how to restore.

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
    """What `run_compaction` may be told; everything may be left out."""

    response_id: str
    compaction_mode: CompactionMode
    store: bool
    force: bool


@runtime_checkable
class OpenAIResponsesCompactionAwareSession(Session, Protocol):
    """A session whose history can be compacted."""

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> object:
        """Compact the history if it is time to, or if `force` says so."""
        ...


def is_openai_responses_compaction_aware_session(
    session: object,
) -> TypeGuard[OpenAIResponsesCompactionAwareSession]:
    """Whether a session can be asked to compact its history."""
    return callable(getattr(session, "run_compaction", None))


def is_openai_model_name(model: str) -> bool:
    """Whether a name is one of OpenAI's models, which are the ones that `responses.compact` takes."""
    return _MODEL_NAME.match(model.strip()) is not None


# --- when, and from what ---------------------------------------------------------------------------------------------


def is_user_message(item: Item) -> bool:
    """Whether a person said it: a message, in either form, with the role of the user."""
    return item.get("role") == "user" and item.get("type", "message") == "message"


def select_compaction_candidate_items(items: Iterable[Item]) -> list[Item]:
    """What a compaction makes shorter: everything but user messages and earlier compactions."""
    return [item for item in items if not is_user_message(item) and item.get("type") != "compaction"]


def default_should_trigger_compaction(context: dict[str, Any]) -> bool:
    """Whether it is time: there are at least `DEFAULT_COMPACTION_THRESHOLD` candidates."""
    return len(context["compaction_candidate_items"]) >= DEFAULT_COMPACTION_THRESHOLD


def resolve_mode(mode: CompactionMode, *, response_id: str | None, stored: bool | None, in_doubt: str) -> ResolvedMode:
    """Where a compaction takes the history from: the items held here, or the chain that the server holds (D8).

    `in_doubt` says why the chain may not hold what this session holds ("" if nothing is known against it): then
    `auto` sends the items, and asking for the chain is refused.
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
    """Whether a provider's error means that it does not have the response."""
    body = getattr(error, "body", None)
    code = getattr(error, "code", None) or (body.get("code") if isinstance(body, dict) else None)
    return getattr(error, "status_code", None) == 404 or code == "previous_response_not_found"


# --- what must stay --------------------------------------------------------------------------------------------------


def split_open(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """The items that may be compacted, and those that open calls and approvals need, in order (C9).

    A call without its output keeps the reasoning it came from, the calls made in the same breath, and their outputs:
    a provider accepts these only together. So does what a program made, and the program.
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
    """The calls around this one, and the reasoning before them."""
    first = last = place
    while first > 0 and is_call(items[first - 1]):
        first -= 1
    while last + 1 < len(items) and is_call(items[last + 1]):
        last += 1
    while first > 0 and items[first - 1].get("type") == "reasoning":
        first -= 1
    return list(range(first, last + 1))


def turn_boundary(items: Sequence[Item], keep_last: int) -> int:
    """Where the last turns begin that together have at least `keep_last` items: a user message; 0 if there is none.

    What comes before may be summarised: no turn is cut in two.
    """
    for place in range(len(items) - keep_last, 0, -1):
        if place < len(items) and is_user_message(items[place]):
            return place
    return 0


# --- what comes back -------------------------------------------------------------------------------------------------


def sanitised_output(output: Iterable[Any]) -> list[Item]:
    """A compaction's output as items that can be stored and sent; refused before anything is replaced."""
    items = [normalise(to_input_json(item)) for item in output]
    items = [_user_message(item) if is_user_message(item) else item for item in items]
    if not any(item.get("type") == "reasoning" for item in items):
        # A provider takes an id for a reference to what it has stored, and refuses a message whose reasoning is gone.
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
    """An image or a file as input takes it: without the fields that only come out, and with a source."""
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
    """What to do with a plain session whose replacement failed half-way."""

    verdict: Literal["old", "new", "add", "clear"]
    """`old` or `new` stands whole; or the old is to be added from `start` on; or all is to be cleared first."""
    start: int
    """With `add`: the place in the old history to go on from. With `clear`: where in what was seen others begin."""


def restoration(old: Sequence[bytes], new: Sequence[bytes], seen: Sequence[bytes]) -> Restoration:
    """How to come from what is seen to the old history, once, keeping what others have added behind it.

    What is seen may be the old history with its beginning or its end cleared, a beginning of the new one, or nothing;
    each followed by items of others.
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
