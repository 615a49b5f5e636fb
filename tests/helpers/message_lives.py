"""Random lives of one conversation: senders that repeat themselves, workers that fail, are cancelled and lose answers.

When its faults have ended, a life is brought to rest and its history is read: each message once, in its sender's order,
never between a call and its output, and judged before any request had it.
"""

from __future__ import annotations

import asyncio
import collections
import random
import uuid
from pathlib import Path
from typing import Any

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OutcomeUnknownError,
    RunConfig,
    Runner,
    SQLiteSession,
    StandfastError,
    function_tool,
)
from standfast.testing import AnsweringModel, assistant_message, function_call

SENDERS, WORKERS, MESSAGES, CALLS = 2, 2, 12, 3
OPEN = ("ready", "running", "paused")


def said(items: list[Any]) -> list[str]:
    return [str(item["content"]) for item in items if item.get("role") == "user"]


def faults(items: list[Any]) -> list[str]:
    """What is wrong in a history or a request: a message twice, or one between a call and its output."""
    found = [f"{text} said {count} times" for text, count in collections.Counter(said(items)).items() if count > 1]
    is_open: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            is_open.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            if item["call_id"] not in is_open:
                found.append(f"an output of {item['call_id']} without its call")
            is_open.discard(item["call_id"])
        elif item.get("role") and is_open:
            found.append(f"{item.get('content')!r} between {is_open} and the output")
            is_open.clear()
    return found + [f"no output of {call}" for call in is_open]


def calls_since_the_answer(items: list[Any]) -> int:
    count = 0
    for item in reversed(items):
        if item.get("role") == "assistant":
            break
        count += item.get("type") == "function_call"
    return count


class LosingSession(SQLiteSession):
    """A session whose answers are lost now and then: the step is done, and its caller is not told."""

    life: Life

    async def send(self, *arguments: Any, **named: Any) -> Any:
        receipt = await super().send(*arguments, **named)
        self.life.lose()
        return receipt

    def record(self, **named: Any) -> Any:
        recording = super().record(**named)
        if named.get("detached"):
            return recording

        async def recorded() -> Any:
            done = await recording
            self.life.lose()
            return done

        return recorded()


