"""A process that dies in the middle of a stateful request: whoever resumes its run asks the server first (D5).

Real processes, really killed; the run was saved in SQLite, the server outlives them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import RunConfig, Runner, SendOutcomeUnknownError, SQLiteSession
from standfast.testing.loopback import Gate, LoopbackServer, Script, call
from tests.runs.owners.child import born, killed, run_until_killed
from tests.runs.owners.stories import AUTOMATIC, CONVERSATION, GIVEN
from tests.runs.owners.world import APPROVE, World, both_modes, look

pytestmark = pytest.mark.clause("D5", backend="runs")

TOOL_TURN = [call("look", call_id="c1"), "ok"]
STORY = ["U(hi)", "C1", "O1", "A"]
DEADLINE_S = 60.0


class Killed:
    """A world whose first process is dead, and whose run can be resumed here."""

    def __init__(self, server: LoopbackServer, client: AsyncOpenAI, strategy: str, streamed: bool, path: Path) -> None:
        self.world = World(server, client, strategy, streamed, tools=[look])
        self.db = str(path / "runs.db")
        self.session = SQLiteSession("runs", self.db)

    async def die(self, place: str, *, turn: int, gate: Gate | None = None) -> None:
        """Start a process, let it come to its place, and kill it there."""
        told = {
            "base_url": self.world.server.base_url,
            "db": self.db,
            "place": place,
            "turn": turn,
            "streamed": self.world.streamed,
            "owner": self.world.owner(),
        }
        child, line = born(run_until_killed, told)
        try:
            if gate is not None:
                await gate.reached(DEADLINE_S)
            else:
                assert await asyncio.to_thread(line.poll, DEADLINE_S)
                assert line.recv() == "here"
        finally:
            await asyncio.to_thread(killed, child, line)

    async def resume(self) -> Any:
        self.world.last = await Runner.resume(
            self.world.agent, "r", run_store=self.session.run_store(), takeover=True, run_config=RunConfig()
        )
        return self.world.last


async def settled(server: LoopbackServer, number: int) -> None:
    """Until the server has done what it was asked for by a client that is gone."""
    async with asyncio.timeout(DEADLINE_S):
        while not server.model_calls[number].committed:
            await asyncio.sleep(0.005)


@both_modes
@pytest.mark.parametrize("turn", [1, 2], ids=["first request", "tool turn"])
async def test_what_a_dead_process_had_sent_is_found_in_its_conversation(
    turn: int, streamed: bool, server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
):
    dead = Killed(server, client, CONVERSATION, streamed, tmp_path)
    server.rule = Script(TOOL_TURN)
    gate = Gate()
    server.fault(gate, skip=turn - 1)
    await dead.die("with its request in flight", turn=turn, gate=gate)
    gate.release()
    await settled(server, turn - 1)
    await dead.resume()
    assert dead.world.received() == ["U(hi) [conv]", "O1 [conv]"]
    dead.world.assert_agreement(STORY)
    dead.session.close()


@both_modes
async def test_what_is_still_being_worked_on_when_asked_for_is_not_doubled(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
):
    """Not listed yet, it is sent again, refused since the conversation is locked, and then found."""
    dead = Killed(server, client, CONVERSATION, streamed, tmp_path)
    server.rule = Script(["ok"])
    gate = Gate()
    server.fault(gate)
    await dead.die("with its request in flight", turn=1, gate=gate)
    resuming = asyncio.ensure_future(dead.resume())
    while len(server.model_calls) < 2:
        await asyncio.sleep(0.005)
        assert not resuming.done()
    gate.release()
    await resuming
    assert server.model_calls[1].error_code == "conversation_locked"
    dead.world.assert_agreement(["U(hi)", "A"])
    dead.session.close()


@both_modes
@pytest.mark.parametrize("turn", [1, 2], ids=["first request", "tool turn"])
async def test_what_had_not_left_is_sent_once(
    turn: int, streamed: bool, server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
):
    dead = Killed(server, client, CONVERSATION, streamed, tmp_path)
    server.rule = Script(TOOL_TURN)
    await dead.die("before it leaves", turn=turn)
    assert len(server.model_calls) == turn - 1
    await dead.resume()
    assert dead.world.received() == ["U(hi) [conv]", "O1 [conv]"]
    dead.world.assert_agreement(STORY)
    dead.session.close()


@pytest.mark.parametrize("strategy", [GIVEN, AUTOMATIC])
async def test_a_chains_answer_that_had_begun_is_retrieved_by_its_name(
    strategy: str, server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
):
    """The name is saved as soon as it is seen: there is no other way to ask for the rest."""
    dead = Killed(server, client, strategy, True, tmp_path)
    await dead.world.begin()
    server.rule = Script(TOOL_TURN)
    await dead.die("in its answer", turn=2)
    await dead.resume()
    assert [line.split(" [")[0] for line in dead.world.received()] == ["U(hi)", "O1"]
    dead.world.assert_agreement(STORY)
    dead.session.close()


async def test_a_chains_request_of_which_nothing_was_seen_is_unknown_until_somebody_takes_the_risk(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
):
    dead = Killed(server, client, GIVEN, False, tmp_path)
    await dead.world.begin()
    server.rule = Script([TOOL_TURN[0], *TOOL_TURN])
    gate = Gate()
    server.fault(gate)
    await dead.die("with its request in flight", turn=1, gate=gate)
    gate.release()
    await settled(server, 1)
    with pytest.raises(SendOutcomeUnknownError, match="resp_"):
        await dead.resume()
    assert len(dead.world.received()) == 1
    dead.world.agent.model_settings = APPROVE
    await dead.resume()
    assert dead.world.last.final_output == "ok"
    dead.world.assert_agreement(STORY)
    dead.session.close()


async def test_the_first_request_of_an_automatic_chain_is_simply_made_again(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
):
    """It adds to nothing: whatever became of it, nobody will go on from there. The run is run again under its name."""
    dead = Killed(server, client, AUTOMATIC, False, tmp_path)
    server.rule = Script([TOOL_TURN[0], *TOOL_TURN])
    gate = Gate()
    server.fault(gate)
    await dead.die("with its request in flight", turn=1, gate=gate)
    gate.release()
    await settled(server, 0)
    dead.world.config = RunConfig(run_store=dead.session.run_store(), run_id="r")
    await dead.world.say("hi")
    dead.world.assert_agreement(STORY)
    dead.session.close()
