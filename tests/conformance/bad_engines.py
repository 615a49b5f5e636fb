"""Three adapters that a tired person could write: the kit must find each."""

from __future__ import annotations

import json
from typing import Any

from standfast import RunConfig, Runner
from standfast.conformance.engines import FileQueue, FileQueueEngine
from standfast.workers import RunJob


class Forgetting(FileQueue):
    """Acknowledges a delivery when it gets it, and has no periodic job."""

    async def perform(self, delivery: str, job: RunJob, attempts: int) -> None:
        self.finish(delivery, "{}")
        await self.jobs.perform(job)

    async def tend(self) -> dict[str, int]:
        return {}


class Doubling(FileQueue):
    """Begins a run of its own for every delivery, as an engine that repeats its steps does."""

    async def perform(self, delivery: str, job: RunJob, attempts: int) -> None:
        view = await self.jobs.store.run(job.run_id)
        agent: Any = self.jobs.agents[job.agent]
        await Runner.run(agent, list(view.input), run_config=RunConfig(run_id=f"{delivery}-{attempts}"), max_turns=None)
        await super().perform(delivery, job, attempts)


class Hoarding(FileQueue):
    """Keeps the conversation in the job's result, so that it can be seen in the engine."""

    async def perform(self, delivery: str, job: RunJob, attempts: int) -> None:
        await self.jobs.perform(job)
        session = self.jobs.store.session(job.session_id or "-")
        self._talk = json.dumps(await session.get_items())
        await session.close()
        await super().perform(delivery, job, attempts)

    def finish(self, delivery: str, result: str) -> None:
        super().finish(delivery, result + self._talk)


class ForgettingEngine(FileQueueEngine):
    name, kind, patience_s = "forgetting", Forgetting, 10.0


class DoublingEngine(FileQueueEngine):
    name, kind, patience_s = "doubling", Doubling, 10.0


class HoardingEngine(FileQueueEngine):
    name, kind = "hoarding", Hoarding
