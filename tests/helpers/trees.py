"""A process that works with a generated tree of agents: tools that pay, ask, fail and hang, agents as tools, handoffs.

The tree follows from a seed alone, so that every process of a story builds the same one; what its models ask for, and
where the process dies, follows from the process's own seed. Each tool writes what it did into a book outside the store,
with the run it did it in. What an agent tool answers is a list of what its model saw: `[done ID]`, `[unknown ID]`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers.cancelling import cut_soon
from helpers.ledger_oracle import Item, done, outputs, says_not_run, says_unknown
from helpers.processes import Line

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    Runner,
    StandfastError,
    ToolContext,
    function_tool,
    handoff,
    input_guardrail,
    open_store,
    output_guardrail,
)
from standfast._src.items.texts_for_models import model_text
from standfast.testing import AnsweringModel, ModelStep, assistant_message, function_call
from tests.helpers.stores import opened

CONFIG: dict[str, Any] = {"lease_ttl_s": 3.0, "lease_wait_s": 60.0}
FAILING = ("boom", "slow", "gone")
"""Tools that pay and then fail: the model is told of the failure."""


def effect(book: str, key: str) -> None:
    """One line, whole, on the disk before the tool goes on."""
    file = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{key}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


# --- where a process dies --------------------------------------------------------------------------------------------


class Death:
    """Kill this process at its commit number `at`, before or after it; count the commits."""

    def __init__(self, at: int | None, *, before: bool) -> None:
        self.at, self.before, self.count = at, before, 0

    def watch(self) -> None:
        """From now on, in this process."""
        death, connect = self, sqlite3.connect

        class Counting(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                if sql != "COMMIT":
                    return super().execute(sql, *args)
                death.count += 1
                if death.before and death.count == death.at:
                    os.kill(os.getpid(), signal.SIGKILL)
                found = super().execute(sql, *args)
                if death.count == death.at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

        sqlite3.connect = lambda *args, **given: connect(*args, **{**given, "factory": Counting})  # type: ignore[assignment]


# --- the tree --------------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """One agent of a tree: what it can do, and how it is reached."""

    name: str
    leaves: list[str]
    children: list[Inner]
    heirs: list[Node]
    behavior: Any = "run_llm_again"
    guards: tuple[str, ...] = ()


@dataclass
class Inner:
    """An agent tool: its node, its session and its settings."""

    name: str
    node: Node
    session: str | None
    streamed: bool
    asks: bool
    raises: bool
    max_turns: int | None


LEAVES = ("pay", "work", "ask", "boom", "slow", "gone", "sure")


def tree(seed: int) -> Node:
    """The tree of this seed."""
    chance, numbers = random.Random(f"tree {seed}"), itertools.count()

    def node(depth: int, *, heir: bool = False) -> Node:
        leaves = chance.sample(LEAVES, chance.randint(1, 3))
        children = (
            []
            if depth == 3 or heir
            else [child(depth) for _ in range(chance.choice([0, 1, 1, 2] if depth else [1, 2]))]
        )
        heirs = [] if heir or chance.random() < 0.7 else [node(depth, heir=True)]
        behavior = "stop_on_first_tool" if chance.random() < 0.3 and not depth else "run_llm_again"
        guards = tuple(kind for kind in ("input", "output") if chance.random() < 0.12)
        return Node(f"agent{next(numbers)}", leaves, children, heirs, behavior, guards)

    def child(depth: int) -> Inner:
        inside = node(depth + 1)
        number = next(numbers)
        session = chance.choices([None, f"own{number}", "shared", "s"], [4, 3, 1, 1])[0]
        return Inner(
            f"nest{number}",
            inside,
            session,
            streamed=chance.random() < 0.3,
            asks=chance.random() < 0.15,
            raises=chance.random() < 0.15,
            max_turns=chance.choice([None, None, None, 1, 2]),
        )

    return node(0)


def sessions_of(node: Node) -> dict[str, str | None]:
    """By the name of each agent tool: the session that it runs on."""
    found: dict[str, str | None] = {}
    for each in node.children:
        found[each.name] = each.session
        found.update(sessions_of(each.node))
    for heir in node.heirs:
        found.update(sessions_of(heir))
    return found


# --- a worker --------------------------------------------------------------------------------------------------------


class Worker:
    """One process's share of a story."""

    def __init__(self, path: str, who: str, seed: int, *, deadly: bool) -> None:
        self.path, self.book, self.who, self.deadly = path, f"{path}.book", who, deadly
        self.tree = tree(seed)
        self.chance = random.Random(f"worker {seed} {who}")
        self._sessions: dict[str, Any] = {}
        self.numbers = itertools.count()
        self.told: list[str] = []

    def session(self, name: str = "s") -> Any:
        if name not in self._sessions:
            self._sessions[name] = opened(f"sqlite {self.path}", name)
        return self._sessions[name]

    # --- tools -------------------------------------------------------------------------------------------------------

    def spend(self, ctx: ToolContext[Any]) -> None:
        assert ctx.idempotency_key is not None
        if self.deadly and self.chance.random() < 0.02:
            os.kill(os.getpid(), signal.SIGKILL)
        effect(self.book, ctx.idempotency_key)
        if self.deadly and self.chance.random() < 0.03:
            os.kill(os.getpid(), signal.SIGKILL)

    async def rest(self) -> None:
        await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.004]))

    def leaf(self, name: str) -> Any:
        async def paying(ctx: ToolContext[Any]) -> str:
            await self.rest()
            self.spend(ctx)
            await self.rest()
            return done(ctx.tool_call_id)

        def work(ctx: ToolContext[Any]) -> str:
            self.spend(ctx)
            time.sleep(self.chance.choice([0, 0.004]))
            return done(ctx.tool_call_id)

        async def boom(ctx: ToolContext[Any]) -> str:
            self.spend(ctx)
            await self.rest()
            raise self.chance.choice([ValueError("broke"), StopAsyncIteration("odd"), StopIteration("odder")])

        async def slow(ctx: ToolContext[Any]) -> str:
            self.spend(ctx)
            await asyncio.sleep(60)
            return done(ctx.tool_call_id)

        async def gone(ctx: ToolContext[Any]) -> str:
            self.spend(ctx)
            raise asyncio.CancelledError

        match name:
            case "work":
                return function_tool(work, name_override=name)
            case "boom":
                return function_tool(boom, name_override=name)
            case "slow":
                return function_tool(slow, name_override=name, timeout=0.02)
            case "gone":
                return function_tool(gone, name_override=name)
            case "ask":
                return function_tool(paying, name_override=name, needs_approval=True)
            case "sure":
                return function_tool(paying, name_override=name, on_unknown="ask")
        return function_tool(paying, name_override=name)

    # --- agents ------------------------------------------------------------------------------------------------------

    def agent(self, node: Node | None = None) -> Agent[Any]:
        node = node or self.tree
        tools = [self.leaf(name) for name in node.leaves]
        for child in node.children:
            tools.append(
                self.agent(child.node).as_tool(
                    child.name,
                    "Help.",
                    session=self.session(child.session) if child.session else None,
                    on_stream=(lambda event: None) if child.streamed else None,
                    needs_approval=child.asks,
                    run_config=RunConfig(**CONFIG),
                    max_turns=child.max_turns,
                    **({"failure_error_function": None} if child.raises else {}),
                )
            )

        async def judged(*_: Any) -> GuardrailFunctionOutput:
            await self.rest()
            return GuardrailFunctionOutput(None, self.chance.random() < 0.2)

        heirs = [
            handoff(self.agent(heir), input_filter=(lambda data: data) if self.chance.random() < 0.5 else None)
            for heir in node.heirs
        ]
        return Agent(
            name=node.name,
            model=AnsweringModel(lambda call: self.answer(node, call)),
            tools=tools,
            handoffs=heirs,
            tool_use_behavior=node.behavior,
            input_guardrails=[input_guardrail(judged)] if "input" in node.guards else [],
            output_guardrails=[output_guardrail(judged)] if "output" in node.guards else [],
        )

    async def answer(self, node: Node, call: Any) -> Any:
        await self.rest()
        if self.chance.random() < 0.03:
            return ModelStep.raise_error(RuntimeError("the provider broke"))
        if self.chance.random() < 0.4:
            return ModelStep(output=[assistant_message(report(call.input))])
        names = node.leaves + [child.name for child in node.children] * 2
        calls = [self.call(name) for name in self.chance.choices(names, k=self.chance.choice([1, 1, 2, 3]))]
        if node.heirs and self.chance.random() < 0.2:
            calls.append(self.call(f"transfer_to_{node.heirs[0].name}"))
        if self.chance.random() < 0.03:
            return ModelStep.cut(self.chance.randint(1, 6), calls, error=RuntimeError("the stream broke"))
        return ModelStep(output=calls)

    def call(self, name: str) -> Any:
        given = {"input": "go"} if name.startswith("nest") else {}
        return function_call(name, given, call_id=f"{name}-{self.who}-{next(self.numbers)}")

    # --- what occurs to it -------------------------------------------------------------------------------------------

    async def act(self) -> None:
        kinds = ["message"] * 3 + ["cut"] * 2 + ["decide"] * 3 + ["resume"] * 2 + ["cancel", "operator", "own"]
        what = self.chance.choice(kinds)
        try:
            await getattr(self, what)()
        except (StandfastError, RuntimeError, asyncio.CancelledError) as error:
            if type(error) is RuntimeError and "broke" not in str(error):
                self.told.append(f"{what}: {error!r}")
        except Exception as error:
            if not isinstance(error, ValueError) or str(error) != "broke":
                self.told.append(f"{what}: {type(error).__name__}: {error}")

    async def run(self, agent: Any, given: Any, session: Any) -> None:
        config = RunConfig(**CONFIG)
        if self.chance.random() < 0.5:
            await Runner.run(agent, given, session=session, run_config=config)
            return
        async for _ in Runner.run_streamed(agent, given, session=session, run_config=config).stream_events():
            pass

    async def message(self) -> None:
        await self.run(self.agent(), f"{self.who} says {next(self.numbers)}", self.session())

    async def cut(self) -> None:
        which = self.chance.choice([self.message, self.decide, self.resume])
        await cut_soon(which(), self.chance, 0.06)

    async def some(self, *statuses: str) -> str | None:
        runs = [run.run_id for run in (await Runner.list_runs(session=self.session()))[0] if run.status in statuses]
        return self.chance.choice(runs) if runs else None

    async def decide(self) -> None:
        if (run_id := await self.some("paused", "ready")) is None:
            return
        agent = self.agent()
        state = await Runner.load(agent, run_id, session=self.session())
        if self.chance.random() < 0.2:
            return await self.operate(run_id)
        asked = state.get_interruptions()
        self.chance.shuffle(asked)
        for item in asked[: self.chance.choice([1, 9, 9])]:
            if self.chance.random() < 0.65:
                if item.reason == "unknown":
                    effect(f"{self.book}.again", str(item.call_id))
                state.approve(item, always_approve=self.chance.random() < 0.1)
            else:
                state.reject(item)
        await self.run(agent, state, self.session())

    async def operate(self, run_id: str) -> None:
        """A person without the agents decides about what waits."""
        agent = self.agent()
        async with open_store(self.path) as store:
            state = await Runner.load(agent, run_id, session=self.session())
            for item in state.get_interruptions():
                if item.reason == "unknown":
                    effect(f"{self.book}.again", str(item.call_id))
                await store.decide(run_id, str(item.call_id), self.chance.random() < 0.6, by="ada")

    async def resume(self) -> None:
        if (run_id := await self.some("running", "paused", "ready", "failed", "cancelled")) is not None:
            await Runner.resume(self.agent(), run_id, session=self.session(), run_config=RunConfig(**CONFIG))

    async def cancel(self) -> None:
        if (run_id := await self.some("running", "paused", "failed")) is not None:
            await Runner.cancel_run(self.agent(), run_id, session=self.session())

    async def operator(self) -> None:
        if (run_id := await self.some("running", "paused", "failed")) is not None:
            async with open_store(self.path) as store:
                await store.cancel(run_id, by="ada")

    async def own(self) -> None:
        """A message on a session that an agent tool has for itself."""
        names = [name for name in sessions_of(self.tree).values() if name]
        if names:
            agent = Agent(name="Other", model=AnsweringModel(lambda call: "noted"))
            await self.run(agent, "and you?", self.session(self.chance.choice(names)))


