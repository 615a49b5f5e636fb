"""Wire format of Chat Completions: requests from items, and items from messages. Sends nothing.

Items are what a conversation is made of; messages are how this API writes it. One assistant message holds what the
model said and all its calls of one turn, and is followed at once by the tool messages that answer them: that order is
made here, whatever order the items came in.

What has no form in this API: reasoning is left out (the API neither takes nor returns it); every other kind it does
not know is refused, because leaving out what a conversation rests on would change it unseen. The API keeps no
conversation either, so the ids of a server-owned one are refused too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from standfast._src.base.errors import UserError
from standfast._src.base.json_values import Item
from standfast._src.items.items import to_json_item, to_plain
from standfast._src.models.interface import ModelRequest
from standfast._src.models.model_settings import MCPToolChoice, ToolChoice
from standfast._src.models.responses_format import OUTPUT_NAME, with_extras
from standfast._src.models.tool_definitions import OfferedHandoff, OutputSchema, is_function

Message = dict[str, Any]

LEFT_OUT = frozenset({"reasoning"})
"""Kinds of items that are not sent: this API has no place for them, and a conversation can be continued without."""

WITHOUT_EFFECT = ("truncation", "response_include", "context_management")
"""Settings that this API has no place for."""

_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "top_logprobs", "verbosity")
_SAME_NAMES = (*_SAMPLING, "metadata", "store", "prompt_cache_retention", "prompt_cache_options")
_INSTEAD = "Use OpenAIResponsesModel for this conversation, or take such items out with call_model_input_filter."


def request(model: str, asked: ModelRequest, *, stream: bool = False, newer_limits: bool = False) -> dict[str, Any]:
    """The keyword arguments of `chat.completions.create`.

    `newer_limits` writes `max_tokens` as the service's own models want it (`max_completion_tokens`); compatible
    servers know the older name.
    """
    _refuse_server_state(asked)
    settings = asked.model_settings
    tool_list = [*(function_param(tool) for tool in asked.tools), *(handoff_param(one) for one in asked.handoffs)]
    reasoning = to_plain(settings.reasoning) or {}
    said: dict[str, Any] = {
        "model": model,
        "messages": messages_from_items(asked.input, instructions=asked.system_instructions),
        "tools": tool_list or None,
        "tool_choice": tool_choice_param(settings.tool_choice),
        "parallel_tool_calls": settings.parallel_tool_calls if tool_list else None,
        "response_format": response_format_param(asked.output_schema),
        "max_completion_tokens" if newer_limits else "max_tokens": settings.max_tokens,
        "reasoning_effort": reasoning.get("effort") if isinstance(reasoning, dict) else None,
        "logprobs": True if settings.top_logprobs is not None else None,
        # Usage must not depend on streaming, so it is asked for unless that was switched off.
        "stream_options": {"include_usage": True} if stream and settings.include_usage is not False else None,
    }
    said |= {name: to_plain(getattr(settings, name)) for name in _SAME_NAMES}
    return with_extras({name: value for name, value in said.items() if value is not None}, settings)


def _refuse_server_state(asked: ModelRequest) -> None:
    """Refuse state kept on a server, known only to the Responses API: ignored silently, the history would be lost."""
    given = {name: getattr(asked, name) for name in ("previous_response_id", "conversation_id", "prompt")}
    names = [name for name, value in given.items() if value]
    if names:
        raise UserError(
            f"Chat Completions has no {' and no '.join(names)}",
            "Use a session (or replay) to keep the conversation here, or OpenAIResponsesModel.",
        )


# --- tools -----------------------------------------------------------------------------------------------------------


def function_param(tool: object) -> dict[str, Any]:
    """Convert a function tool. Hosted and free-form tools are refused: most servers of this API lack them."""
    if not is_function(tool):
        kind = "free-form" if getattr(tool, "type", None) == "custom" else "hosted"
        raise UserError(
            f"Chat Completions has no {kind} tools, and {getattr(tool, 'name', tool)!r} is one",
            "Use OpenAIResponsesModel, or a function tool.",
        )
    if getattr(tool, "namespace", None) or getattr(tool, "defer_loading", False):
        raise UserError(
            f"Chat Completions has neither namespaces nor deferred loading, and tool {tool.name!r} asks for it",
            "Use OpenAIResponsesModel, or offer the tool as it is.",
        )
    return _function(tool.name, tool.description, tool.params_json_schema, getattr(tool, "strict_json_schema", False))


def handoff_param(handoff: OfferedHandoff) -> dict[str, Any]:
    """Convert a handoff to a function, its form for the model."""
    strict = getattr(handoff, "strict_json_schema", False)
    return _function(handoff.tool_name, handoff.tool_description, handoff.input_json_schema, strict)


def _function(name: str, description: str | None, parameters: Mapping[str, Any], strict: bool | None) -> dict[str, Any]:
    function = {"name": name, "description": description or "", "parameters": to_plain(parameters)}
    return {"type": "function", "function": {**function, "strict": bool(strict)}}


def tool_choice_param(choice: ToolChoice) -> str | dict[str, Any] | None:
    """Convert a tool choice to this API's form."""
    if choice is None or choice in ("auto", "required", "none"):
        return choice
    if isinstance(choice, MCPToolChoice) or hasattr(choice, "server_label"):
        raise UserError("Chat Completions has no hosted MCP tools to choose", "Use OpenAIResponsesModel.")
    return {"type": "function", "function": {"name": choice}}


def response_format_param(output_schema: OutputSchema | None) -> dict[str, Any] | None:
    """Return the schema required of an answer; None for plain text."""
    if output_schema is None or output_schema.is_plain_text():
        return None
    schema = {
        "name": OUTPUT_NAME,
        "strict": output_schema.is_strict_json_schema(),
        "schema": output_schema.json_schema(),
    }
    return {"type": "json_schema", "json_schema": schema}


