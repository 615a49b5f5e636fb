"""What a user who changes one import relies on: names, fields, defaults and signatures are the SDK's.

Compared with the real package, so that a new release of it that differs is noticed here and nowhere else. What we add
is listed; what we leave out is listed with its reason.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import agents
import agents.items
import agents.model_settings
import agents.models.interface
import agents.retry
import agents.stream_events
import agents.testing
import agents.usage
import pytest

import standfast._src.agents.retry_policies
import standfast._src.items.items
import standfast._src.items.stream_events
import standfast._src.items.usage
import standfast._src.models.interface
import standfast._src.models.model_settings
import standfast._src.models.retry
import standfast.testing

RECORDS = [
    (standfast._src.items.items, agents.items, ["InputItem", "MessageOutputItem", "ReasoningItem", "HandoffCallItem"]),
    (
        standfast._src.items.items,
        agents.items,
        ["HandoffOutputItem", "ToolCallItem", "ToolCallOutputItem", "ToolApprovalItem"],
    ),
    (
        standfast._src.items.items,
        agents.items,
        ["ToolSearchCallItem", "ToolSearchOutputItem", "CompactionItem", "ModelResponse"],
    ),
    (
        standfast._src.items.items,
        agents.items,
        ["MCPListToolsItem", "MCPApprovalRequestItem", "MCPApprovalResponseItem"],
    ),
    (standfast._src.items.items, agents, ["ToolOrigin"]),
    (standfast._src.items.usage, agents.usage, ["Usage", "RequestUsage"]),
    (standfast._src.models.model_settings, agents.model_settings, ["ModelSettings", "MCPToolChoice"]),
    (standfast._src.models.retry, agents.retry, ["ModelRetrySettings", "ModelRetryBackoffSettings", "RetryDecision"]),
    (standfast._src.models.retry, agents.retry, ["RetryPolicyContext", "ModelRetryAdvice", "ModelRetryAdviceRequest"]),
    (standfast._src.models.retry, agents.retry, ["ModelRetryNormalizedError"]),
    (standfast._src.items.stream_events, agents.stream_events, ["RawResponsesStreamEvent", "RunItemStreamEvent"]),
    (standfast._src.items.stream_events, agents.stream_events, ["AgentUpdatedStreamEvent"]),
    (standfast.testing, agents.testing, ["ModelStep", "ModelCall"]),
]
OURS_MORE: dict[str, set[str]] = {
    # why it waits, where its agent stands (C16), and the run that asks the same already (C15)
    "ToolApprovalItem": {"reason", "agent_key", "same_as_run", "prepared_arguments", "tool_behind"},
    "ModelStep": {"delay_s", "hangs", "cut_after", "chunk_chars"},
    "ModelRetryNormalizedError": {"never_sent"},
    "ModelResponse": {"model"},  # which model answered, for what it cost
}


def public_parameters(kind: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(kind).parameters.values() if not p.name.startswith("_") and p.name != "self"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(getattr(our, name), getattr(their, name)) for our, their, names in RECORDS for name in names],
    ids=[name for _, _, names in RECORDS for name in names],
)
def test_a_record_is_built_from_the_same_fields_in_the_same_order(ours, theirs):
    mine, others = public_parameters(ours), public_parameters(theirs)
    added = OURS_MORE.get(ours.__name__, set())
    assert {p.name for p in mine} - {p.name for p in others} == added
    assert [p.name for p in mine if p.name not in added] == [p.name for p in others]
    by_name = [p.name for p in mine if p.kind is p.KEYWORD_ONLY and p.name not in added]
    assert by_name == [p.name for p in others if p.kind is p.KEYWORD_ONLY]
    required = {p.name for p in mine if p.default is p.empty}
    assert required == {p.name for p in others if p.default is p.empty}


def test_the_type_of_each_run_item_is_the_same_word():
    checked = 0
    for name, theirs in vars(agents.items).items():
        if not (inspect.isclass(theirs) and dataclasses.is_dataclass(theirs) and name.endswith("Item")):
            continue
        words = {f.name: f.default for f in dataclasses.fields(theirs)}
        if "type" in words:
            ours = {f.name: f.default for f in dataclasses.fields(getattr(standfast._src.items.items, name))}
            assert ours["type"] == words["type"]
            checked += 1
    assert checked == 14


def test_run_items_are_all_there():
    ours = {kind.__name__ for kind in standfast._src.items.items.RunItem.__args__}
    theirs = {getattr(kind, "__origin__", kind).__name__ for kind in agents.items.RunItem.__args__}
    assert ours == theirs


def methods(kind: Any) -> dict[str, Any]:
    return {
        name: getattr(kind, name)
        for base in kind.__mro__[:-1]
        if base.__module__.startswith(("agents", "standfast"))
        for name in vars(base)
        if not name.startswith("_") and callable(getattr(kind, name))
    }


METHODS = [
    (standfast._src.models.interface.Model, agents.models.interface.Model),
    (standfast._src.models.interface.ModelProvider, agents.models.interface.ModelProvider),
    (standfast._src.models.interface.ModelTracing, agents.models.interface.ModelTracing),
    (standfast._src.models.model_settings.ModelSettings, agents.model_settings.ModelSettings),
    (standfast._src.items.usage.Usage, agents.usage.Usage),
    (standfast.testing.ScriptedModel, agents.testing.ScriptedModel),
    (standfast.testing.ModelStep, agents.testing.ModelStep),
    (standfast._src.items.items.ModelResponse, agents.items.ModelResponse),
    (standfast._src.items.items.MessageOutputItem, agents.items.MessageOutputItem),
    (standfast._src.items.items.ItemHelpers, agents.items.ItemHelpers),
    (type(standfast._src.agents.retry_policies.retry_policies), type(agents.retry_policies)),
]
# method: parameters of ours only, parameters of theirs that we leave out
PARAMETERS_DIFFER: dict[str, tuple[set[str], set[str]]] = {
    "raise_error": ({"delay_s"}, set()),
    # Outputs of a declared type are validated where the tool is made, not where its output is told to the model.
    "tool_call_output_item": (set(), {"output_json_schema", "output_type_adapter"}),
}
# Parameters that packages give by position to models of the SDK, whose interface has them by name only.
ALSO_BY_POSITION = {"previous_response_id", "conversation_id", "prompt"}
NOT_OURS = {"copy_tool_call_caller"}  # tool_call_output_item does it


@pytest.mark.parametrize(("ours", "theirs"), METHODS, ids=[ours.__name__ for ours, _ in METHODS])
def test_methods_are_called_the_same_way(ours, theirs):
    mine = methods(ours)
    for name, theirs_method in methods(theirs).items():
        if name in NOT_OURS:
            continue
        assert name in mine, name
        own = {p.name: p.kind for p in inspect.signature(mine[name]).parameters.values()}
        other = {p.name: p.kind for p in inspect.signature(theirs_method).parameters.values()}
        more, less = PARAMETERS_DIFFER.get(name, (set(), set()))
        for one in ALSO_BY_POSITION & own.keys() & other.keys() if ours is standfast.testing.ScriptedModel else ():
            assert own[one] in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            other[one] = own[one]
        assert {n: k for n, k in own.items() if n not in more} == {n: k for n, k in other.items() if n not in less}
        assert inspect.iscoroutinefunction(mine[name]) == inspect.iscoroutinefunction(theirs_method)


def test_properties_of_run_items_are_the_same():
    for name in ("ToolCallItem", "ToolCallOutputItem", "ToolApprovalItem"):
        theirs = {n for n, value in vars(getattr(agents.items, name)).items() if isinstance(value, property)}
        assert {n for n in theirs if not n.startswith("_")} <= {
            n for n, value in vars(getattr(standfast._src.items.items, name)).items() if isinstance(value, property)
        }


def test_stream_event_names_are_the_same_words():
    theirs = inspect.get_annotations(agents.stream_events.RunItemStreamEvent, eval_str=True)["name"].__args__
    assert set(standfast._src.items.stream_events.EVENT_NAMES.values()) == set(theirs)


def test_a_model_written_for_the_sdk_has_the_methods_a_run_calls():
    """The runner passes everything by keyword when it does not stream, and seven arguments in order when it does."""
    for name in ("get_response", "stream_response"):
        theirs = inspect.signature(getattr(agents.testing.ScriptedModel, name))
        ours = inspect.signature(getattr(standfast._src.models.interface.Model, name))
        assert list(theirs.parameters) == list(ours.parameters)
