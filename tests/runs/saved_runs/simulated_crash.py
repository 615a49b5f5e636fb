"""A process that can die at any step, inside one process: whatever comes after its last step does not happen.

A step is a save, an append, a reply of a model or an act of a tool. Dying is an exception that no code of a run may
catch, raised at one step and at every later one, so that nothing of the run's orderly ending reaches the outside
either. What is left is what a killed process leaves: the session, the store, and what the tools did.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    RunConfig,
    Runner,
    RunResult,
    ToolContext,
    function_tool,
)
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

RUN_ID = "job"
Script = Sequence[Sequence[str]]
"""Turns of tool names: `look` runs freely, `pay` waits for a person, `ask` is an agent that pays."""


class Died(BaseException):
    """The process is gone."""


class World:
    """What outlives a process: the conversation, the saved runs, and what was really done."""

    def __init__(self, script: Script, *, policy: str = "report", owner: str = "session") -> None:
        self.script, self.policy, self.owner = script, policy, owner
        self.done: list[tuple[str, str]] = []
        self.sent: list[list[Any]] = []
        self.checkpoints: list[tuple[Any, Any]] = []
        self.session = MortalSession("conversation")
        self.store = self.session.kept

    async def live(self, die_at: int | None = None) -> RunResult | None:
        """One life: run the job under its id, agreeing to everything; None if it ended early."""
        life = Life(self, die_at)
        self.session.life = life
        try:
            return await life.run()
        except BaseException:
            if not life.over:
                raise
            return None


class Life:
    """One process."""

    def __init__(self, world: World, die_at: int | None) -> None:
        self.world, self.steps, self._die_at = world, 0, die_at
        self.over = False
        self.agent = self._agent()

    def step(self) -> None:
        self.steps += 1
        if self.over or self.steps == self._die_at:
            self.over = True
            raise Died

    async def run(self) -> RunResult:
        options: dict[str, Any] = {"session": self.world.session}
        config = RunConfig(run_id=RUN_ID)
        if self.world.owner == "replay":
            options, config = {}, RunConfig(run_id=RUN_ID, run_store=self.world.session.run_store())
        result: RunResult = await Runner.run(self.agent, "go", run_config=config, max_turns=50, **options)
        while result.interruptions:
            state = result.to_state()
            for item in state.get_interruptions():
                state.approve(item)
            result = await Runner.run(self.agent, state, **options)
        return result

    def _agent(self) -> Any:
        inner = self._model([["pay"]], None, [])
        clerk: Any = Agent(name="clerk", model=inner, tools=[self._tool("pay", needs_approval=True)])
        return Agent(
            name="worker",
            model=self._model(self.world.script, "c", self.world.sent),
            tools=[
                self._tool("look"),
                self._tool("pay", needs_approval=True),
                clerk.as_tool("ask", "Ask the clerk."),
            ],
        )

    def _tool(self, name: str, **options: Any) -> Any:
        async def act(context: ToolContext[Any]) -> str:
            self.step()
            self.world.done.append((context.idempotency_key or "", name))
            self.step()
            return f"{name} done"

        return function_tool(
            act, name_override=name, description_override=name, on_unknown=self.world.policy, **options
        )

    def _model(self, script: Script, prefix: str | None, sent: list[list[Any]]) -> Any:
        def respond(call: Any) -> ModelStep:
            self.step()
            sent.append(list(call.input))
            name_of = prefix or call.input[0]["content"]  # an inner run is told by which call it was asked
            answered = sum(1 for item in call.input if item.get("type") == "function_call_output")
            for turn, names in enumerate(script):
                if answered == sum(map(len, script[:turn])):
                    ids = [f"{name_of}{turn}.{number}" for number in range(len(names))]
                    arguments = [{"input": one} if name == "ask" else {} for name, one in zip(names, ids, strict=True)]
                    made = zip(names, arguments, ids, strict=True)
                    return ModelStep(output=[function_call(name, given, call_id=one) for name, given, one in made])
            return ModelStep(output=[assistant_message("finished")])

        return ScriptedModel([ModelStep.respond(respond) for _ in range(60)])


class MortalSession(InMemorySession):
    """A session and a run store that hear nothing more from a process that died."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.kept = InMemoryRunStore()
        self.life: Life | None = None

    def step(self) -> None:
        if self.life is not None:
            self.life.step()

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        self.step()
        head = await super().append(*args, **kwargs)
        self.step()
        return head

    def run_store(self) -> Any:
        return _MortalStore(self)


class _MortalStore:
    def __init__(self, session: MortalSession) -> None:
        self._session, store = session, session.kept
        self.load_run, self.list_runs = store.load_run, store.list_runs
        self.delete_run, self.prune_runs = store.delete_run, store.prune_runs

    async def save_run(self, *args: Any, **kwargs: Any) -> int:
        self._session.step()
        revision = await self._session.kept.save_run(*args, **kwargs)
        life = self._session.life
        if life is not None:
            saved = await self._session.kept.load_run(RUN_ID)
            life.world.checkpoints.append((copy.deepcopy(saved), await self._session.get_items()))
        self._session.step()
        return revision