# --- items to messages -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Turn:
    """An assistant message, and the tool messages right behind it."""

    message: Message
    answers: list[Message] = field(default_factory=list)

    def flat(self) -> list[Message]:
        return [self.message, *self.answers]


def messages_from_items(value: str | Iterable[Any], *, instructions: str | None = None) -> list[Message]:
    """Convert a conversation to messages. Refuse items without a form in this API, except `LEFT_OUT`."""
    turns: list[_Turn] = []
    calls: dict[str, _Turn] = {}
    if instructions is not None:
        turns.append(_Turn({"role": "system", "content": instructions}))
    items: Iterable[Any] = [{"role": "user", "content": value}] if isinstance(value, str) else value
    for given in items:
        item = to_json_item(given)
        match item.get("type") or ("message" if "role" in item else None):
            case "message":
                _add_message(turns, item)
            case "function_call":
                _add_call(turns, calls, item)
            case "function_call_output":
                _add_output(turns, calls, item)
            case kind if kind not in LEFT_OUT:
                raise UserError(f"Chat Completions has no form for a {kind!r} item", _INSTEAD)
    return [message for turn in turns for message in turn.flat()]


def _add_message(turns: list[_Turn], item: Item) -> None:
    if item["role"] != "assistant":
        turns.append(_Turn({"role": item["role"], "content": _input_content(item["content"])}))
        return
    text, refusal = _assistant_content(item["content"])
    last = turns[-1].message if turns else {}
    # Said after calling, in the same turn: no message may stand between calls and their answers.
    if last.get("tool_calls") and not turns[-1].answers and last.get("content") is None and "refusal" not in last:
        message = last
    else:
        message = {"role": "assistant"}
        turns.append(_Turn(message))
    if text is not None or refusal is None:
        message["content"] = text if text is not None else ""
    if refusal is not None:
        message["refusal"] = refusal


def _add_call(turns: list[_Turn], calls: dict[str, _Turn], item: Item) -> None:
    if item.get("namespace"):
        raise UserError(f"Chat Completions has no namespaces, and call {item['call_id']!r} was made in one", _INSTEAD)
    call = {
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": item["arguments"]},
    }
    last = turns[-1] if turns else None
    if last is None or last.message["role"] != "assistant" or last.answers:
        last = _Turn({"role": "assistant"})
        turns.append(last)
    last.message.setdefault("tool_calls", []).append(call)
    calls[item["call_id"]] = last


def _add_output(turns: list[_Turn], calls: dict[str, _Turn], item: Item) -> None:
    answer = {"role": "tool", "tool_call_id": item["call_id"], "content": _output_content(item)}
    turn = calls.get(item["call_id"])
    if turn is None:  # the server says what is wrong with it; guessing a place would hide it
        turns.append(_Turn(answer))
    else:
        turn.answers.append(answer)


def _input_content(content: str | Iterable[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [_input_part(part) for part in content]


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "text":
            return {"type": "text", "text": part["text"]}
        case "input_image" if part.get("image_url"):
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
        case "input_audio":
            return {"type": "input_audio", "input_audio": to_plain(part["input_audio"])}
        case "input_file" if part.get("file_data") or part.get("file_id"):
            kept = ("file_data", "file_id", "filename")
            return {"type": "file", "file": {name: part[name] for name in kept if part.get(name)}}
    raise UserError(f"Chat Completions has no form for this {part.get('type')!r} part of a message", _INSTEAD)


def _assistant_content(
    content: str | Sequence[Mapping[str, Any]],
) -> tuple[str | list[dict[str, Any]] | None, str | None]:
    """Return the text of an assistant message (as parts if several), and its refusal if any."""
    if isinstance(content, str):
        return content, None
    texts = [part["text"] for part in content if part.get("type") in ("output_text", "text", "input_text")]
    refusals = [part["refusal"] for part in content if part.get("type") == "refusal"]
    if len(texts) + len(refusals) != len(content):
        kinds = sorted({str(part.get("type")) for part in content})
        raise UserError(f"Chat Completions has no form for an assistant message of {', '.join(kinds)}", _INSTEAD)
    said: str | list[dict[str, Any]] | None = None
    if texts:
        said = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
    return said, "".join(refusals) if refusals else None


def _output_content(item: Item) -> str | list[dict[str, Any]]:
    output = item.get("output")
    if isinstance(output, str):
        return output
    if isinstance(output, list):
        if all(part.get("type") in ("input_text", "output_text", "text") for part in output):
            return [{"type": "text", "text": part["text"]} for part in output]
        raise UserError(
            f"Chat Completions takes only text as a tool's output, and that of call {item['call_id']!r} has more",
            "Return text from the tool, or use OpenAIResponsesModel.",
        )
    return json.dumps(output)


# --- messages to items -----------------------------------------------------------------------------------------------


def assistant_items(message: Mapping[str, Any]) -> list[Item]:
    """Convert an assistant message to output items. The only ids are those of its calls."""
    content, refusal = message.get("content"), message.get("refusal")
    texts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
    parts: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    if refusal is not None:
        parts.append({"type": "refusal", "refusal": refusal})
    items: list[Item] = []
    calls = message.get("tool_calls") or ()
    # Servers write "no text" as null or as an empty string; beside calls neither is something the model said.
    if parts and not (calls and refusal is None and texts == [""]):
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": parts})
    return items + [_call_item(call) for call in calls]


def _call_item(call: Mapping[str, Any]) -> Item:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise UserError(f"a {call.get('type')!r} tool call is not a function call", _INSTEAD)
    return {
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
        "status": "completed",
    }
