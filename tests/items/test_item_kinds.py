"""The one table of item kinds: what arrives, what is read back and what is shown agree."""

from __future__ import annotations

import pytest

from standfast._src.items.item_kinds import KINDS, TOOL_CALL, build_run_item, kind_of
from standfast._src.items.items import MessageOutputItem, ToolCallItem


@pytest.mark.parametrize("wire", sorted(KINDS))
def test_an_item_is_shown_as_the_class_of_its_kind_under_its_own_name(wire: str):
    kind = kind_of({"type": wire, "id": "x"})
    item = build_run_item(kind.name, None, {"type": wire, "id": "x"})
    assert type(item) is kind.shown_as
    assert item.type == kind.name


@pytest.mark.parametrize("wire", ["function_call", "web_search_call", "something_newer"])
def test_what_is_nothing_else_is_a_tool_call(wire: str):
    assert kind_of({"type": wire}) is TOOL_CALL
    assert type(build_run_item(TOOL_CALL.name, None, {"type": wire, "name": "n"})) is ToolCallItem


def test_a_message_in_the_easy_form_is_a_message():
    assert kind_of({"role": "user", "content": "hi"}).shown_as is MessageOutputItem
