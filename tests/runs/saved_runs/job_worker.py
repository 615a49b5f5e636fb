"""A worker that runs one job in a process of its own, and can be killed at any of its steps.

What it does is a function of the conversation, so that any process can go on with it. Whatever a tool does for real is
a line in a file, written with one `write`: that is the evidence a saved run is held against. A *step* is a place at
which the process may die: before and after each save and each append, before and after each reply of a model, and
before, inside and after each tool.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers import children

from standfast import (
    Agent,
    InMemorySession,
    RunClaimedError,
    RunConfig,
    Runner,
    RunState,
    RunStateError,
    SessionBusyError,
    SQLiteSession,
    ToolContext,
    function_tool,
)
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

RUN_ID = "job"


@dataclass(frozen=True)
class Job:
    """What a worker is to do, and where it dies."""

    folder: str
    policy: str = "report"
    die_at: int | None = None
    text: str | None = None
    """A saved state to resume, approving what waits; None: run the job under its id."""
    by_id: bool = False
    """Resume the saved run by its id instead."""

    @property
    def database(self) -> Path:
        return Path(self.folder) / "job.db"

    @property
    def evidence(self) -> Path:
        return Path(self.folder) / "evidence.jsonl"


class Steps:
    """Counts the places at which a process may die, and dies at one of them."""

    def __init__(self, die_at: int | None = None) -> None:
        self.count, self._die_at = 0, die_at

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


class SteppingSession(SQLiteSession):
    """A session before and after whose writes the process may die; its run store likewise."""

    steps: Callable[[], None] = staticmethod(lambda: None)

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        self.steps()
        head = await super().append(*args, **kwargs)
        self.steps()
        return head

    def run_store(self) -> Any:
        return SteppingStore(super().run_store(), self.steps)


class SteppingStore:
    """A run store before and after whose saves the process may die."""

    def __init__(self, store: Any, steps: Callable[[], None]) -> None:
        self._store, self._steps = store, steps
        self.load_run, self.list_runs = store.load_run, store.list_runs
        self.delete_run, self.prune_runs = store.delete_run, store.prune_runs

    async def save_run(self, *args: Any, **kwargs: Any) -> int:
        self._steps()
        revision: int = await self._store.save_run(*args, **kwargs)
        self._steps()
        return revision


# --- the agent -------------------------------------------------------------------------------------------------------


def done_since_the_question(call: Any) -> int:
    return sum(1 for item in call.input if item.get("type") == "function_call_output")


def build(job: Job, steps: Callable[[], None]) -> Any:
    """The agent: two tools, one that pays with a person's consent, and a helper agent with a tool of its own."""

    def note(context: ToolContext[Any], what: str) -> None:
        if job.folder == os.devnull:
            return
        line = json.dumps({"key": context.idempotency_key, "call": context.tool_call_id, "what": what}) + "\n"
        out = os.open(job.evidence, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(out, line.encode())
        os.close(out)

    def tool(name: str, **options: Any) -> Any:
        async def act(context: ToolContext[Any]) -> str:
            steps()
            note(context, name)
            steps()
            return f"{name} done"

        return function_tool(act, name_override=name, description_override=name, **options)

    def scripted(turns: dict[int, list[Any]]) -> ScriptedModel:
        async def respond(call: Any) -> ModelStep:
            steps()
            answer = ModelStep(output=turns[done_since_the_question(call)])
            await asyncio.sleep(0)
            steps()
            return answer

        return ScriptedModel([ModelStep.respond(respond) for _ in range(20)])

    def wants(name: str, call_id: str, **arguments: Any) -> Any:
        return function_call(name, arguments, call_id=call_id)

    helper: Any = Agent(
        name="helper",
        model=scripted({0: [wants("inner", "i1")], 1: [assistant_message("helped")]}),
        tools=[tool("inner", on_unknown=job.policy)],
    )
    return Agent(
        name="worker",
        model=scripted(
            {
                0: [wants("look", "c1"), wants("count", "c2")],
                2: [wants("pay", "c3")],
                3: [wants("helper", "c4", input="help")],
                4: [assistant_message("finished")],
            }
        ),
        tools=[
            tool("look", on_unknown=job.policy),
            tool("count", idempotent=True),
            tool("pay", on_unknown=job.policy, needs_approval=True),
            helper.as_tool("helper", "Helps."),
        ],
    )


# --- the work --------------------------------------------------------------------------------------------------------


async def work(job: Job, steps: Steps) -> Any:
    """Run the job to its end, consenting to everything; returns the result."""
    SteppingSession.steps = staticmethod(steps)
    agent = build(job, steps)
    session = SteppingSession("conversation", job.database)
    try:
        if job.text is not None:
            state = await RunState.from_string(agent, job.text)
            for item in state.get_interruptions():
                state.approve(item)
            result = await Runner.run(agent, state, session=session)
        elif job.by_id:
            result = await Runner.resume(agent, RUN_ID, session=session)
        else:
            result = await Runner.run(agent, "go", session=session, run_config=RunConfig(run_id=RUN_ID))
        while result.interruptions:
            state = result.to_state()
            for item in state.get_interruptions():
                state.approve(item)
            result = await Runner.run(agent, state, session=session)
        return result
    finally:
        session.close()


def in_a_process(job: Job) -> None:
    """What a child process does; what it comes to is left in a file of its own name."""
    steps = Steps(job.die_at)
    try:
        result = asyncio.run(work(job, steps))
        outcome = {"output": result.final_output, "steps": steps.count}
    except (RunClaimedError, SessionBusyError, RunStateError) as error:
        outcome = {"refused": type(error).__name__}
    path = Path(job.folder) / f"{os.getpid()}.json"
    path.with_suffix(".part").write_text(json.dumps(outcome))
    path.with_suffix(".part").rename(path)


class Forker:
    """Does jobs in processes of their own, which are forked from this module run as a program."""

    def __init__(self) -> None:
        self._children = children.Forker(__name__)
        self.close = self._children.close

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any] | None]:
        """What became of these jobs, done at the same time; None if it was killed."""
        ended = self._children.run([asdict(job) for job in jobs])
        return [_outcome(job, pid, code) for job, (pid, code) in zip(jobs, ended, strict=True)]


def _outcome(job: Job, pid: int, code: int) -> dict[str, Any] | None:
    if code == -signal.SIGKILL:
        return None
    assert code == 0, f"a worker ended with {code}; its traceback is above"
    outcome: dict[str, Any] = json.loads((Path(job.folder) / f"{pid}.json").read_text())
    return outcome


async def _warm() -> None:
    """Load whatever a worker will need, without a thread that a fork would cut in two."""
    result = await Runner.run(build(Job(os.devnull), lambda: None), "go", session=InMemorySession("warm"))
    result.to_state().to_string()


def evidence(job: Job) -> list[dict[str, str]]:
    """What the tools really did, in order."""
    if not job.evidence.exists():
        return []
    return [json.loads(line) for line in job.evidence.read_text().splitlines()]


if __name__ == "__main__":
    asyncio.run(_warm())
    children.serve(lambda job: in_a_process(Job(**job)))
