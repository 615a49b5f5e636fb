"""Summaries by any model instead of `responses.compact`: same promises (C9), cut between turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.base.errors import CompactionError, InvalidSettingError
from standfast._src.items.history import prune
from standfast._src.items.usage import Usage
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.protocol import SessionSettings, abilities
from standfast._src.sessions.rules.compaction import is_user_message, turn_boundary
from standfast._src.sessions.wrappers.compaction.summary import PREFACE, SummarisingSession, transcript
from standfast.testing import ScriptedModel, assistant_message, function_call

Items = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def talk(count: int) -> Items:
    return [item for n in range(count) for item in (user(f"question {n}"), assistant(f"answer {n}"))]


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": '{"at": 1}'}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "seen"}


def summary(text: str) -> dict[str, Any]:
    return {"role": "user", "content": PREFACE + text}


async def test_older_turns_become_one_message_and_the_latest_stay():
    inner = InMemorySession("s")
    model = ScriptedModel([[assistant_message("They asked, we answered.")]])
    session = SummarisingSession(inner, model, keep_last=3)
    assert session.session_id == "s"
    assert abilities(session) == abilities(inner)
    await session.add_items(talk(12))
    result = await session.run_compaction()
    assert result == [summary("They asked, we answered.")]
    short = await session.get_items()
    assert short == [*result, *talk(12)[-4:]]  # at least three, and no turn cut in two
    (asked,) = model.calls
    assert asked.input == [user(transcript(talk(12)[:-4]))]
    await session.add_items([user("go on")])
    await session.undo_compaction()
    assert await session.get_items() == [*talk(12), user("go on")]
    await session.undo_compaction()
    assert await session.get_items() == [*short, user("go on")]


async def test_nothing_is_asked_before_it_is_time_or_where_there_is_no_older_turn():
    model = ScriptedModel([[assistant_message("short")]])
    session = SummarisingSession(InMemorySession("s"), model, keep_last=4)
    await session.add_items(talk(2))
    assert await session.run_compaction({"force": True}) is None
    await session.add_items(talk(5))
    assert await session.run_compaction() is None
    assert not model.calls
    assert await session.run_compaction({"force": True}) is not None


async def test_a_later_summary_covers_the_earlier_one():
    model = ScriptedModel([[assistant_message("one")], [assistant_message("two")]])
    session = SummarisingSession(InMemorySession("s"), model, keep_last=2)
    await session.add_items(talk(12))
    await session.run_compaction()
    await session.add_items(talk(12))
    await session.run_compaction()
    assert await session.get_items() == [summary("two"), *talk(12)[-2:]]
    assert PREFACE.strip() in str(model.calls[1].input)


async def test_open_calls_stay_and_a_call_whose_output_is_kept_stays_with_it():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    history = [*talk(12), user("do both"), reasoning, call("open"), call("late"), user("hurry"), output("late")]
    model = ScriptedModel([[assistant_message("so far")]])
    session = SummarisingSession(InMemorySession("s"), model, keep_last=2)
    await session.add_items(history)
    await session.run_compaction()
    items = await session.get_items()
    assert items == [summary("so far"), reasoning, call("open"), call("late"), user("hurry"), output("late")]
    _, left_out = prune([*items, output("open")])
    assert left_out == []


async def test_a_default_limit_hides_nothing_and_the_run_pays():
    inner = InMemorySession("s", session_settings=SessionSettings(limit=2))
    model = ScriptedModel([[assistant_message("all of it")]], default_usage=Usage(requests=1, total_tokens=7))

    class Context:
        usage = Usage()

    session = SummarisingSession(inner, model, keep_last=2)
    await session.add_items(talk(12))
    await session.run_compaction(wrapper=Context())
    assert "question 0" in str(model.calls[0].input)
    assert await session.get_items(limit=100) == [summary("all of it"), *talk(12)[-2:]]
    assert Context.usage.requests == 1


@pytest.mark.parametrize("step", [RuntimeError("down"), [function_call("look", {}, call_id="c1")]])
async def test_a_model_that_fails_or_says_nothing_leaves_the_history_as_it_was(step: Any):
    session = SummarisingSession(InMemorySession("s"), ScriptedModel([step]))
    await session.add_items(talk(20))
    with pytest.raises(CompactionError) as caught:
        await session.run_compaction()
    assert caught.value.remedy
    assert await session.get_items() == talk(20)


async def test_the_hook_decides_about_the_older_part():
    seen: list[Any] = []
    model = ScriptedModel([[assistant_message("ok")]])
    session = SummarisingSession(
        InMemorySession("s"), model, keep_last=2, should_trigger=lambda context: bool(seen.append(context)) or True
    )
    await session.add_items(talk(2))
    assert await session.run_compaction() is not None
    assert seen[0]["session_items"] == talk(1)
    assert seen[0]["compaction_candidate_items"] == [assistant("answer 0")]
    fork = await session.fork("copy")
    assert isinstance(fork, SummarisingSession)
    assert await fork.get_items() == await session.get_items()


async def test_everything_may_be_summarised_and_less_than_nothing_kept_is_refused():
    session = SummarisingSession(InMemorySession("s"), ScriptedModel([[assistant_message("all")]]), keep_last=0)
    await session.add_items(talk(10))
    await session.run_compaction()
    assert await session.get_items() == [summary("all")]
    with pytest.raises(InvalidSettingError):
        SummarisingSession(InMemorySession("s"), ScriptedModel([]), keep_last=-1)


async def test_items_appended_while_the_model_thinks_stay_behind():
    inner, thinking, go_on = InMemorySession("s"), asyncio.Event(), asyncio.Event()

    class Slow(ScriptedModel):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            thinking.set()
            await go_on.wait()
            return await super().get_response(*args, **named)

    session = SummarisingSession(inner, Slow([[assistant_message("short")]]), keep_last=2)
    await session.add_items(talk(12))
    task = asyncio.create_task(session.run_compaction())
    await thinking.wait()
    await session.append([user("wait"), assistant("what?")], writer="run", start=0)
    go_on.set()
    await task
    assert await session.get_items() == [summary("short"), *talk(12)[-2:], user("wait"), assistant("what?")]


def test_a_transcript_tells_who_said_what_and_what_was_called():
    items = [
        user("hello"),
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me look"}]},
        call("c1"),
        output("c1"),
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:…"}, {"type": "input_text", "text": "?"}],
        },
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "x"}},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]
    assert transcript(items).split("\n\n") == [
        "user: hello",
        "assistant: let me look",
        'assistant called look({"at": 1}) [c1]',
        "result [c1]: seen",
        "user: [input_image] ?",
        'web_search_call: {"action":{"query":"x"}}',
        "assistant: no",
    ]


@given(st.lists(st.sampled_from([user("u"), assistant("a"), call("c"), output("c")]), max_size=20), st.integers(1, 8))
def test_the_cut_is_before_a_user_message_and_keeps_enough(items: Items, keep_last: int):
    boundary = turn_boundary(items, keep_last)
    if boundary:
        assert is_user_message(items[boundary])
        assert len(items) - boundary >= keep_last
        later = [n for n in range(boundary + 1, len(items)) if is_user_message(items[n])]
        assert all(len(items) - n < keep_last for n in later)
    else:
        assert not any(is_user_message(items[n]) for n in range(1, max(1, len(items) - keep_last + 1)))
