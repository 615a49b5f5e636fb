"""Refusals of the real service, and their wording.

A mock that accepts everything proves nothing: the defects worth finding are orphan outputs, repeated items and broken
chains, and the service answers those with a 400. Each check raises `Refused` with the status, the code and wording
close to the service's. Nothing here changes anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from standfast._src.base.json_values import Item

ID_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
    "computer_call": "cu",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "local_shell_call": "lsh",
    "shell_call": "sh",
    "apply_patch_call": "apc",
    "compaction": "cmp",
}

OUTPUT_OF: Mapping[str, str] = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "computer_call_output": "computer_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
}

_MESSAGE_FIELDS = {"type", "role", "content", "id", "status", "phase"}
_FIELDS: Mapping[str, Collection[str]] = {
    "message": _MESSAGE_FIELDS,
    "function_call": {"type", "id", "call_id", "name", "arguments", "status", "namespace", "caller"},
    "function_call_output": {"type", "id", "call_id", "output", "status", "caller"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
}
_REQUIRED: Mapping[str, Collection[str]] = {
    "message": {"role", "content"},
    "function_call": {"call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "reasoning": {"summary"},
}
_CREATE_FIELDS = frozenset(
    [
        "background",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
        "access_programs",
        "image",
    ]
)
_ASSISTANT_PARTS = frozenset({"output_text", "refusal"})
_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
METADATA_PAIRS_MAX = 16
CONVERSATION_BATCH_MAX = 20
PAGE_MAX = 100


class Refused(Exception):
    """An error answer: status, code, parameter and message as the service writes them."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The JSON the client gets."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def check_create(body: object) -> dict[str, Any]:
    """Validate the body of a Responses request, and return it."""
    if not isinstance(body, dict):
        raise Refused(400, "We could not parse the JSON body of your request.")
    unknown = sorted(set(body) - _CREATE_FIELDS)
    if unknown:
        raise Refused(400, f"Unknown parameter: '{unknown[0]}'.", code="unknown_parameter", param=unknown[0])
    if not body.get("model") and not body.get("prompt"):
        raise Refused(400, "you must provide a model parameter", code="missing_required_parameter", param="model")
    if body.get("conversation") and body.get("previous_response_id"):
        raise Refused(
            400,
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing "
            "one of: 'previous_response_id' or 'conversation'.",
            code="mutually_exclusive_parameters",
        )
    if not any(body.get(name) for name in ("input", "prompt", "conversation", "previous_response_id")):
        raise Refused(
            400,
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.",
            code="missing_required_parameter",
        )
    if len(body.get("metadata") or {}) > METADATA_PAIRS_MAX:
        raise Refused(400, "Invalid 'metadata': too many properties.", param="metadata")
    check_tools(body.get("tools") or [], body.get("tool_choice"))
    return body


def check_tools(tools: Sequence[Any], tool_choice: object) -> None:
    """Tool names are valid and each is there once; a chosen function exists."""
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict) or "type" not in tool:
            raise Refused(400, f"Missing required parameter: 'tools[{index}].type'.", param=f"tools[{index}].type")
        if tool["type"] != "function":
            continue
        name = tool.get("name", "")
        if not isinstance(name, str) or not _TOOL_NAME.match(name):
            raise Refused(
                400,
                f"Invalid 'tools[{index}].name': string does not match pattern. Expected a string that matches the "
                "pattern '^[a-zA-Z0-9_-]+$'.",
                param=f"tools[{index}].name",
            )
        if name in names:
            raise Refused(400, f"Duplicate tool name: '{name}'.", param=f"tools[{index}].name")
        names.add(name)
    if isinstance(tool_choice, dict) and tool_choice.get("type") == "function" and tool_choice["name"] not in names:
        raise Refused(400, f"Tool choice '{tool_choice['name']}' not found in 'tools' parameter.", param="tool_choice")


