"""Workers that really die, or are only frozen, while another takes their call over (E13, E14)."""

from __future__ import annotations

from pathlib import Path

import pytest
from realtime.session.helpers import Reader, at, talk_of, texts, until
from realtime.session.worker import agent_of, runner_of
from realtime.session.workers import answer, done, nobody_else_writes, working

from standfast import Agent, Runner, SQLiteSession
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, assistant_message

REFUSED = ("RunClaimedError", "LeaseLostError")


async def test_a_call_that_was_running_when_its_worker_died_is_not_run_again(tmp_path: Path):
    """E14: it had begun, so its outcome is said to be unknown; the second worker goes on with the call."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please pay three") as worker:
            await worker.until("tool_start")
            await until(lambda: done(log) == ["paid 3"])
            await worker.kill()
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            await reader.until("audio_end")
            await until(lambda: not talk_of(session).open)
        await reader.task
    assert done(log) == ["paid 3"]
    items = await store.get_items()
    output = next(item["output"] for item in items if item.get("type") == "function_call_output")
    assert "not known" in output
    assert texts(items)[0] == "please pay three"
    await store.close()


@pytest.mark.parametrize("moment", ["entered", "acknowledged", "tool_approval_required"])
async def test_a_worker_killed_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path, moment: str):
    """E14: the message is there if it was acknowledged; the question is asked again; nothing runs twice."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until(moment)
            await worker.kill()
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            if moment == "entered" and not talk_of(session).open and not talk_of(session).calls:
                await session.send_message("please book two")
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("tool_end")
            await reader.until("audio_end")
            await until(lambda: not talk_of(session).open)
        await reader.task
    assert done(log) == ["booked 2"]
    assert texts(await store.get_items()) == ["please book two", "So far: booked 2."]
    await store.close()


@pytest.mark.parametrize("frames", range(2, 18, 2))
async def test_a_worker_killed_behind_any_frame_goes_on_elsewhere(tmp_path: Path, frames: int):
    """E13, E14: wherever on the wire it dies, the caller is answered, and what was agreed to happens once."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await until(lambda: len(server.frames()) >= frames)
            await worker.kill()
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            talk = talk_of(session)
            if not talk.open and not talk.calls and not await store.get_items():
                await session.send_message("please book two")  # it was not acknowledged: the caller says it again
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("tool_end")
            await reader.until("audio_end")
            await until(lambda: not talk_of(session).open)
        await reader.task
    assert done(log) == ["booked 2"]
    assert texts(await store.get_items()) == ["please book two", "So far: booked 2."]
    await store.close()


async def test_a_frozen_worker_is_refused_when_it_wakes_up(tmp_path: Path):
    """E13: two workers, one call: the first ends by itself after the takeover, and stores and runs nothing."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until("resting")
            worker.freeze(path)
            runner = runner_of(agent_of(log, slow=False))
            session = await runner.resume("call-1", session=store, model_config=at(server))
            async with session:
                reader = Reader(session)
                asked = await reader.until("tool_approval_required")
                await worker.say("are you there?")
                worker.wake()
                await session.approve_tool_call(asked.call_id)
                await reader.until("audio_end")
                await until(lambda: not talk_of(session).open)
                await worker.until("ended")
                assert worker.said[-1].partition(" ")[2] in REFUSED
            await reader.task
    assert done(log) == ["booked 2"]
    assert texts(await store.get_items()) == ["please book two", "So far: booked 2."]
    await store.close()


async def test_a_woken_worker_sends_nothing_before_the_store_has_said_whose_the_call_is(tmp_path: Path):
    """C13, E14: its caller goes on speaking, its store is busy: not a word leaves, and then it is refused."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two", speaks=True) as worker:
            await worker.until("resting")
            await worker.until("spoke")
            worker.freeze(path)
            runner = runner_of(agent_of(log, slow=False))
            session = await runner.resume("call-1", session=store, model_config=at(server))
            async with session:
                await until(lambda: bool(session.pending_approvals))
                await worker.say("are you there?")
                before, said = sent_by_the_first(server), len(worker.said)
                with nobody_else_writes(path):
                    worker.wake()
                    while worker.said[said:].count("spoke") < 10:
                        worker.said.append("")
                        await worker.until("spoke")
                    after = sent_by_the_first(server)
                await worker.until("ended")
                assert worker.said[-1].partition(" ")[2] in REFUSED
                assert sent_by_the_first(server) == after
    # What it was sending in the moment it was frozen leaves when it wakes up.
    assert after[len(before) :] in ([], ["input_audio_buffer.append"])
    await store.close()


async def test_a_worker_that_is_frozen_before_its_tool_has_begun_never_begins_it(tmp_path: Path):
    """C13, E14: it was waiting for its store when it froze; the call is made again elsewhere, and once."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        gate = server.hold("response.output_item.added")
        async with working(server, path, log, "please pay three") as worker:
            await worker.until("acknowledged")
            await gate.reached()
            with nobody_else_writes(path):
                gate.release()
                await worker.until("agent_end")  # the model has called the tool
                worker.freeze()
            runner = runner_of(agent_of(log, slow=False))
            session = await runner.resume("call-1", session=store, model_config=at(server))
            async with session:
                reader = Reader(session)
                await reader.until("tool_end")
                worker.wake()
                await worker.until("ended")
                assert worker.said[-1].partition(" ")[2] in REFUSED
                await reader.until("audio_end")
                await until(lambda: not talk_of(session).open)
            await reader.task
    assert done(log) == ["paid 3"]
    assert texts(await store.get_items()) == ["please pay three", "So far: paid 3."]
    await store.close()


def sent_by_the_first(server: LoopbackRealtimeServer) -> list[str]:
    """What the first connection has sent, as the server saw it."""
    return [frame.type for frame in server.journal.find(lambda frame: frame.connection == 0, "received")]


async def test_a_text_message_between_the_death_and_the_takeover_is_in_the_call(tmp_path: Path):
    """E14: what was written to the session meanwhile is given to the new connection, in its place."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until("resting")
            await worker.kill()
        model = ScriptedModel([[assistant_message("Noted.")]])
        result = await Runner.run(Agent(name="text", model=model), "by the window", session=store)
        (left,) = result.unfinished
        assert (left.run_id, left.found, left.done) == ("call-1", "paused", "shown in requests")
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("audio_end")
            await until(lambda: not talk_of(session).open)
        await reader.task
        said = [text for _, text in server.said()]
        assert said[:3] == ["please book two", "by the window", "Noted."]
    assert texts(await store.get_items())[:2] == ["please book two", "by the window"]
    await store.close()
