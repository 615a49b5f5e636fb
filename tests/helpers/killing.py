"""Stories of agents inside agents' calls, whose processes are killed at a commit: what each of them does, by name.

Every process of a story builds the same agents; what a model answers follows from how many turns it has had since the
last message, so that whoever goes on asks for what comes next.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from helpers.processes import Line
from helpers.trees import Death, Worker, report

from standfast import Agent, RunConfig, Runner, SummarisingSession, handoff, open_store
from standfast.testing import AnsweringModel, function_call
from tests.helpers.stores import opened

RUN = "r"
CONFIG: dict[str, Any] = {"lease_ttl_s": 3.0, "lease_wait_s": 60.0}


class Story:
    """The agents of one kind of story, as one process has them."""

    def __init__(self, where: str, book: str, kind: str, who: str) -> None:
        self.where, self.kind, self.who = where, kind, who
        self.numbers = itertools.count()
        self.tools = Worker(book.removesuffix(".book"), who, 0, deadly=False)

    def session(self, name: str = "s") -> Any:
        session = opened(self.where, name)
        if self.kind != "compacted" or name != "s":
            return session
        summary = AnsweringModel(lambda call: report(call.input))
        is_time = lambda given: len(given["compaction_candidate_items"]) >= 3  # noqa: E731 — it is an argument
        return SummarisingSession(session, summary, keep_last=1, should_trigger=is_time)

    def model(self, *steps: list[str]) -> AnsweringModel:
        """Asks for these tools, step by step, after every message; then reports what it saw."""

        def answer(call: Any) -> Any:
            turns, was_output = 0, False
            for item in call.input:
                is_output = item.get("type") == "function_call_output"
                if item.get("role") == "user":
                    turns, was_output = 0, False
                turns += is_output and not was_output
                was_output = is_output
            if turns >= len(steps):
                return report(call.input)
            return [
                function_call(
                    name,
                    {"input": "go"} if name.startswith("nest") else {},
                    call_id=f"{name}-{self.who}-{next(self.numbers)}",
                )
                for name in steps[turns]
            ]

        return AnsweringModel(answer)

    def one(self, name: str, *steps: list[str], nested: Sequence[Any] = (), heirs: Sequence[Any] = ()) -> Agent[Any]:
        leaves = {tool for step in steps for tool in step if not tool.startswith(("nest", "transfer"))}
        tools = [self.tools.leaf(tool) for tool in sorted(leaves)]
        heirs_ = [handoff(heir) for heir in heirs]
        return Agent(name=name, model=self.model(*steps), tools=[*tools, *nested], handoffs=heirs_)

    def inside(self, agent: Agent[Any], name: str, session: str | None = None, **settings: Any) -> Any:
        own = self.session(session) if session is not None else None
        return agent.as_tool(name, "Help.", session=own, run_config=RunConfig(**CONFIG), max_turns=None, **settings)

    def agent(self) -> Agent[Any]:
        return getattr(self, self.kind.replace(" ", "_"))()

    # --- kinds -------------------------------------------------------------------------------------------------------

    def three_deep(self) -> Agent[Any]:
        deepest = self.one("c", ["pay"], ["work"])
        middle = self.one("b", ["pay", "nestc"], nested=(self.inside(deepest, "nestc", "own c"),))
        return self.one("a", ["pay", "nestb"], ["pay"], nested=(self.inside(middle, "nestb"),))

    def waiting_deep(self) -> Agent[Any]:
        deepest = self.one("c", ["pay", "ask"], ["work"])
        middle = self.one("b", ["pay", "nestc"], nested=(self.inside(deepest, "nestc", "own c"),))
        return self.one("a", ["pay", "nestb"], ["pay"], nested=(self.inside(middle, "nestb", "own b"),))

    def waiting_without_sessions(self) -> Agent[Any]:
        deepest = self.one("c", ["pay", "ask"], ["work"])
        middle = self.one("b", ["pay", "nestc"], nested=(self.inside(deepest, "nestc"),))
        return self.one("a", ["pay", "nestb", "ask"], ["pay"], nested=(self.inside(middle, "nestb"),))

    def twice_on_one_session(self) -> Agent[Any]:
        inner = self.one("c", ["pay", "ask"], ["work"])
        return self.one("a", ["nestc", "nestc", "pay"], ["pay"], nested=(self.inside(inner, "nestc", "own c"),))

    def on_its_parents_session(self) -> Agent[Any]:
        inner = self.one("c", ["pay", "ask"], ["work"])
        return self.one("a", ["nestc", "pay"], ["pay"], nested=(self.inside(inner, "nestc", "s"),))

    def handed_over_inside(self) -> Agent[Any]:
        heir = self.one("heir", ["pay"], ["ask", "pay"], ["pay"])
        inner = self.one("c", ["pay", "transfer_to_heir"], heirs=(heir,))
        streamed = self.inside(inner, "nestc", "own c", on_stream=lambda event: None)
        return self.one("a", ["nestc", "pay"], ["pay"], nested=(streamed,))

    def compacted(self) -> Agent[Any]:
        inner = self.one("c", ["pay", "ask"])
        return self.one("a", ["pay"], ["work", "pay"], ["nestc", "pay"], nested=(self.inside(inner, "nestc"),))


ON: dict[str, dict[str, str | None]] = {
    "three deep": {"nestb": None, "nestc": "own c"},
    "waiting deep": {"nestb": "own b", "nestc": "own c"},
    "waiting without sessions": {"nestb": None, "nestc": None},
    "twice on one session": {"nestc": "own c"},
    "on its parents session": {"nestc": "s"},
    "handed over inside": {"nestc": "own c"},
    "compacted": {"nestc": None},
}
"""By the kind: which session each agent tool runs on."""


WHAT = (
    "start",
    "approve",
    "approve streamed",
    "reject",
    "approve the last",
    "cancel",
    "operator cancels",
    "operator approves",
    "another message",
)
"""What a process can be at when it is killed; all but the first find a run that another has begun."""


async def step(
    line: Line, *, where: str, book: str, kind: str, what: str, who: str, at: int | None = None, before: bool = False
) -> int:
    """One process's part; killed at its commit number `at`. Gives how many commits it made."""
    death = Death(at, before=before)
    death.watch()
    story = Story(where, book, kind, who)
    agent, session = story.agent(), story.session()
    config = RunConfig(**CONFIG)
    match what:
        case "start":
            await Runner.run(agent, "go", session=session, run_config=RunConfig(run_id=RUN, **CONFIG))
        case "approve" | "approve streamed" | "reject" | "approve the last":
            state = await Runner.load(agent, RUN, session=session)
            asked = state.get_interruptions()
            for item in asked[-1:] if what == "approve the last" else asked:
                state.reject(item) if what == "reject" else state.approve(item)
            if what == "approve streamed":
                async for _ in Runner.run_streamed(agent, state, session=session, run_config=config).stream_events():
                    pass
            else:
                await Runner.run(agent, state, session=session, run_config=config)
        case "resume":
            await Runner.resume(agent, RUN, session=session, run_config=config)
        case "cancel":
            await Runner.cancel_run(agent, RUN, session=session)
        case "operator cancels":
            async with open_store(where.partition(" ")[2]) as store:
                await store.cancel(RUN, by="ada")
        case "operator approves":
            state = await Runner.load(agent, RUN, session=session)
            async with open_store(where.partition(" ")[2]) as store:
                for item in state.get_interruptions():
                    await store.decide(RUN, str(item.call_id), True, by="ada")
            await Runner.resume(agent, RUN, session=session, run_config=config)
        case "another message":
            await Runner.run(agent, "and now?", session=session, run_config=config)
    return death.count
