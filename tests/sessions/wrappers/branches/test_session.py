"""AdvancedSQLiteSession: the SDK's program runs on both packages with one result; what ours does besides."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Usage as AgentsUsage
from agents.extensions.memory import AdvancedSQLiteSession as AgentsAdvanced

from standfast import (
    AdvancedSQLiteSession,
    Agent,
    Runner,
    SessionConflictError,
    SQLiteSession,
    Usage,
    function_tool,
)
from standfast.testing import ScriptedModel, assistant_message, function_call


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
SEARCH = {"type": "tool_search_output", "id": "t1"}
MCP = {"type": "mcp_call", "id": "m1", "server_label": "crm", "name": "find", "arguments": "{}"}
SPACED = {"type": "function_call", "call_id": "c2", "name": "send", "namespace": "mail", "arguments": "{}"}
TALK = [
    user("How is the weather?"), CALL, OUTPUT, reply("Sunny."),
    user([{"type": "input_text", "text": "Write to Ann, 50% off_er"}]), MCP, SPACED, SPACED, SEARCH, reply("Done."),
    user("x" * 120), {"type": "web_search_call", "id": "w1"}, reply("Bye."),
]  # fmt: skip


def ours(path: Path, session_id: str = "s", **more: Any) -> AdvancedSQLiteSession:
    return AdvancedSQLiteSession(session_id=session_id, db_path=path, create_tables=True, **more)


def theirs(path: Path, session_id: str = "s", **more: Any) -> AgentsAdvanced:
    return AgentsAdvanced(session_id=session_id, db_path=path, create_tables=True, **more)


def spent(tokens: int, usage: type = Usage) -> Any:
    made = usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=made))


async def the_sdks_program(session: Any, usage: type) -> list[Any]:
    """A program written for the SDK; what it sees, without times."""
    seen: list[Any] = [await session.get_session_usage(), await session.list_branches()]
    await session.add_items([{"role": "system", "content": "Be kind."}])
    for cut in (TALK[:4], TALK[4:10], TALK[10:]):
        await session.add_items(cut)
        await session.store_run_usage(spent(len(cut), usage))
    seen += [await session.get_items(), await session.get_items(2)]
    seen += [await session.get_conversation_by_turns(), await session.get_tool_usage()]
    seen += [await session.get_conversation_turns(), await session.find_turns_by_content("WRITE TO")]
    seen += [await session.find_turns_by_content("50% off_"), await session.find_turns_by_content("50_ off")]
    seen += [await session.get_turn_usage(2), await session.get_turn_usage(9), await session.get_turn_usage()]
    seen += [await session.create_branch_from_turn(2, "idea"), await session.get_items()]
    await session.add_items([user("Another way"), reply("Fine.")])
    await session.store_run_usage(spent(7, usage))
    seen += [await session.get_conversation_turns(), await session.get_turn_usage(), await session.get_session_usage()]
    seen += [await session.get_items(branch_id="main"), await session.get_items(branch_id="nothing")]
    seen += [await session.create_branch_from_content("weather", "again"), await session.pop_item()]
    await session.switch_to_branch("idea")
    seen += [await session.pop_item(), await session.get_items(), await session.get_session_usage("idea")]
    # The SDK orders by whole seconds, and does not show empty ones.
    there = [{**one, "created_at": None} for one in await session.list_branches() if one["message_count"]]
    seen.append(sorted(there, key=lambda one: one["branch_id"]))
    await session.delete_branch("idea", force=True)
    seen += [len(await session.get_items()), await session.get_session_usage()]
    for refused in (
        session.create_branch_from_turn(9),
        session.create_branch_from_turn(1, "idea"),
        session.create_branch_from_turn(1, " "),
        session.create_branch_from_content("nowhere"),
        session.switch_to_branch("gone"),
        session.delete_branch("main"),
        session.delete_branch("gone"),
        session.delete_branch(""),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            await refused
    await session.clear_session()
    seen += [await session.get_items(), await session.get_session_usage()]
    return [_timeless(one) for one in seen]


# When it was, and what the installed `openai` adds to the details of tokens.
_DIFFERENT = {"timestamp", "cache_write_tokens_details"}


def _timeless(seen: Any) -> Any:
    """Without what differs from one second to the next."""
    if isinstance(seen, list):
        return [_timeless(one) for one in seen]
    if isinstance(seen, dict):
        return {key: _timeless(one) for key, one in seen.items() if key not in _DIFFERENT}
    return seen


async def test_a_program_written_for_the_sdk_sees_the_same_on_both(tmp_path: Path):
    expected = await the_sdks_program(theirs(tmp_path / "theirs.db"), AgentsUsage)
    assert await the_sdks_program(ours(tmp_path / "ours.db"), Usage) == expected
    assert await the_sdks_program(AdvancedSQLiteSession(session_id="s", create_tables=True), Usage) == expected


async def test_the_sdk_reads_the_main_branch_that_was_written_here_and_goes_on_beside(tmp_path: Path):
    """B10: its pop removes every message that its own table does not know."""
    here = ours(tmp_path / "a.db")
    await here.add_items(TALK[:4])
    await here.append(TALK[4:10], writer="run", start=0)
    there = theirs(tmp_path / "a.db")
    assert await there.get_items() == await here.get_items() == TALK[:10]
    assert await there.get_tool_usage() == await here.get_tool_usage()
    await there.add_items(TALK[10:])
    await there.store_run_usage(spent(5, AgentsUsage))
    assert await here.get_turn_usage() == _timeless(await there.get_turn_usage())
    assert [await here.pop_item(), await there.pop_item(), await here.pop_item()] == TALK[:9:-1]
    await here.replace([user("All of it.")], upto=await here.head())
    await here.add_items([reply("Yes.")])
    assert await there.pop_item() == reply("Yes.")
    assert await there.get_items() == await here.get_items() == [user("All of it.")]
    assert _timeless(await there.get_conversation_turns()) == _timeless(await here.get_conversation_turns())
    await here.clear_session()
    assert (await there.get_items(), await there.list_branches()) == ([], [])


async def test_branches_that_the_sdk_has_made_are_there_and_stay_as_they_are_for_it(tmp_path: Path):
    there = theirs(tmp_path / "a.db")
    await there.add_items(TALK)
    await there.store_run_usage(spent(3, AgentsUsage))
    await there.create_branch_from_turn(2, "idea")
    await there.add_items([user("Another way"), reply("Fine.")])
    here = ours(tmp_path / "a.db")
    assert await here.get_items() == TALK
    assert await here.get_items(branch_id="idea") == await there.get_items() == [*TALK[:4], *_IDEA]
    assert await here.get_turn_usage(3) == _timeless(await there.get_turn_usage(3, "main"))
    await here.switch_to_branch("idea")
    await here.add_items([user("Go on")])
    assert await here.get_items() == [*TALK[:4], *_IDEA, user("Go on")]
    assert (await there.get_items(), await there.get_items(branch_id="main")) == ([*TALK[:4], *_IDEA], TALK)
    with pytest.raises(ValueError, match="already been used"):
        await here.create_branch_from_turn(1, "idea")


_IDEA = [user("Another way"), reply("Fine.")]


async def test_a_branch_that_the_sdk_makes_meanwhile_is_noticed_before_its_rows_are_mixed_up(tmp_path: Path):
    here, there = ours(tmp_path / "a.db"), theirs(tmp_path / "a.db")
    await here.add_items(TALK[:4])
    await there.create_branch_from_turn(1, "first")
    await there.add_items([user("Theirs")])
    with pytest.raises(SessionConflictError, match="has made a branch"):
        await here.add_items([reply("Ours")])
    assert (await there.get_items(), await there.get_items(branch_id="main")) == ([user("Theirs")], TALK[:4])


async def test_the_current_branch_is_kept_and_one_from_the_first_turn_is_found_again(tmp_path: Path):
    """The SDK forgets both: a restarted worker writes to main, and an empty branch cannot be switched to."""
    here = ours(tmp_path / "a.db")
    await here.add_items(TALK[:4])
    stays = ours(tmp_path / "a.db")
    assert await stays.get_items() == TALK[:4]
    await here.create_branch_from_turn(1, "fresh")
    await here.switch_to_branch("main")
    assert [one["branch_id"] for one in await here.list_branches()] == ["main", "fresh"]
    await here.switch_to_branch("fresh")
    await here.add_items([user("Afresh")])
    assert await ours(tmp_path / "a.db").get_items() == [user("Afresh")]
    assert await stays.get_items() == TALK[:4], "an object stays on the branch it is on"
    await here.delete_branch("fresh", force=True)
    assert await ours(tmp_path / "a.db").get_items() == TALK[:4]


async def test_an_object_on_a_branch_that_was_deleted_is_told_so_and_after_a_clear_is_on_main(tmp_path: Path):
    here, other = ours(tmp_path / "a.db"), ours(tmp_path / "a.db")
    await here.add_items(TALK[:4])
    await here.create_branch_from_turn(1, "idea")
    await other.switch_to_branch("main")
    await other.delete_branch("idea")
    with pytest.raises(SessionConflictError, match="was deleted"):
        await here.add_items([user("Lost")])
    await other.clear_session()
    await here.add_items([user("Anew")])
    assert await other.get_items() == [user("Anew")]
    assert await SQLiteSession("s", tmp_path / "a.db").get_items() == [user("Anew")]
    assert await SQLiteSession("s", tmp_path / "a.db").count_sessions() == 1, "branches are gone with it"


@function_tool
def weather() -> str:
    return "sun"


async def test_what_runs_cost_is_kept_by_turn_without_being_asked_and_runs_go_on_in_a_branch(tmp_path: Path):
    session = ours(tmp_path / "a.db")
    model = ScriptedModel([
        [function_call("weather", {}, call_id="1")], [assistant_message("Sunny.")], [assistant_message("Bye.")],
        [assistant_message("Other.")],
    ])  # fmt: skip
    agent = Agent("a", model=model, tools=[weather])
    first = await Runner.run(agent, "How is it?", session=session)
    await session.store_run_usage(first)
    await Runner.run(agent, "Thanks", session=session)
    usage = await session.get_turn_usage()
    assert [(turn["user_turn_number"], turn["requests"]) for turn in usage] == [(1, 2), (2, 1)]
    assert sum(run.total.requests for run in await session.usage()) == 3, "stored once"
    await session.create_branch_from_turn(2, "idea")
    await Runner.run(agent, "And there?", session=session)
    assert [item["content"] for item in model.calls[-1].input if item.get("role") == "user"] == [
        "How is it?", "And there?",
    ]  # fmt: skip
    assert (await session.get_session_usage("idea") or {})["requests"] == 1
    assert (await session.get_session_usage() or {})["requests"] == 4
    assert await session.get_tool_usage("main") == [("weather", 1, 1)]


async def test_writers_on_plain_and_advanced_objects_of_one_file_lose_nothing(tmp_path: Path):
    """Both go into one transaction of one thread, and what one has written the other must know."""
    plain, advanced = SQLiteSession("s", tmp_path / "a.db"), ours(tmp_path / "a.db")
    for number in range(20):
        await asyncio.gather(
            plain.append([user(f"p{number}")], writer="p", start=number),
            advanced.append([user(f"a{number}")], writer="a", start=number),
        )
    said = [item["content"] for item in await plain.get_items()]
    assert sorted(said) == sorted([f"p{n}" for n in range(20)] + [f"a{n}" for n in range(20)])
    assert [one for one in said if one[0] == "a"] == [f"a{n}" for n in range(20)]
    await advanced.add_items([reply("Enough.")])
    assert len(await theirs(tmp_path / "a.db").get_items()) == 41


async def test_tables_that_are_missing_or_belong_to_others_are_refused_with_a_remedy(tmp_path: Path):
    with pytest.raises(ValueError, match="create_tables=True"):
        await AdvancedSQLiteSession(session_id="s", db_path=tmp_path / "a.db").get_items()
    await ours(tmp_path / "a.db").add_items(TALK)
    assert await AdvancedSQLiteSession(session_id="s", db_path=tmp_path / "a.db").get_items() == TALK
    other = ours(tmp_path / "a.db", sessions_table="x", messages_table="y")
    with pytest.raises(ValueError, match="belongs to 'agent_messages and agent_sessions'"):
        await other.get_items()
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert db.execute("SELECT count(*) FROM message_structure").fetchone() == (len(TALK),)
