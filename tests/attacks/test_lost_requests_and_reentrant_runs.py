"""What two more readers of a day's changes found before it was out: each of these failed when they wrote it down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import outputs, short
from openai import AsyncOpenAI

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    Model,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SendOutcomeUnknownError,
    SessionBusyError,
    SQLiteSession,
    function_tool,
    handoff,
)
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import Asked, Drop, LoopbackServer, Status, call

# --- runs ------------------------------------------------------------------------------------------------------------


class CannotTell(Model):
    """A model of somebody's own: it sends what it is given, and cannot be asked what became of a request."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    async def get_response(self, *given: Any, **more: Any) -> Any:
        return await self._inner.get_response(*given, **more)

    def stream_response(self, *given: Any, **more: Any) -> Any:
        return self._inner.stream_response(*given, **more)


async def test_what_may_have_been_taken_is_not_sent_again_because_another_was_taken_since(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """D5: it said twice that nobody knows, and the third time, after another run, the message was there twice."""
    server.rule = lambda asked: f"re {asked.last_text}"
    conversation = server.new_conversation()
    agent = Agent(name="a", model=CannotTell(OpenAIResponsesModel("m", client)))
    store = InMemoryRunStore()

    async def say(words: str, run_id: str) -> Any:
        config = RunConfig(run_store=store, run_id=run_id)
        return await Runner.run(agent, words, conversation_id=conversation, run_config=config)

    server.fault(Drop(committed=True), times=1)
    for _ in range(2):
        with pytest.raises(SendOutcomeUnknownError):
            await say("hello", "job")
    assert (await say("next", "other")).final_output == "re next"
    with pytest.raises(SendOutcomeUnknownError):
        await say("hello", "job")
    assert short(server.history(conversation)) == ["U(hello)", "A(re hello)", "U(next)", "A(re next)"]


async def test_who_gives_a_lost_request_up_does_not_owe_the_output_of_anothers_call(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """Another run has said the same words, and its call waits for a person: brought along, "not approved" would be
    what the server takes for its output, whatever the person says."""

    def rule(asked: Asked) -> Any:
        return "paid for" if asked.outputs else call("pay", {}, call_id="c1")

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    server.rule = rule
    conversation = server.new_conversation()
    agent = Agent(name="a", model=OpenAIResponsesModel("m", client), tools=[pay])
    store = InMemoryRunStore()

    async def say(run_id: str) -> Any:
        config = RunConfig(run_store=store, run_id=run_id, unfinished="ignore")
        return await Runner.run(agent, "pay", conversation_id=conversation, run_config=config)

    server.fault(Drop(committed=False), times=1)
    with pytest.raises(Exception, match=r"(?i)connection"):
        await say("lost")
    waits = await say("waits")
    assert await Runner.cancel_run(agent, "lost", run_store=store) == []
    state = waits.to_state()
    state.approve(waits.interruptions[0])
    result = await Runner.run(agent, state, run_config=RunConfig(run_store=store))
    assert result.final_output == "paid for"
    assert short(server.history(conversation)) == ["U(pay)", "C(c1)", "O(c1: paid)", "A(paid for)"]


def says_by_context(context: Any, agent: Any) -> str:
    """Instructions that want the context of their application, which nobody who gives a run up has."""
    return f"Serve {context.context['user']}."


async def test_a_lost_request_is_asked_about_without_the_agents_instructions(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """They failed, so nobody asked; the run was given up, and the server took nothing any more: its call was open."""

    @function_tool
    def pay() -> str:
        """Pay."""
        return "paid"

    server.rule = lambda asked: call("pay", {}, call_id="c1") if asked.last_text == "pay" else "yes"
    conversation, store = server.new_conversation(), InMemoryRunStore()
    model = OpenAIResponsesModel("m", client)
    agent = Agent(name="a", instructions=says_by_context, model=model, tools=[pay])

    async def say(given: Any, **config: Any) -> Any:
        settings = RunConfig(run_store=store, **config)
        known = {"user": "ann"}
        return await Runner.run(agent, given, context=known, conversation_id=conversation, run_config=settings)

    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)  # the server does not tell its own run
    with pytest.raises(SendOutcomeUnknownError):
        await say("pay", run_id="lost")
    owed = await Runner.cancel_run(agent, "lost", run_store=store)
    assert (await say([*owed, {"role": "user", "content": "next"}])).final_output == "yes"
    assert [word[:3] for word in short(server.history(conversation))] == ["U(p", "C(c", "O(c", "U(n", "A(y"]


def leaf() -> Agent[Any]:
    return Agent(name="leaf", model=ScriptedModel([final("leaf done")]))


async def test_a_run_left_behind_in_a_thread_is_not_waited_for_by_the_call_that_was_cut(tmp_path: Path) -> None:
    """Its run had ended, and had given its session back: who wanted that was told of a circle (C13)."""
    first, second, third = (SQLiteSession(name, tmp_path / "s.db") for name in ("one", "two", "two"))
    has_two, is_cut = asyncio.Event(), asyncio.Event()
    left_behind: list[asyncio.Future[Any]] = []

    def in_a_thread() -> Any:
        return asyncio.run(Runner.run(leaf(), "x", session=third, run_config=RunConfig(lease_wait_s=300)))

    @function_tool(timeout=0.3)
    async def ask_two() -> str:
        """Ask, in a thread, whoever has the second session."""
        left_behind.append(asyncio.ensure_future(asyncio.to_thread(in_a_thread)))
        await asyncio.shield(left_behind[0])
        return "asked"

    @function_tool
    async def ask_one() -> str:
        """Ask whoever has the first one, when that is free again."""
        has_two.set()
        await is_cut.wait()
        return str((await Runner.run(leaf(), "y", session=first)).final_output)

    def asks(tool: Any) -> Agent[Any]:
        return Agent(
            name="a", tools=[tool], model=ScriptedModel([[function_call(tool.name, {}, call_id="c1")], final("done")])
        )

    async with asyncio.timeout(200):
        other = asyncio.create_task(Runner.run(asks(ask_one), "go", session=second))
        await has_two.wait()
        await Runner.run(asks(ask_two), "go", session=first)
        is_cut.set()
        told = outputs((await other).to_input_list())
        assert [text for texts in told.values() for text in texts] == ["leaf done"]
        assert (await left_behind[0]).final_output == "leaf done"
    for session in (first, second, third):
        session.close()


async def test_a_run_that_a_handoff_starts_on_its_runs_session_does_not_wait_for_itself() -> None:
    """C13: a handoff is a tool to the model, and its function code of the user's as any other."""
    session, told = InMemorySession("s"), list[str]()

    async def start(context: Any) -> None:
        with pytest.raises(SessionBusyError) as refused:
            await Runner.run(leaf(), "x", session=session, run_config=RunConfig(lease_wait_s=3_000))
        told.append(str(refused.value))

    to_leaf = handoff(leaf(), on_handoff=start)
    model = ScriptedModel([[function_call(to_leaf.tool_name, {}, call_id="c1")]])
    async with asyncio.timeout(200):
        result = await Runner.run(Agent(name="a", model=model, handoffs=[to_leaf]), "go", session=session)
    assert result.final_output == "leaf done"
    assert ["wait for itself" in text for text in told] == [True]