async def work(line: Line, *, path: str, who: str, seed: int, acts: int, at: int | None, before: bool) -> list[str]:
    """Do so many things, die at that commit; what went wrong that is not an answer of ours."""
    Death(at, before=before).watch()
    worker = Worker(path, who, seed, deadly=at is not None)
    await worker.session().get_items()
    line.say("ready")
    await line.told()
    for _ in range(acts):
        await worker.act()
    return worker.told


# --- the rule --------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\[(done|unknown|failed|none|called) ([^\]\s]+)\]")
_CALLED = re.compile(r"Before that it had called (.*?): what these calls did stands")


def called_in(text: Any) -> list[str]:
    """The tools that an agent tool which failed is said to have called."""
    found = _CALLED.search(str(text))
    return found.group(1).split(", ") if found else []


def report(seen: Any) -> str:
    """What a model inside another's tool answers: what it saw of every call, and what those had to report."""
    found = outputs([item for item in seen if isinstance(item, dict)])
    return "saw " + " ".join(report_of(call_id, text) for call_id, texts in found.items() for text in texts)


def report_of(call_id: str, text: Any) -> str:
    """The tokens of one call."""
    tokens = [f"[{told_as(call_id, text)} {call_id}]"]
    tokens += [f"[called {call_id}/{name}]" for name in called_in(text)]
    return " ".join([*tokens, *(match.group() for match in _TOKEN.finditer(str(text)))])


