"""Engine in a check: workers, a client, the messages, and the judgement at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

from standfast._kits.conformance.engines.engine import Engine, EngineClient
from standfast._kits.conformance.engines.fated_agent import AGENT, Book, Message, fated_agent, faults_of
from standfast._kits.conformance.engines.staff import Staff
from standfast._kits.operators.store import Store
from standfast._kits.workers.jobs import RunJob, RunJobs
from standfast._src.base.errors import NotFoundError, StandfastError
from standfast._src.base.json_values import Item
from standfast._src.runs.api.runner import Runner

POLL_S = 0.05


class EngineBroken(AssertionError):
    """Violation of a sentence of G1 by an engine's adapter."""

    __module__ = "standfast.conformance.engines"  # in a traceback, the path that it is imported from

    def __init__(self, sentence: str, engine: str, check: str, seen: str) -> None:
        super().__init__(sentence, engine, check, seen)
        self.sentence, self.engine, self.check, self.seen = sentence, engine, check, seen

    def __str__(self) -> str:
        return f"{self.sentence} is broken by {self.engine}: {self.seen}\n  checked: {self.check.replace('_', ' ')}"


class Trial:
    """World of a check."""

    def __init__(self, engine: Engine, client: EngineClient, jobs: RunJobs, sentence: str, check: str) -> None:
        self.engine, self.client, self.jobs = engine, client, jobs
        self.book, self.staff = Book(engine.folder), Staff(engine)
        self._sentence, self._check = sentence, check
        self._messages: dict[str, Message] = {}
        self.not_decided: set[str] = set()
        """Runs without an approval by the check."""

    @property
    def store(self) -> Store:
        """The store of the runs, in the process of the check."""
        return self.jobs.store

    # --- acting ------------------------------------------------------------------------------------------------------

    def message(self, name: str, *calls: str, session: str | None = "") -> Message:
        """Make a message for the judgement, in a session of its own unless named."""
        run_id = f"{self.engine.unique}-{name}"
        session_id = None if session is None else f"{self.engine.unique}-{session or name}"
        made = self._messages[run_id] = Message(run_id, session_id, calls)
        return made

    async def put(self, *messages: Message) -> None:
        """Give messages to the adapter, as a web process does."""
        for one in messages:
            await self.client.enqueue(one.run_id, AGENT, one.text, session_id=one.session_id)

    async def save(self, message: Message) -> RunJob:
        """Save a run without notice to the engine, as a process does that dies in between."""
        return await self.jobs.put(message.run_id, AGENT, message.text, session_id=message.session_id)

    async def deliver(self, message: Message, delivery: str) -> None:
        """Let the engine deliver the job once more, under a name of its own."""
        job = RunJob(message.run_id, AGENT, message.session_id)
        await self.engine.deliver(self.client, job, f"{message.run_id}-{delivery}")

    async def approve(self, message: Message, call_id: str) -> None:
        """Approve a call through the adapter."""
        await self.client.decide(message.run_id, call_id, True, by="ann")

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition holds; else raise EngineBroken with `what`."""
        end = asyncio.get_running_loop().time() + self.engine.patience_s
        while True:
            try:
                if await holds():
                    return
                seen = ""
            except (StandfastError, OSError) as error:  # a server that is being restarted
                seen = f" ({type(error).__name__}: {error})"
            if asyncio.get_running_loop().time() > end:
                self.broken(f"{what}{seen}")
            await asyncio.sleep(POLL_S)

    async def status(self, message: Message) -> str:
        """Return the status of a run in the store; empty for an unknown run."""
        try:
            return (await self.store.run(message.run_id)).status
        except NotFoundError:
            return ""

    async def until_waiting(self, message: Message) -> None:
        """Wait until a run waits for a person."""

        async def waits() -> bool:
            return await self.status(message) == "paused"

        await self.until(f"{message.run_id} never came to wait for a person", waits)

    async def until_answered(self) -> None:
        """Approve waiting calls until every message has an answer and every job has ended."""
        left: dict[str, str] = {}

        async def look() -> bool:
            left.clear()
            for one in self._messages.values():
                end = await self.jobs.end_of(RunJob(one.run_id, AGENT, one.session_id))
                if end is None:
                    left[one.run_id] = await self.status(one)
                elif end.status not in ("done", "cancelled"):
                    self.broken(f"the run of message {one.run_id} ended as {end.status}")
            await self._approve_what_waits()
            return not left

        try:
            await self.until("not every message was answered", look)
        except EngineBroken as broken:
            if not left:
                raise
            self.broken(f"{broken.seen}: {dict(sorted(left.items()))}; workers met {dict(self.staff.met)}")

        async def has_ended() -> bool:
            left.clear()
            for run_id in self._messages:
                if not await self.engine.is_over(self.client, run_id):
                    left[run_id] = "open"
            return not left and self.staff.are_awake

        try:
            await self.until("not every job ended in the engine", has_ended)
        except EngineBroken as broken:
            self.broken(f"{broken.seen}: {sorted(left)}")

    async def _approve_what_waits(self) -> None:
        for one in self._messages.values():
            if one.run_id in self.not_decided or await self.status(one) != "paused":
                continue
            for call in (await self.store.run(one.run_id)).waiting:
                with suppress(StandfastError):  # a worker, or an earlier decision, came first
                    await self.client.decide(one.run_id, call.call_id, True, by="ann")

    # --- judging -----------------------------------------------------------------------------------------------------

    async def judge(self, messages: Iterable[Message] | None = None) -> None:
        """Compare the effects with the histories."""
        lines, wrong = self.book.lines(), list[str]()
        for one in self._messages.values() if messages is None else messages:
            wrong += faults_of(one, await self.history(one), lines)
        known = {call_id for one in self._messages.values() for call_id in one.call_ids}
        wrong += [f"{line} happened and was never asked for" for line in sorted(set(lines) - known)]
        if wrong:
            self.broken("; ".join(wrong[:5]))

    async def history(self, message: Message) -> list[Item]:
        """Return the stored conversation of a message."""
        if message.session_id is None:
            session = self.store.session("-")
            try:
                agent: Any = fated_agent(self.book, lambda **_: None)
                result = await Runner.result(agent, message.run_id, run_store=session.run_store())
            finally:
                await session.close()
            return list(result.to_input_list())
        session = self.store.session(message.session_id)
        try:
            return list(await session.get_items())
        finally:
            await session.close()

    def broken(self, seen: str) -> NoReturn:
        """Raise EngineBroken with a description of the observation."""
        raise EngineBroken(self._sentence, self.engine.name, self._check, seen)

    def expect(self, kept: bool, seen: str) -> None:
        """Raise EngineBroken with the observation unless the condition holds."""
        if not kept:
            self.broken(seen)
