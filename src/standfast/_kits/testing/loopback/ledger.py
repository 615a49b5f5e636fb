"""State of the loopback provider: chains of responses, and conversations.

`Ledger` is the server's view of the history. It assigns ids, converts stored items to the form in which the service
shows them, and is changed only by committing a whole exchange or by the Conversations calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from standfast._kits.testing.loopback.checks import ID_PREFIXES, Refused, kind_of
from standfast._src.base.json_values import Item, copy_json

CREATED_AT = 1_700_000_000
# The service stamps its objects; a test that compares whole objects wants the same stamp each time.


@dataclass(slots=True)
class StoredResponse:
    """A response: its input, its output, and the previous response of its chain."""

    body: dict[str, Any]
    input: list[Item]
    previous: str | None


@dataclass(slots=True)
class Conversation:
    """A conversation and its items, oldest first; `active` while a request on it is under way."""

    id: str
    metadata: dict[str, str]
    items: list[Item] = field(default_factory=list)
    active: bool = False

    def body(self) -> dict[str, Any]:
        """Return the object in the service's form."""
        return {"id": self.id, "object": "conversation", "created_at": CREATED_AT, "metadata": self.metadata}


class Ledger:
    """All stored objects."""

    def __init__(self) -> None:
        self.responses: dict[str, StoredResponse] = {}
        self.conversations: dict[str, Conversation] = {}
        self.known_ids: set[str] = set()
        self.reasoned: dict[str, str] = {}
        # Item id to the id of the reasoning item it was made with: the one may not be sent back without the other.
        self._counts: Counter[str] = Counter()

    def new_id(self, prefix: str) -> str:
        """A fresh id; the same sequence of requests gives the same ids."""
        self._counts[prefix] += 1
        return f"{prefix}_{self._counts[prefix]:06d}"

    def remember(self, output: Sequence[Item]) -> None:
        """Record the ids of output items."""
        before: Item | None = None
        for item in output:
            self.known_ids.add(item["id"])
            if before is not None and before["type"] == "reasoning" and item["type"] != "reasoning":
                self.reasoned[item["id"]] = before["id"]
            before = item

    # --- responses -----------------------------------------------------------------------------------------------

    def response(self, response_id: str) -> StoredResponse:
        """A stored response, or the 404 the service gives."""
        try:
            return self.responses[response_id]
        except KeyError:
            raise Refused(404, f"Response with id '{response_id}' not found.") from None

    def chain(self, response_id: str) -> list[Item]:
        """Return all items up to and including a response."""
        exchanges: list[list[Item]] = []
        place: str | None = response_id
        while place is not None:
            stored = self.responses.get(place)
            if stored is None:
                raise Refused(
                    400,
                    f"Previous response with id '{place}' not found.",
                    code="previous_response_not_found",
                    param="previous_response_id",
                )
            exchanges.append([*stored.input, *stored.body["output"]])
            place = stored.previous
        return [item for exchange in reversed(exchanges) for item in exchange]

    # --- conversations -------------------------------------------------------------------------------------------

    def conversation(self, conversation_id: str) -> Conversation:
        """A conversation, or the 404 the service gives."""
        try:
            return self.conversations[conversation_id]
        except KeyError:
            raise Refused(404, f"Conversation with id '{conversation_id}' not found.") from None

    def new_conversation(self, items: Sequence[Item] = (), metadata: dict[str, str] | None = None) -> Conversation:
        """Create a conversation from items."""
        conversation = Conversation(self.new_id("conv"), metadata or {}, self.stored(items))
        self.conversations[conversation.id] = conversation
        return conversation

    def stored(self, items: Iterable[Item]) -> list[Item]:
        """Convert input items to their stored form: with ids, a status, and content as parts."""
        return [self._stored_form(item) for item in items]

    def _stored_form(self, item: Item) -> Item:
        form: Item = copy_json(item)
        kind = kind_of(form) or "item"
        form["type"] = kind
        if kind == "message" and isinstance(form["content"], str):
            form["content"] = [_part(form["role"], form["content"])]
        if kind in ("message", "function_call", "function_call_output"):
            form.setdefault("status", "completed")
        if not form.get("id"):
            form["id"] = self.new_id(ID_PREFIXES.get(kind, kind.split("_")[0]))
        self.known_ids.add(form["id"])
        return form

    def output_form(self, item: Item) -> Item:
        """An output item of the model, with the ids that only the server can give."""
        form: Item = copy_json(item)
        kind = kind_of(form) or "item"
        form["type"] = kind
        if not form.get("id"):
            form["id"] = self.new_id(ID_PREFIXES.get(kind, kind.split("_")[0]))
        if kind in ("function_call", "custom_tool_call") and not form.get("call_id"):
            form["call_id"] = self.new_id("call")
        return form


def _part(role: str, text: str) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}