def told_as(call_id: str, text: Any) -> str:
    """What a model reads of a call: done, unknown, failed or none (it did not run)."""
    if text == done(call_id) or str(text).startswith("saw "):
        return "done"
    if says_unknown(text):
        return "unknown"
    if says_not_run(text):
        return "none"
    return "failed"


def tool_of(call_id: str) -> str:
    return call_id.split("-")[0]


def wrongs(
    done_lines: Sequence[str],
    again: Sequence[str],
    seen: Sequence[Item],
    name: str,
    on: dict[str, str | None],
    *,
    is_compacted: bool = False,
) -> list[str]:
    """Where what a model sees on session `name` breaks the rule.

    `again`: calls of unknown outcome that a person had run again; `on`: the session of each agent tool; `is_compacted`:
    what a summary reports is told, too.
    """
    found: list[str] = []
    calls = Counter(item["call_id"] for item in seen if item.get("type") == "function_call")
    results = outputs(seen)
    summed_up = {
        match.group(2)
        for item in seen
        if "role" in item and "saw " in str(item.get("content"))
        for match in _TOKEN.finditer(str(item["content"]))
    }
    for key, times in Counter(done_lines).items():
        path, _, call_id = key.rpartition(":")
        if times > 1 + (again.count(call_id) if tool_of(call_id) == "sure" else 0):
            found.append(f"{key} ran {times} times")
        chain = [*path.split("/")[1:], call_id]
        where: str | None = "s"
        for depth, one in enumerate(chain):
            is_summed_up = is_compacted and one in summed_up and not calls[one]
            if where == name and not is_summed_up:
                found += _told(chain[depth:], calls, results)
                if any(says_unknown(text) for text in results.get(one, ()) if not str(text).startswith("saw ")):
                    break  # inside it, on the same session, nothing more need be said while it waits
            where = on.get(tool_of(one))
    did = {line.rpartition(":")[2] for line in done_lines}
    for call_id, texts in results.items():
        is_leaf = tool_of(call_id) not in on
        if is_leaf and call_id not in did and [told_as(call_id, text) for text in texts] == ["done"]:
            found.append(f"{call_id} is told as done and was not")
        if not calls[call_id]:
            found.append(f"{call_id} has an output and no call")
    for call_id in calls:
        if call_id not in results:
            found.append(f"{call_id} has no output")
    return found


def _told(chain: Sequence[str], calls: Counter[str], results: dict[str, list[Any]]) -> list[str]:
    """Whether the effect at the end of this chain of calls is told where the first of them stands."""
    first, last = chain[0], chain[-1]
    texts = results.get(first, [])
    if calls[first] != 1 or len(texts) != 1:
        return [f"{'/'.join(chain)} ran; {first} is there {calls[first]} times with outputs {texts}"]
    text = texts[0]
    if (says_unknown(text) and not str(text).startswith("saw ")) or text == model_text("output_withheld"):
        return []
    if len(chain) == 1:
        kind = told_as(first, text)
        if kind == "done" or (kind == "failed" and tool_of(first) in FAILING):
            return []
        return [f"{first} ran and is told as {text!r}"]
    said = {match.group(2): match.group(1) for match in _TOKEN.finditer(report_of(first, text))}
    for outer, inner in itertools.pairwise(chain):
        if said.get(outer) == "unknown" or (said.get(outer) == "failed" and f"{outer}/{tool_of(inner)}" in said):
            return []
    if said.get(last) in ("done", "unknown") or (said.get(last) == "failed" and tool_of(last) in FAILING):
        return []
    return [f"{'/'.join(chain)} ran and {first} is told as {text!r}"]
