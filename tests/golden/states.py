"""Whole saved states, as programs keep them: `RunState.to_json()` of every kind of run that can be saved.

    python -m tests.golden.states     # writes those that are missing; a written one is never written again

Each file holds the payload, and what a program that loads it must find and can do with it. The agents here belong to
the files: they may gain abilities, and never lose what an old payload speaks of.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standfast import (
    Agent,
    HostedMCPTool,
    InMemoryRunStore,
    InMemorySession,
    RunConfig,
    Runner,
    RunState,
    function_tool,
    handoff,
)
from standfast._src.runs.engine.codec import decode_run
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.upgrades import VERSION
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call, handoff_call, reasoning

FOLDER = Path(__file__).parent / "run_states"
STATES: dict[str, Callable[[], Awaitable[RunState]]] = {}


@dataclass
class Account:
    number: int
    owner: str


# --- the agents ------------------------------------------------------------------------------------------------------


def graph(steps: Sequence[Any] = (), inner: Sequence[Any] = (), after: Sequence[Any] = (), server: bool = False) -> Any:
    """The starting agent: tools, a hosted tool, an agent as a tool, and two handoffs (one, where a server owns)."""

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @function_tool
    async def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    @function_tool(failure_error_function=None)
    async def breaks() -> str:
        """Break the run."""
        raise ValueError("broken")

    clerk: Any = Agent(name="clerk", model=ScriptedModel(inner), tools=[pay])
    back: Any = Agent(name="back office", model=ScriptedModel(after), tools=[pay, look])
    brief = handoff(back, tool_name_override="brief", input_filter=_only_the_last)
    files: Any = {"type": "mcp", "server_label": "files", "server_url": "https://files.test"}
    return Agent(
        name="front",
        model=ScriptedModel(steps),
        tools=[pay, look, breaks, HostedMCPTool(tool_config=files), clerk.as_tool("clerk", "The clerk.")],
        handoffs=[back] if server else [back, brief],
    )


def _only_the_last(data: Any) -> Any:
    return data.clone(input_history=(), pre_handoff_items=())


def pay(amount: int, call_id: str) -> Any:
    return function_call("pay", {"amount": amount}, call_id=call_id)


def look(what: str, call_id: str) -> Any:
    return function_call("look", {"what": what}, call_id=call_id)


def reply(*items: Any, response_id: str | None = "resp") -> ModelStep:
    return ModelStep(output=list(items), response_id=response_id, request_id="req")


async def paused(agent: Any, given: Any = "hi", **options: Any) -> RunState:
    state: RunState = (await Runner.run(agent, given, **options)).to_state()
    return state


async def failed(agent: Any, given: Any = "hi", **options: Any) -> RunState:
    try:
        await Runner.run(agent, given, **options)
    except Exception as error:
        state: RunState = error.run_state  # type: ignore[attr-defined]
        return state
    raise AssertionError("it should have failed")


def state(make: Callable[[], Awaitable[RunState]]) -> Callable[[], Awaitable[RunState]]:
    STATES[make.__name__] = make
    return make


# --- the states ------------------------------------------------------------------------------------------------------


@state
async def one_call_waits() -> RunState:
    return await paused(graph([reply(pay(5, "c1"))]))


@state
async def one_waits_and_one_is_done() -> RunState:
    return await paused(graph([reply(reasoning("hm", item_id="t1"), pay(5, "c1"), look("sea", "c2"))]))


@state
async def one_of_two_is_decided() -> RunState:
    made = await paused(graph([reply(pay(5, "c1"), pay(6, "c2"))]))
    made.reject(made.get_interruptions()[0], rejection_message="nicht heute – 今日は駄目")
    return made


@state
async def approved_for_good() -> RunState:
    made = await paused(graph([reply(look("sea", "c0")), reply(pay(5, "c1"))]))
    made.approve(made.get_interruptions()[0], always_approve=True)
    return made


@state
async def rejected_for_good() -> RunState:
    made = await paused(graph([reply(pay(5, "c1"))]))
    made.reject(made.get_interruptions()[0], always_reject=True, rejection_message="never")
    return made


@state
async def with_staged_input() -> RunState:
    made = await paused(graph([reply(pay(5, "c1"))]))
    made.add_input("and hurry")
    return made


@state
async def an_inner_run_waits() -> RunState:
    call = function_call("clerk", {"input": "please"}, call_id="o1")
    return await paused(graph([reply(call, look("sea", "o2"))], inner=[reply(pay(5, "c1"))]))


@state
async def an_inner_run_was_approved() -> RunState:
    made = await an_inner_run_waits()
    made.approve(made.get_interruptions()[0])
    return made


@state
async def a_provider_asks() -> RunState:
    request = {"type": "mcp_approval_request", "id": "m1", "name": "rm", "arguments": "{}", "server_label": "files"}
    return await paused(graph([reply(request)]))


@state
async def after_a_handoff() -> RunState:
    return await paused(
        graph([reply(handoff_call("transfer_to_back_office", call_id="h1"))], after=[reply(pay(5, "c1"))])
    )


@state
async def after_a_handoff_with_a_filter() -> RunState:
    steps = [reply(look("sea", "c0")), reply(handoff_call("brief", call_id="h1"))]
    return await paused(graph(steps, after=[reply(pay(5, "c1"))]))


@state
async def on_a_session() -> RunState:
    session = InMemorySession("golden")
    await session.add_items([{"role": "user", "content": "yes"}, {"role": "assistant", "content": "yes"}])
    config = RunConfig(run_id="golden-run", save="never")  # a store of that process is not there in another
    return await paused(graph([reply(look("sea", "c0")), reply(pay(5, "c1"))]), session=session, run_config=config)


@state
async def in_a_conversation() -> RunState:
    return await paused(
        graph([reply(pay(5, "c1"), look("sea", "c2"), response_id="r1")], server=True), conversation_id="conv"
    )


@state
async def on_a_chain() -> RunState:
    steps = [reply(look("sea", "c0"), response_id="r1"), reply(pay(5, "c1"), response_id="r2")]
    return await paused(graph(steps, server=True), previous_response_id="r0")


@state
async def on_an_automatic_chain() -> RunState:
    return await paused(graph([reply(pay(5, "c1"), response_id="r1")], server=True), auto_previous_response_id=True)


@state
async def killed_inside_a_call() -> RunState:
    """As a store holds it whose worker was killed after the call began and before it returned."""

    class Killed(Exception):
        pass

    class Dying(InMemoryRunStore):
        saves = 0

        async def save_run(self, *args: Any, **kwargs: Any) -> int:
            self.saves += 1
            if self.saves > 2:  # its name was claimed, and what begins was saved
                raise Killed
            return await super().save_run(*args, **kwargs)

        def save_detached(self, save: Any) -> Any:
            raise Killed

    store, agent = Dying(), graph([reply(look("sea", "c1"), look("sky", "c2"))])
    with contextlib.suppress(Killed):
        await Runner.run(agent, "hi", run_config=RunConfig(run_store=store, run_id="golden-killed"))
    made = await Runner.load(agent, "golden-killed", run_store=store)
    unsaved = {**made.to_json(), "revision": 0}  # that store is not there in another process
    return await RunState.from_json(agent, unsaved)


@state
async def a_request_failed() -> RunState:
    return await failed(graph([reply(look("sea", "c1")), ValueError("dead")]))


@state
async def a_tool_broke_the_run() -> RunState:
    return await failed(graph([reply(look("sea", "c1"), function_call("breaks", {}, call_id="c2"))]))


@state
async def out_of_turns() -> RunState:
    return await failed(graph([reply(look("sea", "c1"))]), max_turns=1)


@state
async def finished() -> RunState:
    return await paused(graph([reply(look("sea", "c1")), reply(assistant_message("done"))]))


@state
async def not_begun() -> RunState:
    return RunState({"a": 1}, [{"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}], graph(), 7)


@state
async def with_a_dataclass_as_context() -> RunState:
    return await paused(graph([reply(pay(5, "c1"))]), context=Account(7, "Ada"))


@state
async def odd_values() -> RunState:
    odd = {
        "type": "telepathy",
        "id": "t1",
        "thought": {"deep": [1, 2.0, -0.0, 10**30, None, True, "\u0000 \U0001f600"]},
    }
    return await paused(graph([reply(odd, pay(5, "c1"))]), [{"role": "user", "content": "hi", "future": {"x": [[]]}}])


# --- files -----------------------------------------------------------------------------------------------------------


def facts(made: RunState) -> dict[str, Any]:
    """What whoever loads the state must find."""
    return {
        "status": made.status,
        "wants": [effect.key for effect in due(decode_run(made.to_json()))],
        "turns": made.current_turn,
        "interruptions": [[item.call_id, item.tool_name, item.agent.name] for item in made.get_interruptions()],
        "calls": [[call.call_id, call.status] for call in made.get_calls()],
        "pending_input": made.pending_input,
        "usage": made.context_wrapper.usage.to_json(),
    }


def main() -> None:
    """Write what is missing."""
    folder = FOLDER / f"v{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in STATES.items():
        file = folder / f"{name}.json"
        if not file.exists():
            made = asyncio.run(make())  # type: ignore[arg-type]
            golden = {"finds": facts(made), "payload": made.to_json()}
            file.write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
            print("wrote", file.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main()