def as_items(value: object, where: str = "input") -> list[Item]:
    """The `input` of a request as a list of items of known shape; a str is one user message."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise Refused(400, f"Invalid type for '{where}': expected one of a list or a string.", param=where)
    for index, item in enumerate(value):
        check_item(item, f"{where}[{index}]")
    return value


def check_item(item: object, where: str) -> None:
    """Check an item: fields, content parts and the form of its id."""
    if not isinstance(item, dict):
        raise Refused(400, f"Invalid type for '{where}': expected an object.", param=where)
    kind = kind_of(item)
    if kind is None:
        raise Refused(400, f"Missing required parameter: '{where}.type'.", param=f"{where}.type")
    for name in sorted(_REQUIRED.get(kind, ())):
        if item.get(name) is None:
            raise Refused(
                400,
                f"Missing required parameter: '{where}.{name}'.",
                code="missing_required_parameter",
                param=f"{where}.{name}",
            )
    unknown = sorted(set(item) - set(_FIELDS[kind])) if kind in _FIELDS else []
    if unknown:
        raise Refused(
            400, f"Unknown parameter: '{where}.{unknown[0]}'.", code="unknown_parameter", param=f"{where}.{unknown[0]}"
        )
    if "status" in item and item["status"] is None:
        raise Refused(400, f"Invalid type for '{where}.status': expected a string.", param=f"{where}.status")
    _check_id_form(item, kind, where)
    if kind == "message":
        _check_parts(item, where)


def _check_id_form(item: Item, kind: str, where: str) -> None:
    item_id, prefix = item.get("id"), ID_PREFIXES.get(kind)
    if item_id is None or prefix is None:
        return
    if not isinstance(item_id, str) or not item_id.startswith(prefix):
        raise Refused(
            400, f"Invalid '{where}.id': '{item_id}'. Expected an ID that begins with '{prefix}'.", param=f"{where}.id"
        )


def _check_parts(item: Item, where: str) -> None:
    content = item["content"]
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refused(400, f"Invalid type for '{where}.content'.", param=f"{where}.content")
    allowed = _ASSISTANT_PARTS if item["role"] == "assistant" else _INPUT_PARTS
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            names = ", ".join(f"'{name}'" for name in sorted(allowed))
            raise Refused(
                400,
                f"Invalid value: '{kind}'. Supported values are: {names}.",
                code="invalid_value",
                param=f"{where}.content[{index}]",
            )


def check_context(
    context: Sequence[Item], *, new: Sequence[Item], known_ids: Collection[str], reasoned: Mapping[str, str]
) -> None:
    """Check that history and new input make a valid conversation: unique ids, and every output with its
    call and back.
    """
    _check_ids(context)
    calls = {(kind_of(item), item.get("call_id")) for item in context}
    for item in new:
        wanted = OUTPUT_OF.get(kind_of(item) or "")
        if wanted and (wanted, item.get("call_id")) not in calls:
            raise Refused(
                400,
                f"No tool call found for {_words(kind_of(item))} with call_id {item.get('call_id')}.",
                param="input",
            )
    _check_answered(context)
    _check_reasoning(context, new, known_ids)
    _check_reasoned(context, new, reasoned)


def _check_ids(context: Iterable[Item]) -> None:
    seen: set[str] = set()
    answered: set[tuple[str, str]] = set()
    for item in context:
        item_id, kind = item.get("id"), kind_of(item) or ""
        if item_id is not None and kind != "item_reference":
            if item_id in seen:
                raise Refused(
                    400,
                    f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
                    code="invalid_value",
                    param="input",
                )
            seen.add(item_id)
        if kind in OUTPUT_OF:
            if (OUTPUT_OF[kind], item["call_id"]) in answered:
                raise Refused(400, f"Duplicate output for call_id {item['call_id']}.", param="input")
            answered.add((OUTPUT_OF[kind], item["call_id"]))
        elif kind in OUTPUT_OF.values():
            answered.discard((kind, str(item.get("call_id"))))  # used again behind its output: another call


def _check_answered(context: Sequence[Item]) -> None:
    answered: set[tuple[str, Any]] = set()
    for item in reversed(context):
        kind, call_id = kind_of(item) or "", item.get("call_id")
        if kind in OUTPUT_OF:
            answered.add((OUTPUT_OF[kind], call_id))
        elif kind in OUTPUT_OF.values() and (kind, call_id) not in answered:
            raise Refused(400, f"No tool output found for {_words(kind)} {call_id}.", param="input")


def _check_reasoning(context: Sequence[Item], new: Sequence[Item], known_ids: Collection[str]) -> None:
    for place, item in enumerate(context):
        if kind_of(item) != "reasoning":
            continue
        item_id = item.get("id")
        follower = context[place + 1] if place + 1 < len(context) else None
        if follower is None or follower.get("role") in ("user", "system", "developer"):
            raise Refused(
                400,
                f"Item '{item_id}' of type 'reasoning' was provided without its required following item.",
                param="input",
            )
        if any(item is given for given in new) and not item.get("encrypted_content") and item_id not in known_ids:
            raise Refused(
                404,
                f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again "
                "with `store` set to true, or remove this item from your input.",
                param="input",
            )


def _check_reasoned(context: Sequence[Item], new: Sequence[Item], reasoned: Mapping[str, str]) -> None:
    present = {item.get("id") for item in context}
    for item in new:
        wanted = reasoned.get(item.get("id") or "")
        if wanted is not None and wanted not in present:
            raise Refused(
                400,
                f"Item '{item['id']}' of type '{kind_of(item)}' was provided without its required 'reasoning' item: "
                f"'{wanted}'.",
                param="input",
            )


def kind_of(item: Item) -> str | None:
    """Return the type of an item; a message may leave it out."""
    return item.get("type") or ("message" if "role" in item else None)


def _words(kind: str | None) -> str:
    return (kind or "item").replace("_", " ")
