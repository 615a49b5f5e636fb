"""A process that starts, or goes on with, a run at the desk of `hosted_desk`, and may be killed at any moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from helpers.hosted_desk import desk
from helpers.processes import Line

from standfast import RunConfig, Runner
from tests.helpers.stores import opened
from tests.runs.owners.child import loopback_client

CONFIG: dict[str, Any] = {"lease_ttl_s": 1.0, "lease_wait_s": 30.0}


def approves(seed: int, call_id: str) -> bool:
    """What a person says to this question, however often it is asked."""
    return random.Random(f"{seed} {call_id}").random() < 0.6


class Place:
    """Where a story is played: its store, its owner of the conversation, its book."""

    def __init__(self, folder: str, where: str, conversation: str | None, seed: int) -> None:
        self.book, self.where, self.conversation, self.seed = Path(folder) / "book", where, conversation, seed
        self.session = opened(where)

    @property
    def kept(self) -> dict[str, Any]:
        """By what a saved run is found."""
        return {"run_store": self.session.run_store()} if self.conversation else {"session": self.session}

    async def start(self, client: Any, run_id: str, plan: str, *, streamed: bool = False, given: Any = None) -> Any:
        """Start the run, or go on with it under its id."""
        owner = {"conversation_id": self.conversation} if self.conversation else {"session": self.session}
        config = RunConfig(run_id=run_id, run_store=self.session.run_store(), **CONFIG)
        agent, said = desk(client, self.book, run_id, plan), given or f"{run_id} please"
        if not streamed:
            return await Runner.run(agent, said, run_config=config, **owner)
        result = Runner.run_streamed(agent, said, run_config=config, **owner)
        async for _ in result.stream_events():
            pass
        return result

    async def resume(self, client: Any, run_id: str, plan: str, *, by_id: bool = False) -> Any:
        """Decide whatever waits in it, and go on."""
        agent = desk(client, self.book, run_id, plan)
        state = await Runner.load(agent, run_id, **self.kept)
        if by_id and not state.get_interruptions():
            return await Runner.resume(agent, run_id, run_config=RunConfig(**CONFIG), **self.kept)
        for item in state.get_interruptions():
            if approves(self.seed, str(item.call_id)):
                state.approve(item)
            else:
                state.reject(item)
        session = {} if self.conversation else {"session": self.session}
        config = RunConfig(run_store=self.session.run_store(), **CONFIG)
        return await Runner.run(agent, state, run_config=config, **session)


async def step(line: Line, *, base_url: str, place: dict[str, Any], what: str, **told: Any) -> str:
    """One process's part of a story."""
    made = Place(**place)
    async with loopback_client(base_url) as client:
        line.say("starting")
        result = await getattr(made, what)(client, **told)
    await made.session.close()
    return f"{result.final_output} {len(result.interruptions)}"
