"""Items: typed objects and plain mappings mean the same, and nothing is shared with what they were made from."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
)

from standfast._src.base.errors import AgentsException, ModelBehaviorError
from standfast._src.items.items import (
    HandoffOutputItem,
    InputItem,
    ItemHelpers,
    MessageOutputItem,
    ModelResponse,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOrigin,
    ToolOriginType,
    readable,
    to_json_item,
    to_plain,
)
from standfast._src.items.stream_events import EVENT_NAMES, event_for
from standfast._src.items.tool_outputs import ToolOutputFileContent, ToolOutputImage, ToolOutputText, tool_output
from standfast._src.items.usage import Usage


class Someone:
    """Stands for an agent: a run item only holds it."""


def typed_message(*parts: Any) -> ResponseOutputMessage:
    return ResponseOutputMessage(id="m1", content=list(parts), role="assistant", status="completed", type="message")


def text(value: str) -> ResponseOutputText:
    return ResponseOutputText(annotations=[], text=value, type="output_text")


def refused(value: str) -> ResponseOutputRefusal:
    return ResponseOutputRefusal(refusal=value, type="refusal")


CALL = ResponseFunctionToolCall(id="f1", call_id="c1", name="look", arguments="{}", type="function_call")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_a_typed_object_becomes_json_of_what_was_set():
    assert to_json_item(CALL) == {
        "id": "f1",
        "call_id": "c1",
        "name": "look",
        "arguments": "{}",
        "type": "function_call",
    }


def test_a_typed_object_is_dumped_under_the_names_of_the_wire():
    call = ResponseFunctionToolCall.model_validate({**to_json_item(CALL), "async": True})
    assert to_json_item(call)["async"] is True


def test_an_object_that_its_library_built_without_validation_is_taken_as_it_is(recwarn):
    message = ResponseOutputMessage.construct(
        id="m1", content=[{"type": "new_kind", "x": 1}], role="assistant", type="message"
    )
    assert to_json_item(message)["content"] == [{"type": "new_kind", "x": 1}]
    assert not recwarn.list


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4))
def test_a_plain_item_becomes_an_equal_one_that_shares_nothing(item):
    made = to_json_item(item)
    assert made == item

    def containers(value: Any) -> list[int]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = [id(value)] if isinstance(value, dict | list) else []
        return own + [found for each in inner for found in containers(each)]

    assert not set(containers(made)) & set(containers(item))


def test_typed_parts_inside_a_plain_item_become_json_too():
    item = {"role": "assistant", "content": (text("hi"), {"more": CALL})}
    assert to_json_item(item) == {
        "role": "assistant",
        "content": [{"annotations": [], "text": "hi", "type": "output_text"}, {"more": to_json_item(CALL)}],
    }


def test_any_record_with_a_type_is_an_item():
    assert to_json_item(SimpleNamespace(type="reasoning", id="r1", summary=[])) == {
        "type": "reasoning",
        "id": "r1",
        "summary": [],
    }


@pytest.mark.parametrize("value", [3, "text", None, object()])
def test_what_is_no_item_is_refused_by_name(value):
    with pytest.raises(AgentsException, match="not a conversation item"):
        to_json_item(value)


def test_enums_sets_and_dataclasses_have_a_json_form():
    assert to_plain({"o": ToolOriginType.MCP, "p": ToolOutputText(text="x")}) == {
        "o": "mcp",
        "p": {"type": "text", "text": "x"},
    }


def test_other_mappings_subclasses_and_iterables_have_a_json_form():
    class Name(str):
        pass

    odd = MappingProxyType({"type": Name("x"), "tags": (tag for tag in "ab"), "raw": b"kept"})
    assert to_json_item(odd) == {"type": "x", "tags": ["a", "b"], "raw": b"kept"}


# --- run items -------------------------------------------------------------------------------------------------------


def test_a_run_item_gives_a_fresh_dict_as_input():
    raw = {"type": "message", "content": [{"text": "hi"}], "created_by": "them"}
    item = MessageOutputItem(Someone(), raw)
    made = item.to_input_item()
    assert made == {"type": "message", "content": [{"text": "hi"}]}
    made["content"].clear()
    assert raw["content"] == [{"text": "hi"}]


def test_a_released_agent_is_still_found_while_somebody_else_holds_it():
    agent = Someone()
    item = MessageOutputItem(agent, {})
    item.release_agent()
    item.release_agent()
    assert item.agent is agent
    del agent
    gc.collect()
    assert item.agent is None
    assert "MessageOutputItem(agent=None" in repr(item)


def test_releasing_what_nobody_else_can_hold_keeps_it():
    item = MessageOutputItem("a name", {})
    item.release_agent()
    assert item.agent == "a name"


def test_an_item_without_its_agent_says_so():
    item = MessageOutputItem(Someone(), {})
    del item.agent
    with pytest.raises(AttributeError, match="agent"):
        _ = item.agent


def test_releasing_a_handoff_releases_both_agents():
    source, target = Someone(), Someone()
    item = HandoffOutputItem(source, {"type": "function_call_output"}, source, target)
    item.release_agent()
    assert (item.agent, item.source_agent, item.target_agent) == (source, source, target)
    del source, target
    gc.collect()
    assert (item.agent, item.source_agent, item.target_agent) == (None, None, None)


def test_a_run_item_says_what_it_does_not_have():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = MessageOutputItem(Someone(), {}).nothing


def test_run_items_can_be_pickled_and_compared():
    item = ToolCallItem("agent", {"type": "function_call", "call_id": "c1"}, title="t")
    assert pickle.loads(pickle.dumps(item)) == item
    assert item != ToolCallItem("agent", {"type": "function_call", "call_id": "c2"}, title="t")


@pytest.mark.parametrize("raw", [CALL, to_json_item(CALL)], ids=["typed", "plain"])
def test_a_tool_call_knows_its_name_and_id_in_either_form(raw):
    item = ToolCallItem(Someone(), raw)
    assert (item.tool_name, item.call_id) == ("look", "c1")


def test_a_hosted_call_without_a_call_id_is_known_by_its_own():
    assert ToolCallItem(Someone(), {"type": "web_search_call", "id": "w1"}).call_id == "w1"


def test_an_output_as_input_leaves_out_what_only_comes_out_of_a_model():
    raw = {"type": "shell_call_output", "call_id": "c", "output": [], "status": "completed", "shell_output": [{}]}
    item = ToolCallOutputItem(Someone(), raw, output="done")
    assert item.to_input_item() == {"type": "shell_call_output", "call_id": "c", "output": []}
    assert item.call_id == "c"


def test_an_approval_placeholder_shows_the_call_and_never_becomes_input():
    raw = {"type": "function_call", "name": "n", "namespace": "space", "arguments": {"a": 1}, "call_id": "k"}
    item = ToolApprovalItem(Someone(), raw)
    assert (item.name, item.qualified_name, item.arguments, item.call_id) == ("n", "space.n", '{"a": 1}', "k")
    assert item.tool_lookup_key == ("namespaced", "space", "n")
    with pytest.raises(AgentsException, match="cannot be converted"):
        item.to_input_item()


def test_an_approval_placeholder_of_another_tool_shows_what_there_is():
    asked = ToolApprovalItem(Someone(), {"type": "mcp_approval_request", "name": "n", "arguments": "{}", "id": "k"})
    assert (asked.name, asked.qualified_name, asked.arguments, asked.call_id) == ("n", "n", "{}", "k")
    assert asked.tool_lookup_key is None
    custom = ToolApprovalItem(Someone(), {"type": "custom_tool_call", "input": "hi", "call_id": "k", "name": "q"})
    assert custom.arguments == "hi"
    shell = ToolApprovalItem(Someone(), {"type": "shell_call", "call_id": "k"}, "shell", tool_namespace="s")
    assert (shell.name, shell.qualified_name, shell.arguments) == ("shell", "s.shell", None)


def test_two_approval_placeholders_are_the_same_only_if_they_are_one_object():
    one, other = (ToolApprovalItem(Someone, to_json_item(CALL)) for _ in range(2))
    assert one != other
    assert len({one, other, one}) == 2


def test_every_item_is_announced_under_its_public_name_or_not_at_all():
    item = MessageOutputItem(Someone(), {})
    event = event_for(item)
    assert event is not None
    assert (event.name, event.item, event.type) == ("message_output_created", item, "run_item_stream_event")
    assert event_for(ToolApprovalItem(Someone(), {})) is None
    assert event_for(InputItem(Someone(), {"role": "user", "content": "x"})) is None
    assert EVENT_NAMES["handoff_output_item"] == "handoff_occured"


def test_an_origin_survives_json():
    origin = ToolOrigin(ToolOriginType.MCP, mcp_server_name="files")
    assert ToolOrigin.from_json_dict(origin.to_json_dict()) == origin
    assert ToolOrigin.from_json_dict({"type": "unknown"}) is None
    assert ToolOrigin.from_json_dict(None) is None


def test_a_reply_as_input_is_fresh_json_without_output_only_fields():
    reply = ModelResponse([CALL, {"type": "reasoning", "id": "r", "created_by": "x"}], Usage(), "resp")
    assert reply.to_input_items() == [to_json_item(CALL), {"type": "reasoning", "id": "r"}]


# --- helpers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [lambda item: item, to_json_item], ids=["typed", "plain"])
def test_messages_are_read_in_either_form(form):
    message = form(typed_message(text("he"), refused("no"), text("llo")))
    assert ItemHelpers.extract_text(message) == "hello"
    assert ItemHelpers.extract_last_text(message) == "llo"
    assert ItemHelpers.extract_last_content(message) == "llo"
    assert ItemHelpers.extract_refusal(message) == "no"
    assert ItemHelpers.extract_last_content(form(typed_message(refused("no")))) == "no"
    assert ItemHelpers.extract_last_text(form(typed_message(refused("no")))) is None
    assert (
        ItemHelpers.text_message_outputs([MessageOutputItem(Someone(), message), ToolCallItem(Someone(), CALL)])
        == "hello"
    )


@pytest.mark.parametrize("item", [CALL, to_json_item(CALL), typed_message(), {"type": "message", "content": []}])
def test_what_has_no_text_gives_none(item):
    assert ItemHelpers.extract_text(item) is None
    assert ItemHelpers.extract_last_text(item) is None
    assert ItemHelpers.extract_refusal(item) is None
    assert ItemHelpers.extract_last_content(item) == ""


def test_a_typed_message_of_somebody_elses_making_is_read():
    part = SimpleNamespace(type="output_text", text="hi")
    assert ItemHelpers.extract_text(SimpleNamespace(type="message", content=[part])) == "hi"


def test_a_message_in_the_easy_form_is_read():
    assert ItemHelpers.extract_text({"role": "assistant", "content": "hi"}) == "hi"


def test_content_of_another_kind_is_named():
    with pytest.raises(ModelBehaviorError, match="output_audio"):
        ItemHelpers.extract_last_content({"type": "message", "content": [{"type": "output_audio"}]})


def test_input_becomes_a_list_of_ones_own():
    assert ItemHelpers.input_to_new_input_list("hi") == [{"content": "hi", "role": "user"}]
    given_items: list[Any] = [{"role": "user", "content": [{"a": 1}]}, CALL]
    made = ItemHelpers.input_to_new_input_list(given_items)
    assert made == [given_items[0], to_json_item(CALL)]
    made[0]["content"].clear()
    assert given_items[0]["content"] == [{"a": 1}]


def test_reasoning_items_of_a_provider_become_json():
    item = ResponseReasoningItem(id="r1", summary=[], type="reasoning")
    assert to_json_item(item) == {"id": "r1", "summary": [], "type": "reasoning"}


# --- tool outputs ----------------------------------------------------------------------------------------------------

PICTURE = {"type": "input_image", "image_url": "u", "detail": "low"}
STRUCTURED = [
    (ToolOutputText(text="q"), [{"type": "input_text", "text": "q"}]),
    ({"type": "text", "text": "q"}, [{"type": "input_text", "text": "q"}]),
    (ToolOutputImage(image_url="u", detail="low"), [PICTURE]),
    ({"type": "image", "file_id": "f"}, [{"type": "input_image", "file_id": "f"}]),
    (ToolOutputFileContent(file_url="u", filename="n"), [{"type": "input_file", "file_url": "u", "filename": "n"}]),
    ((ToolOutputText(text="q"),), [{"type": "input_text", "text": "q"}]),
    ([ToolOutputText(text="a"), {"type": "text", "text": "b"}], [{"type": "input_text", "text": t} for t in "ab"]),
]
PLAIN = [
    None,
    3,
    True,
    {"a": 1},
    {"type": "text"},
    {"type": "image"},
    {"type": "file"},
    {"type": "text", "text": 3},
    [],
]
PLAIN += [[1], ["a"], [ToolOutputText(text="q"), "x"], {"type": "input_text", "text": "x"}]


@pytest.mark.parametrize(("value", "expected"), STRUCTURED)
def test_parts_for_the_model_stay_parts(value, expected):
    assert tool_output(value) == expected


@pytest.mark.parametrize("value", ["text", *PLAIN])
def test_everything_else_is_told_as_text(value):
    assert tool_output(value) == str(value)


def test_the_sdks_own_output_types_are_understood():
    import agents

    assert tool_output(agents.ToolOutputImage(image_url="u", detail="low")) == [PICTURE]


def test_an_output_item_names_its_call_in_either_form_and_the_program_that_asked():
    caller = {"type": "program", "caller_id": "p"}
    plain = {**to_json_item(CALL), "caller": caller}
    expected = {"call_id": "c1", "output": "4", "type": "function_call_output"}
    assert ItemHelpers.tool_call_output_item(CALL, 4) == expected
    assert ItemHelpers.tool_call_output_item(plain, 4) == {**expected, "caller": caller}


@pytest.mark.parametrize("kind", [ToolOutputImage, ToolOutputFileContent])
def test_a_part_without_content_is_refused_where_it_is_made(kind):
    with pytest.raises(ValueError, match="Give"):
        kind()


# --- plain items read like typed ones --------------------------------------------------------------------------------


def test_a_plain_item_can_be_read_like_a_providers_object():
    """Programs read `item.raw_item.name`; where a model gave plain dicts that must not be an error."""
    item = readable({"type": "message", "content": [{"type": "output_text", "text": "hi"}]})
    assert (item.type, item.content[0].text, item["type"]) == ("message", "hi", "message")
    with pytest.raises(AttributeError, match="no 'name'"):
        _ = item.name
    assert item.model_dump(exclude_unset=True) == dict(item)


def test_a_plain_item_is_known_by_openais_class_where_that_is_loaded_and_stays_a_dict():
    item = readable({"type": "message", "content": []})
    assert isinstance(item, ResponseOutputMessage)
    assert not isinstance(item, ResponseFunctionToolCall)
    assert isinstance(item, dict)
    assert json.dumps(item) == '{"type": "message", "content": []}'
    assert pickle.loads(pickle.dumps(item)) == copy.deepcopy(item) == item
    assert type(pickle.loads(pickle.dumps(item))) is type(item)
    assert readable({"type": "something newer"}).__class__ is type(item)


def test_reading_a_plain_item_changes_neither_it_nor_its_json():
    plain = {"type": "message", "content": [{"text": "hi"}]}
    item = readable(plain)
    item.content[0]["text"] = "changed"
    assert item == plain == {"type": "message", "content": [{"text": "hi"}]}
    assert type(to_json_item(item)) is dict
    assert type(copy.deepcopy(item)) is type(pickle.loads(pickle.dumps(item))) is type(item)
