"""Query for the outcome of a request whose answer was lost (clause D5).

A request that a server adds to its own conversation must not be repeated blindly. For a server with a way to ask, a
model offers `settle`, and a run continues from its result. This module has the types for that, and the pure part:
finding the sent items in the server's listing. Nothing here decides to send anything.

Limits of the knowledge: under a conversation the server lists its items in order. With the id of the last item known
before the request, the items behind it answer the question; `mark` fetches that id. Without the id, tool outputs still
identify themselves by their call ids, but an equal message may be an older one: then the answer is None, unknown. A
response chain cannot be listed by parent, so only a response id that was seen in a cut stream can be asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from standfast._src.base.json_values import Item
from standfast._src.items.history import LOCAL_CALL_TYPES, call_key, output_key
from standfast._src.items.items import ModelResponse


@dataclass(frozen=True, slots=True)
class SendEvidence:
    """Facts about a request with an unknown outcome.

    `input` is the payload exactly as it was handed to the model. `after_item_id` is the newest item that the
    conversation was known to have before the request ("" if known to be empty, None if nothing is known). `response_id`
    was seen before the answer broke off.
    """

    input: Sequence[Item]
    conversation_id: str | None = None
    previous_response_id: str | None = None
    response_id: str | None = None
    after_item_id: str | None = None
    error: BaseException | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Settled:
    """Answer of the server: was the request taken, and the reply if still available.

    Not taken: sending again is safe. Taken with a response: continue as if the response had arrived (a response found
    in a conversation has no id and no usage, for the server does not list these). Taken without a response: the server
    has the input and no answer to it.
    """

    taken: bool
    response: ModelResponse | None = None
    is_over: bool = False
    """True if the request was taken and cut short: no whole reply will come."""
    calls: tuple[Item, ...] = ()
    """Calls of a reply cut short. The server has them, and waits for their outputs all the same."""


@runtime_checkable
class ModelSettlement(Protocol):
    """A model that can ask its server for the outcome of a request."""

    async def settle(self, evidence: SendEvidence) -> Settled | None:
        """Return the outcome of a request, or None if the server cannot tell."""
        ...

    async def mark(self, conversation_id: str) -> str:
        """The id of the conversation's newest item, "" if none: `SendEvidence.after_item_id` of the next send."""
        ...


# --- finding what was sent among what the server lists ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """Location of sent items in a listing: `output` is the model's answer to them, `later` the rest of the listing."""

    output: tuple[Item, ...]
    later: Sequence[Item] = ()


def find_sent(sent: Sequence[Item], listed: Sequence[Item]) -> FoundRequest | None:
    """Find the latest place in a listing with all the sent items in a row; return None without a match.

    `listed` is in the order of the conversation. The items behind the match up to the next input are the model's
    output.
    """
    if not sent:  # a filter left everything out: whatever the model said, it said to nothing new
        output = tuple(_output_after(listed))
        return FoundRequest(output, listed[len(output) :]) if output else None
    for start in range(len(listed) - len(sent), -1, -1):
        if all(alike(one, other) for one, other in zip(sent, listed[start:], strict=False)):
            output = tuple(_output_after(listed[start + len(sent) :]))
            return FoundRequest(output, listed[start + len(sent) + len(output) :])
    return None


def identifies_itself(sent: Sequence[Item]) -> bool:
    """Return whether equal items elsewhere are impossible: outputs and approvals name the only call they answer."""
    return any(len(output_key(item) or ()) == 2 for item in sent)


def calls_in(items: Iterable[Item]) -> tuple[Item, ...]:
    """Select the calls that the server wants answered and a program can answer."""
    answered = LOCAL_CALL_TYPES | {"mcp_approval_request"}
    return tuple(item for item in items if item.get("type") in answered)


def is_answered(calls: Iterable[Item], listed: Sequence[Item]) -> bool:
    """Return whether any of the calls is answered in the listing: another request has continued from there."""
    asked = {call_key(item) for item in calls}
    return any(output_key(item) in asked for item in listed if output_key(item) is not None)


def _output_after(items: Sequence[Item]) -> list[Item]:
    output: list[Item] = []
    for item in items:
        if is_input(item):
            break
        output.append(item)
    return output


def is_input(item: Item) -> bool:
    """Return whether an item was given to the model instead of made by it."""
    kind = str(item.get("type") or "message")
    if kind == "message":
        return item.get("role") != "assistant"
    return kind.endswith("_output") or kind in ("mcp_approval_response", "item_reference")


def alike(sent: Item, listed: Item) -> bool:
    """Return whether a listed item equals the sent one, apart from server additions: ids, a status, defaults, text as
    parts.
    """
    return _comparison_key(sent) == _comparison_key(listed)


def _comparison_key(item: Item) -> tuple[object, ...]:
    kind = str(item.get("type") or "message")
    if kind == "message":
        return kind, item.get("role"), _parts(item.get("content"))
    if "call_id" in item and "output" in item:
        return kind, item["call_id"], _parts(item["output"])
    return kind, {name: value for name, value in item.items() if name not in _NOT_MEANT and value is not None}


def _parts(content: object) -> object:
    """Content without the defaults that the server fills in, text parts as their text."""
    if isinstance(content, str):
        return [("text", content)]
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


_NOT_MEANT = frozenset({"id", "status", "type", "provider_data", "created_by"})
_FILLED_IN = ("annotations", "logprobs", "detail")


def _part(part: object) -> object:
    if not isinstance(part, dict):
        return part
    if part.get("type") in ("input_text", "output_text", "text"):
        return "text", part.get("text")
    return {name: value for name, value in part.items() if name not in _FILLED_IN and value is not None}
