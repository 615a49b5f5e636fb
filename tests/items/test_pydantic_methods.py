"""Classes that are pydantic models in the SDK: web frameworks read, check, dump and describe them."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from standfast import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from standfast.realtime import InputText, RealtimeItem, RealtimeToolCallItem, UserMessageItem

SAID = {
    "item_id": "item_1",
    "previous_item_id": None,
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "Hello", "said_by": "Ada"}],
    "status": "completed",
}
CALLED = {
    "item_id": "item_2", "previous_item_id": "item_1", "call_id": "call_1", "type": "function_call",
    "status": "completed", "arguments": "{}", "name": "look", "output": None,
}  # fmt: skip


def test_an_item_of_a_call_is_read_from_json_as_its_class_and_dumped_with_unknown_fields():
    items = TypeAdapter(list[RealtimeItem])
    said, called = read = items.validate_python([SAID, CALLED])
    assert isinstance(said, UserMessageItem)
    assert isinstance(said.content[0], InputText)
    assert isinstance(called, RealtimeToolCallItem)
    assert items.dump_python(read) == [SAID, CALLED]
    assert items.validate_json(items.dump_json(read)) == read
    assert items.validate_python([said])[0] is said
    assert UserMessageItem.model_validate_json(said.model_dump_json()) == said
    assert "UserMessageItem" in items.json_schema()["$defs"]
    with pytest.raises(ValidationError, match="role"):
        items.validate_python([{**SAID, "role": "stranger"}])


def test_an_item_of_a_call_is_a_field_of_a_model():
    class Shown(BaseModel):
        history: list[RealtimeItem]

    shown = Shown.model_validate({"history": [SAID]})
    assert Shown.model_validate_json(shown.model_dump_json()) == shown
    assert shown.model_dump() == {"history": [SAID]}
    assert "history" in Shown.model_json_schema(mode="serialization")["properties"]


def test_outputs_of_tools_have_the_methods_of_models():
    text = ToolOutputText(text="four")
    assert text.model_dump() == {"type": "text", "text": "four"}
    assert ToolOutputText.model_validate_json(text.model_dump_json()) == text
    image = ToolOutputImage.model_validate({"type": "image", "file_id": "file_1"})
    assert image == ToolOutputImage(file_id="file_1")
    assert image.model_dump(exclude_none=True) == {"type": "image", "file_id": "file_1"}
    assert image.model_copy(update={"detail": "low"}).detail == "low"
    assert ToolOutputFileContent.model_json_schema()["properties"].keys() == {
        "type", "file_data", "file_url", "file_id", "filename",
    }  # fmt: skip
    with pytest.raises(ValidationError, match="without a source"):
        ToolOutputImage.model_validate({})
