"""The Chat Completions API: the same answers in the older format.

It keeps no history; what it checks is that the messages of one request make sense together, as the service does.
"""

from __future__ import annotations

from typing import Any

from standfast._kits.testing.loopback.answers import DELTA_CHARS, Asked, Reply, Rule
from standfast._kits.testing.loopback.checks import Refused
from standfast._kits.testing.loopback.exchanges import answer
from standfast._kits.testing.loopback.faults import Failed, Faults, Incomplete, OmitIds
from standfast._kits.testing.loopback.http11 import sse
from standfast._kits.testing.loopback.ledger import CREATED_AT, Ledger
from standfast._src.base.json_values import Item

_FIELDS = frozenset(
    [
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "moderation",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    ]
)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class ChatExchange:
    """A Chat Completions request and its reply. There is nothing to commit."""

    def __init__(self, ledger: Ledger, rule: Rule, body: object, faults: Faults) -> None:
        self.request = check_chat(body)
        messages = tuple(self.request["messages"])
        reply = answer(rule, Asked(self.request, messages, messages))
        failed = faults.find(Failed)
        if failed is not None:
            raise Refused(500, failed.message, code=failed.code)
        self.response = _completion(ledger, self.request, reply, truncated=faults.find(Incomplete) is not None)

    def commit(self) -> None:
        """Do nothing: this API keeps no state."""

    def end(self) -> None:
        """Do nothing: this API holds no locks."""

    def shown(self, faults: Faults) -> dict[str, Any]:
        """Return the completion in the form for this client."""
        omit = faults.find(OmitIds)
        return {**self.response, "id": ""} if omit is not None and omit.response else self.response

    def frames(self, shown: dict[str, Any]) -> list[bytes]:
        """Return the stream of the completion, chunk by chunk, with its end mark."""
        options = self.request.get("stream_options") or {}
        chunks = _chunks(shown, with_usage=bool(options.get("include_usage")))
        return [*(sse(chunk) for chunk in chunks), sse("[DONE]")]


def check_chat(body: object) -> dict[str, Any]:
    """The body of a Chat request, if the service would take it."""
    if not isinstance(body, dict):
        raise Refused(400, "We could not parse the JSON body of your request.")
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise Refused(400, f"Unrecognized request argument supplied: {unknown[0]}", code="unknown_parameter")
    if not body.get("model"):
        raise Refused(400, "you must provide a model parameter", code="missing_required_parameter", param="model")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "[] is too short - 'messages'", param="messages")
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        open_calls = _check_message(message, f"messages.[{index}]", open_calls)
    if open_calls:
        raise _unanswered_error(open_calls, "messages")
    return body


def _check_message(message: Any, where: str, open_calls: set[str]) -> set[str]:
    """Check a message; return the calls still unanswered behind it."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _ROLES:
        raise Refused(400, f"Invalid value: '{role}' for '{where}.role'.", param=f"{where}.role")
    if role == "tool":
        call_id = message.get("tool_call_id")
        if call_id not in open_calls:
            raise Refused(
                400,
                "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                f"'tool_calls' (tool_call_id {call_id}).",
                param=f"{where}.role",
            )
        return open_calls - {call_id}
    if open_calls:
        raise _unanswered_error(open_calls, where)
    if role != "assistant":
        if message.get("content") is None:
            raise Refused(400, f"Invalid value for 'content': expected a string, got null ({where}).", param=where)
        return set()
    calls = message.get("tool_calls")
    if calls == []:
        raise Refused(400, f"Invalid '{where}.tool_calls': empty array.", param=f"{where}.tool_calls")
    if message.get("content") is None and not calls and not message.get("refusal") and not message.get("audio"):
        raise Refused(400, f"Invalid value for 'content': expected a string, got null ({where}).", param=where)
    ids = [call["id"] for call in calls or ()]
    if len(ids) != len(set(ids)):
        raise Refused(400, f"Duplicate tool_call ids in '{where}.tool_calls'.", param=where)
    return set(ids)


def _unanswered_error(open_calls: set[str], where: str) -> Refused:
    return Refused(
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(sorted(open_calls))}",
        param=where,
    )


def _completion(ledger: Ledger, request: dict[str, Any], reply: Reply, *, truncated: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    calls = []
    for item in reply.items:
        if item["type"] == "message":
            _add_parts(message, item)
        elif item["type"] == "function_call":
            call_id = item.get("call_id") or ledger.new_id("call")
            function = {"name": item["name"], "arguments": item["arguments"]}
            calls.append({"id": call_id, "type": "function", "function": function})
    if calls:
        message["tool_calls"] = calls
    finish = "length" if truncated else "tool_calls" if calls else "stop"
    return {
        "id": ledger.new_id("chatcmpl"),
        "object": "chat.completion",
        "created": CREATED_AT,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
            "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        },
    }


def _add_parts(message: dict[str, Any], item: Item) -> None:
    for part in item["content"]:
        name = "refusal" if part["type"] == "refusal" else "content"
        message[name] = (message[name] or "") + part["refusal" if name == "refusal" else "text"]


def _chunks(completion: dict[str, Any], *, with_usage: bool) -> list[dict[str, Any]]:
    base = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    if with_usage:
        base["usage"] = None
    choice = completion["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if message["content"] is None else ""}]
    deltas += [{"content": piece} for piece in _pieces(message["content"])]
    deltas += [{"refusal": piece} for piece in _pieces(message["refusal"])]
    for index, call in enumerate(message.get("tool_calls", ())):
        begun = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        for piece in _pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if with_usage:
        chunks.append({**base, "choices": [], "usage": completion["usage"]})
    return chunks


def _pieces(text: str | None) -> list[str]:
    return [text[start : start + DELTA_CHARS] for start in range(0, len(text), DELTA_CHARS)] if text else []