class Life:
    """One life."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng, self.wrong = random.Random(seed), list[str]()
        self.judged, self.effects = collections.Counter[str](), collections.Counter[str]()
        self.path, self.is_faulty = folder / f"{seed}.db", True
        self.acknowledged = collections.defaultdict[int, list[int]](list)
        self.has_guardrail, self.asks = self.rng.random() < 0.5, self.rng.random() < 0.4
        guardrails = [InputGuardrail(self.judge, run_in_parallel=self.rng.random() < 0.5)] if self.has_guardrail else []
        tools = [
            function_tool(self.work, name_override="work"),
            function_tool(self.work, name_override="careful", needs_approval=True),
        ]
        self.agent: Agent[Any] = Agent("A", model=AnsweringModel(self.answer), tools=tools, input_guardrails=guardrails)
        self.config = RunConfig(lease_ttl_s=5.0, lease_wait_s=0.3)

    def session(self, session_id: str = "talk") -> LosingSession:
        made = LosingSession(session_id, self.path)
        made.life = self
        return made

    def lose(self) -> None:
        if self.is_faulty and self.rng.random() < 0.05:
            raise OutcomeUnknownError("the answer was lost", "Ask again.")

    async def judge(self, context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        for item in given if isinstance(given, list) else [{"role": "user", "content": given}]:
            self.judged[str(item.get("content"))] += 1
        await asyncio.sleep(self.rng.random() * 0.004)
        if self.is_faulty and self.rng.random() < 0.15:
            raise RuntimeError("the guardrail is away")
        return GuardrailFunctionOutput(None, False)

    async def work(self, call: str) -> str:
        """Work."""
        self.effects[call] += 1
        await asyncio.sleep(self.rng.random() * 0.003)
        return "done"

    def answer(self, call: Any) -> Any:
        if self.is_faulty and self.rng.random() < 0.1:
            raise RuntimeError("the model is away")
        self.wrong += [f"request: {one}" for one in faults(call.input)]
        if self.has_guardrail:
            self.wrong += [f"{text} was not judged" for text in said(call.input) if not self.judged[text]]
        if calls_since_the_answer(call.input) >= CALLS:
            return [assistant_message("ok")]
        call_id = uuid.uuid4().hex[:8]
        name = "careful" if self.is_faulty and self.asks and self.rng.random() < 0.2 else "work"
        return [function_call(name, {"call": call_id}, call_id=call_id)]

    # --- senders and workers -----------------------------------------------------------------------------------------

    async def sender(self, name: int) -> None:
        number = 0
        while self.is_faulty and number < MESSAGES:
            text = f"s{name}-{number}"
            try:
                await self.session().send(text, agent="A", message_id=text, max_turns=40)
            except OutcomeUnknownError:
                continue  # it sends it again
            self.acknowledged[name].append(number)
            number += self.rng.random() < 0.8  # or it repeats itself
            await asyncio.sleep(self.rng.random() * 0.01)

    async def act(self) -> None:
        roll = self.rng.random()
        if roll < 0.35:
            text = f"own-{uuid.uuid4().hex[:8]}"
            await Runner.run(self.agent, text, session=self.session(), run_config=self.config, max_turns=40)
        elif roll < 0.7:
            await Runner.recover(self.agent, sessions=self.session, run_config=self.config)
        elif roll < 0.76:
            await Runner.hand_over(within_s=0.002)
        elif roll < 0.9:
            await self.resume_any()
        else:
            await self.decide()

    async def resume_any(self) -> None:
        """Resume one of those that wait, failed or were cut, as a queue does that delivers in any order."""
        runs, _ = await Runner.list_runs(session=self.session())
        some = [one.run_id for one in runs if one.status in ("ready", "failed", "cancelled")]
        if some:
            session = self.session()
            await Runner.resume(self.agent, self.rng.choice(some), session=session, run_config=self.config)

    async def decide(self) -> None:
        runs, _ = await Runner.list_runs(session=self.session(), status="paused")
        for one in runs:
            state = await Runner.load(self.agent, one.run_id, session=self.session())
            for item in state.get_interruptions():
                state.approve(item) if self.rng.random() < 0.7 else state.reject(item)
            await Runner.run(self.agent, state, session=self.session(), run_config=self.config, max_turns=40)

    async def worker(self) -> None:
        while self.is_faulty:
            task = asyncio.ensure_future(self.act())
            if self.rng.random() < 0.4:
                await asyncio.wait([task], timeout=self.rng.random() * 0.03)
                task.cancel()
                if self.rng.random() < 0.5:
                    await asyncio.sleep(0)
                    task.cancel()
            try:
                await task
            except (StandfastError, RuntimeError, asyncio.CancelledError):
                pass
            await asyncio.sleep(0.001)

    async def live(self) -> None:
        senders = [asyncio.ensure_future(self.sender(name)) for name in range(SENDERS)]
        workers = [asyncio.ensure_future(self.worker()) for _ in range(WORKERS)]
        await asyncio.wait(senders, timeout=3)
        self.is_faulty = False
        await asyncio.gather(*workers, *senders)
        await self.rest()

    async def rest(self) -> None:
        for _ in range(100):
            await self.decide()
            await Runner.recover(self.agent, sessions=self.session, run_config=self.config)
            runs, _ = await Runner.list_runs(session=self.session())
            if not any(one.status in OPEN for one in runs):
                break
        await Runner.run(self.agent, "the end", session=self.session(), run_config=self.config, max_turns=40)
        items = await self.session().get_items()
        self.wrong += faults(items)
        self.wrong += [f"{one.message_id} still waits" for one in await self.session().waiting_messages()]
        for name in range(SENDERS):
            numbers = [int(text.split("-")[1]) for text in said(items) if text.startswith(f"s{name}-")]
            self.wrong += [] if numbers == sorted(numbers) else [f"sender {name} out of order: {numbers}"]
            lost = set(self.acknowledged[name]) - set(numbers)
            self.wrong += [f"sender {name} lost {sorted(lost)}"] if lost else []
        self.wrong += [f"{call} ran {count} times" for call, count in self.effects.items() if count > 1]
