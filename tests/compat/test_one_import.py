"""The promise: a program written for the OpenAI Agents SDK does the same with standfast once one import is changed.

Every example of every program runs twice, with the real SDK and with standfast, and what a user can see must be equal:
outputs, items, what the model was sent, what the session holds, errors by the name one catches them by, events in their
order. Where standfast differs on purpose the table below says where exactly, and why. An entry that is no longer true
fails as a missing one does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents.models import _openai_shared

import standfast

from .library import differences, examples, load, seen

sdk.set_tracing_disabled(True)

ASKED = "a question to a person is not part of what happened: once answered it is no longer among the items (C5)"
WHOLE = "a turn is stored when it is whole, never a call without its output (C3, C8)"
OWN_WORDS = "the sentence is standfast's own"
UNFILTERED = "a filter changes what the next agent sees; items and replay keep what happened (C4)"
NO_PROVIDERS_ID = "a message that no provider made has no id, and nothing that only providers know"
CLOSED = (
    "a cancelled run's turn is closed and stored whole, so that its history is valid without its state (C8, C14); what "
    "was cut is said to be unknown"
)

DEVIATIONS: dict[str, tuple[str, set[str]]] = {
    "agents_as_tools.an_agent_as_a_tool": (OWN_WORDS, {"[1].description"}),
    "approvals.approving": (f"{ASKED}; replay leaves out what has no output (D12)", {"[2].replay", "[3].items"}),
    "approvals.rejecting": (ASKED, {"[1].items"}),
    "approvals.through_text": (ASKED, {"[1].items"}),
    "approvals.through_json": (ASKED, {"[2]"}),
    "approvals.only_sometimes": (ASKED, {"[2].items"}),
    "approvals.once_and_for_all": (ASKED, {"[1].items"}),
    "approvals.one_of_two": (ASKED, {"[3]"}),
    "approvals.with_a_session": (WHOLE, {"[0]"}),
    "errors.a_handler_for_too_many_turns": (
        NO_PROVIDERS_ID,
        {
            "[0].as input[4].id",
            "[0].as input[4].content[0].logprobs",
            "[0].replay[5].id",
            "[0].replay[5].content[0].logprobs",
        },
    ),
    "found_changing.a_context_used_for_a_second_run_after_a_tool_failed": (
        "a call id belongs to its run; a second run with the same context is another run, and its calls run",
        {"[0][1]", "[1]"},
    ),
    "found_changing.a_handler_that_returns_a_dict": (NO_PROVIDERS_ID, {f"[{n}][2]" for n in range(4)}),
    "found_changing.a_queued_handoff_that_is_gone": (
        "a saved run whose handoff is gone is a mistake of the program, not of the model; nothing runs in both",
        {"[0]"},
    ),
    "found_changing.a_sync_tool_that_returns_a_coroutine": (
        "it is awaited: its repr is no answer to anybody",
        {""},
    ),
    "found_moving.a_typo_in_context_management": ("a setting without effect is refused, as everywhere", {""}),
    "found_moving.agents_that_look_alike": ("an agent equals only itself, so that it can be a key", {"[0]", "[1]"}),
    "found_streaming.a_cancelled_resume_of_a_nested_agent_goes_on": (CLOSED, {"[1][0]"}),
    "found_streaming.a_cancelled_streamed_resume_of_a_nested_agent_goes_on": (CLOSED, {"[1][0]"}),
    "handoffs.a_handoff": (OWN_WORDS, {"[2][1]"}),
    "handoffs.a_filter": (UNFILTERED, {"[0][0].items", "[0][0].as input", "[0][0].replay", "[1][0].replay"}),
    "handoffs.a_filter_for_every_handoff": (UNFILTERED, {"[0].items", "[0].as input", "[0].replay"}),
    "handoffs.a_history_that_is_folded": (UNFILTERED, {"[0].replay[0].role", "[0].replay[0].content"}),
    "handoffs.two_handoffs_at_once": ("outputs join in call order (C3)", {"[1][2]", "[1][3]"}),
    "sessions.a_model_that_fails": (
        "a run's input is stored with its first completed turn, so that trying again does not double it (C3)",
        {"[0]", "[1]"},
    ),
    "tools.a_tool_that_fails": ("the model is told what the tool's error says, so that it can act on it", {"[1][0]"}),
}


# Where the guide to moving says the same, by the program that shows it.
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "move-from-openai-agents.md"
ROWS: dict[str, str] = {
    "agents_as_tools.an_agent_as_a_tool": "The sentences are standfast's own.",
    "approvals.approving": "a question to a person stays among the items after it was answered",
    "approvals.rejecting": "a question to a person stays among the items after it was answered",
    "approvals.through_text": "a question to a person stays among the items after it was answered",
    "approvals.through_json": "a question to a person stays among the items after it was answered",
    "approvals.only_sometimes": "a question to a person stays among the items after it was answered",
    "approvals.once_and_for_all": "a question to a person stays among the items after it was answered",
    "approvals.one_of_two": "a question to a person stays among the items after it was answered",
    "approvals.with_a_session": "a call that waits for a person is stored without an output",
    "errors.a_handler_for_too_many_turns": "a message that an error handler put into the history has an invented id",
    "found_changing.a_context_used_for_a_second_run_after_a_tool_failed": "a second run with the same",
    "found_changing.a_handler_that_returns_a_dict": "a message that an error handler put into the history has",
    "found_changing.a_queued_handoff_that_is_gone": "a saved run whose handoff is gone",
    "found_changing.a_sync_tool_that_returns_a_coroutine": "a sync tool that returns a coroutine",
    "found_moving.a_typo_in_context_management": "a field that context management does not have is dropped",
    "found_moving.agents_that_look_alike": "two agents with equal settings are equal",
    "found_streaming.a_cancelled_resume_of_a_nested_agent_goes_on": "a cancelled resume of an agent used as a tool",
    "found_streaming.a_cancelled_streamed_resume_of_a_nested_agent_goes_on": "a cancelled resume of an agent used as a",
    "handoffs.a_handoff": "The sentences are standfast's own.",
    "handoffs.a_filter": "a handoff filter takes items out of the result, too",
    "handoffs.a_filter_for_every_handoff": "a handoff filter takes items out of the result, too",
    "handoffs.a_history_that_is_folded": "a handoff filter takes items out of the result, too",
    "handoffs.two_handoffs_at_once": "the output of a handoff that was ignored comes before",
    "sessions.a_model_that_fails": "the input is stored before the model is asked",
    "tools.a_tool_that_fails": "a model is told only that a tool failed",
}


@pytest.fixture(autouse=True)
def _switches_are_put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some programs set what holds for the whole process; other tests must not notice."""
    monkeypatch.setattr(_openai_shared, "_default_openai_key", None)  # the SDK has no way to take it back
    yield
    standfast.set_tracing_disabled(None)
    standfast.set_default_openai_key(None)


