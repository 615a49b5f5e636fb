"""The Responses API: from a request to its reply.

An `Exchange` is a request that passed the checks. It is prepared whole (the reply is known, its response object is
built) and then either committed or not; only committing changes the ledger. Sending the reply, and how much of it
arrives, is no longer its concern.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from standfast._kits.testing.loopback.answers import Asked, Reply, Rule, ScriptExhausted, resolve
from standfast._kits.testing.loopback.checks import Refused, as_items, check_context, check_create, kind_of
from standfast._kits.testing.loopback.events import response_events
from standfast._kits.testing.loopback.faults import Failed, Faults, Incomplete, OmitIds
from standfast._kits.testing.loopback.http11 import sse
from standfast._kits.testing.loopback.ledger import CREATED_AT, Conversation, Ledger, StoredResponse
from standfast._src.base.json_values import Item, copy_json


class Exchange:
    """A Responses request and its reply."""

    def __init__(self, ledger: Ledger, rule: Rule, body: object, faults: Faults) -> None:
        request = check_create(body)
        self.ledger, self.request = ledger, request
        self.given = as_items(request.get("input"))
        self.conversation = _conversation(ledger, request.get("conversation"))
        history = self._history()
        context = [*history, *_resolve_references(ledger, self.given)]
        check_context(context, new=self.given, known_ids=ledger.known_ids, reasoned=ledger.reasoned)
        if self.conversation is not None:
            lock(self.conversation)
        try:
            reply = answer(rule, Asked(request, tuple(copy_json(context)), tuple(copy_json(self.given))))
            self.response = self._response(reply, faults)
        except BaseException:
            self.end()
            raise

    def _history(self) -> Sequence[Item]:
        if self.conversation is not None:
            return self.conversation.items
        previous = self.request.get("previous_response_id")
        return self.ledger.chain(previous) if previous else []

    def _response(self, reply: Reply, faults: Faults) -> dict[str, Any]:
        output = [self.ledger.output_form(item) for item in reply.items]
        response = response_body(self.request, self.ledger.new_id("resp"), output, reply)
        if self.conversation is not None:
            response["conversation"] = {"id": self.conversation.id}
        if failed := faults.find(Failed):
            response |= {"status": "failed", "error": {"code": failed.code, "message": failed.message}}
            response |= {"output": [], "usage": None}
        if incomplete := faults.find(Incomplete):
            response |= {"status": "incomplete", "incomplete_details": {"reason": incomplete.reason}}
            output[-1:] = [{**item, "status": "incomplete"} for item in output[-1:]]
        return response

    def commit(self) -> None:
        """The service takes it: the response is stored, and a conversation has the input and the output."""
        failed = self.response["status"] == "failed"
        stored = self.ledger.stored(self.given)
        if self.conversation is not None and not failed:
            self.conversation.items += [*stored, *copy_json(self.response["output"])]
        if self.conversation is not None or self.request.get("store") is not False:
            self.ledger.remember(self.response["output"])
        if self.request.get("store") is not False:
            previous = self.request.get("previous_response_id")
            self.ledger.responses[self.response["id"]] = StoredResponse(copy_json(self.response), stored, previous)

    def end(self) -> None:
        """The request is over, whichever way."""
        if self.conversation is not None:
            self.conversation.active = False

    def shown(self, faults: Faults) -> dict[str, Any]:
        """Return the response in the form for this client."""
        omit = faults.find(OmitIds)
        if omit is None:
            return self.response
        shown: dict[str, Any] = copy_json(self.response)
        if omit.response:
            shown["id"] = ""
        if omit.items:
            for item in shown["output"]:
                item.pop("id", None)
        return shown


def frames(response: dict[str, Any]) -> list[bytes]:
    """Return the stream of a response, event by event."""
    return [sse(event, name=event["type"]) for event in response_events(response)]


def answer(rule: Rule, asked: Asked) -> Reply:
    """Return the model's reply; report an exhausted script as the test's mistake."""
    try:
        return resolve(rule, asked)
    except ScriptExhausted as error:
        raise Refused(400, f"loopback: {error}", code="loopback_script_exhausted") from None


def lock(conversation: Conversation) -> None:
    """Lock the conversation for this request until its end, or refuse like the service."""
    check_unlocked(conversation)
    conversation.active = True


def check_unlocked(conversation: Conversation) -> None:
    """Refuse while another request on the conversation is active."""
    if conversation.active:
        raise Refused(
            400,
            "Another process is currently operating on this conversation. Please retry in a few seconds.",
            code="conversation_locked",
        )


def response_body(request: dict[str, Any], response_id: str, output: list[Item], reply: Reply) -> dict[str, Any]:
    """A completed response object, with the fields the service fills in."""
    echoed = ("instructions", "max_output_tokens", "previous_response_id", "reasoning", "prompt", "top_logprobs")
    return {
        "id": response_id,
        "object": "response",
        "created_at": CREATED_AT,
        "completed_at": CREATED_AT + 1,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": request.get("model") or "prompt-model",
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "store": request.get("store", True),
        "temperature": request.get("temperature", 1.0),
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_p": request.get("top_p", 1.0),
        "truncation": request.get("truncation", "disabled"),
        "metadata": request.get("metadata") or {},
        "usage": usage_body(reply),
        **{name: request.get(name) for name in echoed},
    }


def usage_body(reply: Reply) -> dict[str, Any]:
    """Return token counts in the format of the Responses API."""
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def _conversation(ledger: Ledger, value: str | dict[str, Any] | None) -> Conversation | None:
    if value is None:
        return None
    return ledger.conversation(value["id"] if isinstance(value, dict) else value)


def _resolve_references(ledger: Ledger, items: list[Item]) -> list[Item]:
    """Replace references by the items they name."""
    return [_find_item(ledger, item["id"]) if kind_of(item) == "item_reference" else item for item in items]


def _find_item(ledger: Ledger, item_id: str) -> Item:
    item: Item
    stored = (item for response in ledger.responses.values() for item in [*response.input, *response.body["output"]])
    conversed = (item for conversation in ledger.conversations.values() for item in conversation.items)
    for item in (*stored, *conversed):
        if item.get("id") == item_id:
            return item
    raise Refused(404, f"Item with id '{item_id}' not found.", param="input")


# --- compaction ----------------------------------------------------------------------------------------------------


def compact(ledger: Ledger, body: object) -> dict[str, Any]:
    """`responses.compact`: all user messages, then a compaction item in place of everything else."""
    if not isinstance(body, dict) or not body.get("model"):
        raise Refused(400, "you must provide a model parameter", code="missing_required_parameter", param="model")
    previous = body.get("previous_response_id")
    given = as_items(body.get("input"))
    if not previous and not given:
        raise Refused(400, "One of 'input' or 'previous_response_id' must be provided.", param="input")
    context = [*(ledger.chain(previous) if previous else []), *ledger.stored(given)]
    kept = [item for item in context if item.get("role") == "user"]
    sealed = [item for item in context if item.get("role") != "user"]
    content = base64.b64encode(json.dumps(sealed).encode()).decode("ascii")
    item = {"type": "compaction", "id": ledger.new_id("cmp"), "encrypted_content": content}
    ledger.known_ids.add(item["id"])
    return {
        "id": ledger.new_id("resp"),
        "object": "response.compaction",
        "created_at": CREATED_AT,
        "output": [*copy_json(kept), item],
        "usage": usage_body(Reply(input_tokens=100, output_tokens=20)),
    }


def unseal(item: Item) -> list[Item]:
    """Return the items inside a compaction item of this provider. The real service's cannot be opened."""
    items: list[Item] = json.loads(base64.b64decode(item["encrypted_content"]))
    return items
