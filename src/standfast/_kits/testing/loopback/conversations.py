"""The Conversations API, and the reading side of the Responses API: lists, pages, retrieval, deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from standfast._kits.testing.loopback.checks import CONVERSATION_BATCH_MAX, PAGE_MAX, Refused, as_items, kind_of
from standfast._kits.testing.loopback.exchanges import check_unlocked
from standfast._kits.testing.loopback.ledger import Ledger
from standfast._src.base.json_values import Item

Query = dict[str, list[str]]

ID_REQUIRED = frozenset(
    [
        "file_search_call",
        "web_search_call",
        "computer_call",
        "code_interpreter_call",
        "image_generation_call",
        "local_shell_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_call",
        "item_reference",
        "reasoning",
        "compaction",
    ]
)
"""Kinds of items with meaningful ids of their own; the server assigns the ids of all remaining kinds."""


def create(ledger: Ledger, body: object) -> dict[str, Any]:
    """POST /conversations."""
    given = body if isinstance(body, dict) else {}
    items = _new_items(given.get("items") or [])
    return ledger.new_conversation(items, given.get("metadata")).body()


def update(ledger: Ledger, conversation_id: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """POST /conversations/{id}."""
    conversation = ledger.conversation(conversation_id)
    conversation.metadata = (body or {}).get("metadata") or {}
    return conversation.body()


def delete(ledger: Ledger, conversation_id: str) -> dict[str, Any]:
    """DELETE /conversations/{id}, including its items."""
    check_unlocked(ledger.conversation(conversation_id))
    del ledger.conversations[conversation_id]
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


def add_items(ledger: Ledger, conversation_id: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """POST /conversations/{id}/items: at most twenty, whole or not at all."""
    conversation = ledger.conversation(conversation_id)
    items = _new_items((body or {}).get("items") or [])
    if not items:
        raise Refused(400, "Invalid 'items': empty array. Expected at least one item.", param="items")
    check_unlocked(conversation)
    present = {item["id"] for item in conversation.items}
    for item in items:
        if item.get("id") in present:
            raise Refused(400, f"Item with id '{item['id']}' already exists in this conversation.", param="items")
    stored = ledger.stored(items)
    conversation.items += stored
    return _list(stored, has_more=False)


def _new_items(value: object) -> list[Item]:
    if isinstance(value, list) and len(value) > CONVERSATION_BATCH_MAX:
        raise Refused(
            400,
            f"Invalid 'items': array too long. Expected an array with maximum length {CONVERSATION_BATCH_MAX}, but got "
            f"an array with length {len(value)} instead.",
            code="array_above_max_length",
            param="items",
        )
    items = as_items(value, "items")
    for index, item in enumerate(items):
        if "id" in item and kind_of(item) not in ID_REQUIRED:
            raise Refused(
                400, f"Unknown parameter: 'items[{index}].id'.", code="unknown_parameter", param=f"items[{index}].id"
            )
    return items


def item(ledger: Ledger, conversation_id: str, item_id: str) -> Item:
    """GET /conversations/{id}/items/{item}."""
    for candidate in ledger.conversation(conversation_id).items:
        if candidate["id"] == item_id:
            return candidate
    raise Refused(404, f"Item with id '{item_id}' not found in conversation '{conversation_id}'.")


def delete_item(ledger: Ledger, conversation_id: str, item_id: str) -> dict[str, Any]:
    """DELETE /conversations/{id}/items/{item}."""
    conversation = ledger.conversation(conversation_id)
    check_unlocked(conversation)
    conversation.items.remove(item(ledger, conversation_id, item_id))
    return conversation.body()


def page(items: Sequence[Item], query: Query) -> dict[str, Any]:
    """Return a page of a list by `limit`, `order` and `after`."""
    limit = _limit(query.get("limit", ["20"])[-1])
    order = query.get("order", ["desc"])[-1]
    if order not in ("asc", "desc"):
        raise Refused(400, f"Invalid value: '{order}'. Supported values are: 'asc' and 'desc'.", param="order")
    ordered = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after", [""])[-1]
    if after:
        places = [place for place, one in enumerate(ordered) if one["id"] == after]
        if not places:
            raise Refused(400, f"Invalid 'after': no item with id '{after}'.", param="after")
        ordered = ordered[places[0] + 1 :]
    return _list(ordered[:limit], has_more=len(ordered) > limit)


def _limit(value: str) -> int:
    limit = int(value) if value.isascii() and value.lstrip("-").isdigit() else 0
    if not 1 <= limit <= PAGE_MAX:
        raise Refused(
            400, f"Invalid 'limit': expected an integer from 1 to {PAGE_MAX}, but got {value}.", param="limit"
        )
    return limit


def _list(items: Sequence[Item], *, has_more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else "",
        "last_id": items[-1]["id"] if items else "",
        "has_more": has_more,
    }