def outcome(name: str, library: str, folder: Path) -> Any:
    """What this example shows with this library."""
    program, _, example = name.partition(".")
    folder.mkdir()
    run = getattr(load(program, library), f"example_{example}")
    loop = asyncio.new_event_loop()  # given and closed here, because the SDK's run_sync leaves a thread's loop open
    asyncio.set_event_loop(loop)
    try:
        told = run(folder)
        return seen(loop.run_until_complete(asyncio.wait_for(told, 60)) if inspect.isawaitable(told) else told)
    finally:
        asyncio.set_event_loop(None)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.parametrize("name", examples())
def test_a_program_does_the_same_once_one_import_is_changed(name: str, tmp_path: Path):
    theirs, ours = outcome(name, "agents", tmp_path / "theirs"), outcome(name, "standfast", tmp_path / "ours")
    found = differences(theirs, ours)
    reason, expected = DEVIATIONS.get(name, ("", set()))
    unexpected = {path: pair for path, pair in found.items() if path not in expected}
    assert not unexpected, f"the SDK and standfast differ: {unexpected}"
    assert found.keys() == expected, f"no longer different, so not to be listed ({reason}): {expected - found.keys()}"


def test_every_deviation_is_about_an_example_that_exists():
    assert DEVIATIONS.keys() <= set(examples())


def test_every_deviation_stands_on_the_page_about_moving():
    page = GUIDE.read_text(encoding="utf-8")
    assert ROWS.keys() == DEVIATIONS.keys()
    assert [row for row in ROWS.values() if row not in page] == []


def test_a_difference_would_be_noticed():
    """The comparison can fail: values, kinds, missing keys and lengths."""
    assert differences({"a": [1, 2]}, {"a": [1, 2]}) == {}
    assert differences({"a": [1, 2]}, {"a": [1, 3]}).keys() == {".a[1]"}
    assert differences({"a": [1]}, {"a": [1, 2]}).keys() == {".a"}
    assert differences({"a": 1}, {"b": 1}).keys() == {".a", ".b"}
    assert differences([1], [True]).keys() == {"[0]"}
    assert differences([seen(sdk.UserError("x"))], [seen(ValueError("x"))]).keys() == {"[0]"}
