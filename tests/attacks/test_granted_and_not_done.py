"""A provider's own tool acts when a request brings it the approval: whichever request that is.

So an approval that was given in a turn that is still open is no other run's to bring, and goes with a run that is given
up. (The provider here does what is approved and has no `mcp_call` behind it, as the service does.)
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.hosted_desk import Provider, desk, question
from helpers.ledger_oracle import Item, lines
from helpers.processes import Child, Line
from openai import AsyncOpenAI

from standfast import RunConfig, Runner, SQLiteSession
from standfast.testing.loopback import LoopbackServer
from tests.runs.owners.child import loopback_client

GRANTED = question("r0", 0, "auto", 0)
PLAN = "auto wait"
"""The first is approved by a callback, the second waits for a person."""


class Bank:
    """Runs on one session, and a book of what the provider has done."""

    def __init__(self, server: LoopbackServer, client: AsyncOpenAI, folder: Path) -> None:
        self.client, self.book = client, folder / "book"
        self.provider = server.rule = Provider(self.book)
        self.session = SQLiteSession("s", folder / "s.db")

    async def say(self, run_id: str, plan: str = "", **config: Any) -> Any:
        agent = desk(self.client, self.book, run_id, plan)
        settings = RunConfig(run_id=run_id, **config)
        return await Runner.run(agent, f"{run_id} please", session=self.session, run_config=settings)

    async def decide(self) -> Any:
        agent = desk(self.client, self.book, "r0", PLAN)
        state = await Runner.load(agent, "r0", session=self.session)
        for item in state.get_interruptions():
            state.reject(item)
        return await Runner.run(agent, state, session=self.session)

    async def end(self) -> list[Item]:
        """Another message comes, and the provider finds nothing wrong in its request: the history then."""
        await self.say("end")
        assert self.provider.wrongs == []
        items: list[Item] = await self.session.get_items()
        await self.session.close()
        return items


@pytest.fixture
def bank(server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path) -> Bank:
    return Bank(server, client, tmp_path)


async def test_what_a_paused_run_was_allowed_is_done_by_its_own_request_alone(bank: Bank) -> None:
    assert (await bank.say("r0", PLAN)).interruptions
    await bank.say("r1")
    assert lines(bank.book) == []
    assert (await bank.decide()).final_output == "r0 is done"
    await bank.end()
    assert lines(bank.book) == [GRANTED]


async def test_what_a_run_that_is_given_up_was_allowed_is_not_done(bank: Bank) -> None:
    assert (await bank.say("r0", PLAN)).interruptions
    agent = desk(bank.client, bank.book, "r0", PLAN)
    await Runner.cancel_run(agent, "r0", session=bank.session)
    await bank.end()
    assert lines(bank.book) == []


async def until_it_dies(line: Line, *, base_url: str, folder: str) -> None:
    """A worker that dies in a tool, beside which a hosted one was approved."""
    async with loopback_client(base_url) as client:
        agent = desk(client, Path(folder) / "book", "r0", "auto die")
        session = SQLiteSession("s", Path(folder) / "s.db")
        await Runner.run(agent, "r0 please", session=session, run_config=RunConfig(run_id="r0", lease_ttl_s=1.0))


async def test_what_a_run_whose_worker_is_gone_was_allowed_is_not_done(
    bank: Bank, server: LoopbackServer, tmp_path: Path
) -> None:
    """Beside it a tool had begun: that is unknown, and this did not run."""
    with Child(until_it_dies, base_url=server.base_url, folder=str(tmp_path)) as worker:
        assert (await asyncio.to_thread(worker.result))[0] == "died"
    items = await bank.end()
    assert lines(bank.book) == ["r0.0.die.1"]
    answers = [item for item in items if item.get("type") == "mcp_approval_response"]
    assert [(item["approval_request_id"], item["approve"]) for item in answers] == [(GRANTED, False)]
