"""What the page shows of an item: every field that says something."""

from __future__ import annotations

from typing import Any

import pytest

from standfast._kits.inspector.rendering import item_view

CALL = {"type": "function_call", "name": "pay", "arguments": '{"amount": 1}', "call_id": "c"}


@pytest.mark.parametrize(
    "item",
    [
        {**CALL, "role": "user", "content": [{"type": "input_text", "text": "Good morning."}]},
        {**CALL, "input": "other"},
        {"role": "user", "content": "Good morning.", "tool_calls": [{"name": "pay"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Good morning.", "refusal": "pay"}]},
        {"role": "user", "content": [{"type": "odd", "payload": "pay"}]},
        {"role": "user", "content": [{"type": "output_audio", "transcript": "pay", "audio": "AAAA"}]},
        {"": "pay"},
        {"type": "message", "said": "pay"},
        {"type": "local_shell_call", "action": {"command": ["pay"]}},
        {"type": "code_interpreter_call", "code": "pay"},
        {"type": "mcp_call", "name": "look", "arguments": "{}", "output": "pay"},
        {"type": "shell_call_output", "output": "ok", "call_id": "c", "more": "pay"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "pay"}]},
    ],
    ids=str,
)
def test_no_part_of_an_item_is_hidden(item: dict[str, Any]) -> None:
    """A call behind a role was shown as a message, and the command of a shell call not at all."""
    view = item_view(item)
    assert "pay" in view["title"] + view["text"]
    for word in ("Good morning.", "other"):
        assert (word in view["text"]) == (word in str(item))


def test_what_says_nothing_to_a_reader_is_left_out() -> None:
    part = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    view = item_view({"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]})
    assert view["text"] == "Hello."
    assert item_view(CALL)["text"] == '{\n  "amount": 1\n}'
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    assert item_view({"role": "user", "content": [image]})["text"] == "[input_image]"
