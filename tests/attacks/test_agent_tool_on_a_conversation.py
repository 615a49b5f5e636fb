"""An agent tool on a `conversation_id`: whatever becomes of the run around it, the server's conversation can go on.

The server refuses every request as long as a call it made has no output. So the nested run has a record of its own, by
which the next run on that conversation, nested or not, finds it: what it owes goes first. C15, D2, D5 and D11, for each
conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import done, lines, outputs, short
from helpers.offices import INNER, PARENT, Clerk, Office
from openai import AsyncOpenAI

from standfast import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    InMemoryRunStore,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunStateError,
    SQLiteSession,
    ToolContext,
    UnfinishedRunError,
    function_tool,
    input_guardrail,
    open_store,
)
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import LoopbackServer, Script, Status, call


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(Clerk()) as started:
        yield started
        assert started.faults_waiting == 0, "a fault was prepared that no request met"


@pytest.fixture
async def office(server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path) -> AsyncIterator[Office]:
    made = Office(server.new_conversation(), client, tmp_path, server)
    yield made
    await made.session.close()


async def cut(office: Office) -> None:
    """Whoever waits for the parent goes away, while a call inside the agent tool hangs and another has returned."""
    run = asyncio.create_task(office.say("pay hang"))
    await asyncio.wait_for(office.hangs.wait(), 60)
    run.cancel()
    await asyncio.wait([run])


async def fail(office: Office) -> None:
    """The server is away when the agent tool sends what it did; the parent is told and goes on."""
    office.server.fault(Status(429), skip=1)
    assert (await office.say("pay look")).final_output == "ok"
    assert "failed" in (await office.told())[0]


async def run_out(office: Office) -> None:
    """No turn is left for the agent tool."""
    office.helper = {"max_turns": 1}
    await office.say("pay look")
    office.helper = {}


async def stop_at_a_tool(office: Office) -> None:
    """The agent tool ends with what a tool of it gave, which its server never hears."""
    office.inner = {"tool_use_behavior": "stop_on_first_tool"}
    await office.say("pay look")
    assert await office.told() == [done("c1")]
    office.inner = {}


async def give_up(office: Office) -> None:
    """It waits for a person, and its parent is given up."""
    await office.say("pay ask")
    await Runner.cancel_run(office.outer(), PARENT, session=office.session)


async def be_given_up(office: Office) -> None:
    """The same by an operator."""
    await office.say("pay ask")
    async with open_store(office.path) as store:
        await store.cancel(PARENT, by="ada")


async def be_removed(office: Office) -> None:
    """Its parent is given up, and then removed: nobody can ask it any more."""
    await give_up(office)
    assert await Runner.delete_run(PARENT, session=office.session)


async def be_given_up_alone(office: Office) -> None:
    """It is given up by its own id, and nobody hands over what that gave."""
    await office.say("pay ask")
    owed = await Runner.cancel_run(office.clerk(), INNER, run_store=office.store)
    assert short(owed) == ["O(c1: done)", "O(c2: not run)"]


WAYS = [cut, fail, run_out, stop_at_a_tool, give_up, be_given_up, be_removed, be_given_up_alone]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_what_it_did_goes_first_when_it_is_called_again(office: Office, way: Any) -> None:
    await way(office)
    before = lines(office.book)
    assert before
    other = SQLiteSession("another", office.path)
    result = await office.say("hello", "r2", session=other)
    assert result.final_output == "ok"
    assert await office.told(other) == ["re hello"]
    await other.close()
    first = next(one for one in office.server.model_calls if short(one.input)[-1] == "U(hello)")
    assert [word[:2] for word in short(first.input)] == ["O(", "O(", "U("]
    await office.check()
    assert lines(office.book) == before


@pytest.mark.parametrize("way", [cut, stop_at_a_tool, give_up], ids=lambda way: way.__name__)
async def test_what_it_did_goes_first_in_a_run_of_its_conversation_itself(office: Office, way: Any) -> None:
    await way(office)
    before = lines(office.book)
    await office.check()
    assert lines(office.book) == before
    assert (await office.say("hello", "r2")).final_output == "ok"


async def test_the_same_run_may_call_it_again(office: Office) -> None:
    """A model that reads that a tool failed tries again, in the same run."""
    office.server.fault(Status(429), skip=1)
    calls = [[function_call("helper", {"input": words}, call_id=f"o{n}")] for n, words in ((1, "pay"), (2, "hello"))]
    result = await Runner.run(office.outer(*calls, final("ok")), "go", session=office.session)
    assert outputs(await office.session.get_items())["o2"] == ["re hello"]
    assert result.final_output == "ok"
    assert office.history() == ["U(pay)", "C(c1)", "O(c1: done)", "U(hello)", "A(re hello)"]
    await office.check()


async def test_what_another_process_has_saved_of_it_is_not_removed_when_it_ends(office: Office) -> None:
    """One that was taken for gone, and settled, comes back: it is told so, and does not remove the other's record."""
    taken: list[int] = []

    class Hooks(AgentHooks[Any]):
        async def on_end(self, context: Any, agent: Any, output: Any) -> None:
            saved = await office.store.load_run(INNER)
            if saved is not None and not taken:  # as whoever settles it saves it; here it only has another revision
                given = {"head": saved.head, "tails": {}, "status": "cancelled", "agent": "clerk"}
                taken.append(await office.store.save_run(INNER, expect=saved.revision, **given))

    office.inner = {"hooks": Hooks()}
    await office.say("pay look")
    (told,) = await office.told()
    assert "Another process" in told
    assert "pay, look" in told  # what was done is not hidden
    left = await office.store.load_run(INNER)
    assert left is not None
    assert [left.revision] == taken


# --- it waits for a person -------------------------------------------------------------------------------------------


async def test_while_it_waits_other_calls_of_the_tool_are_refused_by_us_and_told_to_the_model(office: Office) -> None:
    """Any text that the server is sent would be the waiting call's output; the parent is not harmed by the refusal."""
    await office.say("pay ask")
    asked, other = len(office.server.requests), SQLiteSession("another", office.path)
    assert (await office.say("hello", "r2", session=other)).final_output == "ok"
    (told,) = await office.told(other)
    assert all(said in told for said in ("failed", INNER, "paused", "ask (c2)"))
    with pytest.raises(UnfinishedRunError, match=INNER) as caught:
        await office.check()
    assert f"inside run '{PARENT}'" in caught.value.remedy
    assert len(office.server.requests) == asked  # nothing was sent, nor asked
    assert (await office.decide()).final_output == "ok"
    assert office.history() == ["U(pay ask)", "C(c1)", "C(c2)", "O(c1: done)", "O(c2: done)", "A(all done)"]
    assert await office.told() == ["all done"]
    assert (await office.say("hello", "r3", session=other)).final_output == "ok"
    await other.close()
    await office.check()


@pytest.mark.parametrize("approve", [True, False])
async def test_decided_later_it_goes_on_inside_its_parent_and_leaves_no_record(office: Office, approve: bool) -> None:
    await office.say("pay ask")
    assert {run.run_id for run in (await office.store.list_runs(status="paused"))[0]} == {INNER, PARENT}
    await office.decide(approve)
    assert [run.run_id for run in (await office.store.list_runs())[0]] == [PARENT]
    assert lines(office.book) == (["c1", "c2"] if approve else ["c1"])
    await office.check()


async def test_only_its_parent_goes_on_with_it(office: Office) -> None:
    await office.say("pay ask")
    state = await Runner.load(office.clerk(), INNER, run_store=office.store)
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunStateError, match=f"inside run '{PARENT}'"):
        await Runner.run(office.clerk(), state, run_config=RunConfig(run_store=office.store))
    report = await Runner.recover([office.outer()], sessions=lambda name: SQLiteSession(name, office.path))
    assert [one.run_id for one in report.of("waits")] == [PARENT]
    assert report.of("continued") == ()


async def test_settled_by_another_its_parent_is_told_that_its_outcome_is_unknown(office: Office) -> None:
    """Given up by its own id while its parent waits: whoever approves in the parent then comes too late."""
    await be_given_up_alone(office)
    await office.check()
    await office.decide()
    assert lines(office.book) == ["c1"]
    assert "not known" in (await office.told())[0]
    await office.check("and now?")


# --- several at once, deeper, by hand --------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("pay", "look", "pay too"), ("pay ask", "look"), ("hello", "pay ask")])
async def test_called_several_times_in_one_turn_they_take_turns(office: Office, words: tuple[str, ...]) -> None:
    """Side by side, a second message would come between a call of the first and its output."""
    calls = [function_call("helper", {"input": one}, call_id=f"o{n}") for n, one in enumerate(words)]
    result = await Runner.run(
        office.outer(calls, final("ok")), "go", session=office.session, run_config=RunConfig(run_id=PARENT)
    )
    if result.interruptions:
        result = await office.decide()
    assert result.final_output == "ok"
    told = outputs(await office.session.get_items())
    if words == ("pay ask", "look"):
        assert "has not ended" in told.pop("o1")[0]  # the first waited, and nothing may be said meanwhile
    answers = {"hello": ["re hello"]}
    assert told == {f"o{n}": answers.get(one, ["all done"]) for n, one in enumerate(words) if f"o{n}" in told}
    await office.check()


async def test_a_tool_that_is_not_given_a_turn_says_so(office: Office) -> None:
    """With concurrency="reject" the second of two calls is told at once, and nothing is sent."""
    calls = [function_call("helper", {"input": one}, call_id=f"o{n}") for n, one in enumerate(("pay", "look"))]
    config = RunConfig(concurrency="reject")
    await Runner.run(office.outer(calls, final("ok")), "go", session=office.session, run_config=config)
    told = outputs(await office.session.get_items())
    assert told["o0"] == ["all done"]
    assert "conversation 'conv_" in told["o1"][0]
    assert "is held by another run of this process" in told["o1"][0]
    await office.check()


async def test_a_run_inside_a_run_on_the_same_conversation_is_refused_before_anything_is_sent(office: Office) -> None:
    """The call that it answers has no output yet: the server would take nothing."""
    middle = office.clerk()
    office.server.rule = Script([call("helper", {"input": "look"}, call_id="m1"), "it was refused"])
    middle.tools = [office.clerk().as_tool("helper", "Help.", conversation_id=office.conversation)]
    outer = Agent(
        name="outer",
        model=ScriptedModel([[function_call("middle", {"input": "look"}, call_id="o1")], final("ok")]),
        tools=[middle.as_tool("middle", "Help.", conversation_id=office.conversation)],
    )
    await Runner.run(outer, "go", session=office.session)
    told = short(office.server.history(office.conversation))
    assert told[0] == "U(look)"
    assert "so is a run that it is inside of" in told[2]
    assert told[3:] == ["A(it was refused)"]
    office.server.rule = Clerk()
    await office.check()


@pytest.mark.parametrize("way", [cut, fail, give_up], ids=lambda way: way.__name__)
async def test_two_deep_the_record_is_kept_with_the_outermost_run(office: Office, way: Any) -> None:
    """The run between has neither a session nor a record."""
    plain = office.outer

    def outer(*replies: Any, tools: Any = ()) -> Agent[Any]:
        calls = [[function_call("helper", {"input": word}, call_id="m1")] for word in office.words]
        middle = plain(*calls, final("passed on"))
        office.words = ()
        return Agent(name="top", model=ScriptedModel(replies), tools=[middle.as_tool("helper", "Pass on.")])

    async def say(words: str, run_id: str = PARENT, session: Any = None) -> Any:
        office.words = (words,)
        return await Office.say(office, words, run_id, session)

    office.words: tuple[str, ...] = ()
    office.outer, office.say = outer, say  # type: ignore[method-assign,assignment]
    if way is fail:
        office.server.fault(Status(429), skip=1)
        await say("pay look")
    else:
        await way(office)
    assert [run.run_id for run in await office.store.open_on_conversation(office.conversation)] == ["r1/o1/m1"]
    assert (await say("hello", "r2")).final_output == "ok"
    await office.check()


@pytest.mark.parametrize("words", ["pay look", "pay ask"])
async def test_called_by_hand_it_owes_nothing_that_is_forgotten(office: Office, words: str) -> None:
    """One that would have to wait is given up, and one whose server is away fails: nobody holds their result."""

    @function_tool
    async def by_hand(ctx: ToolContext[Any]) -> str:
        """Call the agent tool as a function."""
        helper = office.clerk().as_tool("helper", "Help.", conversation_id=office.conversation)
        return str(await helper.on_invoke_tool(ctx, '{"input": "' + words + '"}'))

    if words == "pay look":
        office.server.fault(Status(429), skip=1)
    model = ScriptedModel([[function_call("by_hand", {}, call_id="o1")], final("ok")])
    await Runner.run(Agent(name="outer", model=model, tools=[by_hand]), "go", session=office.session)
    assert lines(office.book)[0] == "c1"
    assert (await office.say("hello", "r2")).final_output == "ok"
    await office.check()


# --- what was taken over is not lost by whoever took it --------------------------------------------------------------


@pytest.mark.parametrize("nested", [True, False])
async def test_what_was_taken_over_is_handed_on_by_a_run_that_fails_at_once(office: Office, nested: bool) -> None:
    """The one that owed it has ended by then: lost with its heir, the server would take nothing any more."""
    await fail(office)
    for number in range(2):
        office.server.fault(Status(429))
        if nested:
            await office.say("hello", f"again {number}")
        else:
            with pytest.raises(Exception, match="asked to fail"):
                await office.check()
    seen = short(await office.check())
    assert seen == ["U(pay look)", "C(c1)", "C(c2)", "O(c1: done)", "O(c2: done)", "U(well?)", "A(re well?)"]


async def test_what_was_taken_over_is_handed_on_by_a_run_that_a_guardrail_stops(office: Office) -> None:
    """What no guardrail has passed is never sent; what others owe has nothing to do with it."""
    await fail(office)

    @input_guardrail
    def never(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    office.inner = {"input_guardrails": [never]}
    await office.say("secret", "r2")
    office.inner = {}
    assert "U(secret)" not in short(await office.check())


async def test_a_run_that_took_something_over_and_is_resumed_sends_it_once(office: Office) -> None:
    await fail(office)
    office.server.fault(Status(429))
    agent: Agent[Any] = Agent(name="next", model=OpenAIResponsesModel("m", office.client))
    config = RunConfig(run_store=office.store, run_id="heir")
    with pytest.raises(Exception, match="asked to fail"):
        await Runner.run(agent, "hi", conversation_id=office.conversation, run_config=config)
    await Runner.resume(agent, "heir", run_store=office.store)
    assert office.history()[-4:] == ["O(c1: done)", "O(c2: done)", "U(hi)", "A(re hi)"]
    await office.check()


# --- other owners, and none that is known ----------------------------------------------------------------------------


async def test_without_a_run_store_nothing_is_known_and_nothing_is_kept(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
) -> None:
    """The server says what is missing, the parent is told, and goes on."""
    office = Office(server.new_conversation(), client, tmp_path, server)
    server.fault(Status(429), skip=1)
    for words in ("pay", "hello"):
        agent = office.outer([function_call("helper", {"input": words}, call_id="o1")], final("ok"))
        result = await Runner.run(agent, words)
        assert result.final_output == "ok"
    assert "No tool output found" in str(result.to_input_list())
    await office.session.close()


async def test_a_store_of_its_own_is_used_where_the_tool_names_one(office: Office) -> None:
    """Parents that are kept in several stores share what their agent tool owes by it."""
    shared = InMemoryRunStore()
    office.helper = {"run_config": RunConfig(run_store=shared)}
    await office.say("pay ask")
    other = SQLiteSession("s", office.path.with_name("other.db"))
    await office.say("hello", "r2", session=other)
    assert "has not ended" in (await office.told(other))[0]
    assert await office.store.open_on_conversation(office.conversation) == []
    await office.decide()
    await office.say("hello", "r3", session=other)
    assert (await office.told(other))[1] == "re hello"
    await other.close()
    assert (await shared.list_runs())[0] == []
    await office.check()


@pytest.mark.parametrize("way", ["decided", "failed"])
async def test_a_response_chain_of_an_agent_tool_is_sent_nothing_twice(office: Office, way: str) -> None:
    """D4, D7: a chain belongs to its run, and each call of the tool begins where the tool says."""
    first = await office.client.responses.create(model="m", input="before")
    helper = office.clerk().as_tool("helper", "Help.", previous_response_id=first.id)

    def outer(*replies: Any) -> Agent[Any]:
        return Agent(name="outer", model=ScriptedModel(replies), tools=[helper])

    if way == "failed":
        office.server.fault(Status(429), skip=1)
    words = "pay ask" if way == "decided" else "pay look"
    agent = outer([function_call("helper", {"input": words}, call_id="o1")], final("ok"))
    await Runner.run(agent, "go", session=office.session, run_config=RunConfig(run_id=PARENT))
    if way == "decided":
        state = await Runner.load(agent, PARENT, session=office.session)
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state, session=office.session)
        assert short(office.server.model_calls[-1].input) == ["O(c1: done)", "O(c2: done)"]
    again = outer([function_call("helper", {"input": "hello"}, call_id="o2")], final("ok"))
    await Runner.run(again, "go", session=office.session)
    assert office.server.model_calls[-1].previous_response_id == first.id
    assert short(office.server.model_calls[-1].input) == ["U(hello)"]
    assert [run.run_id for run in (await office.store.list_runs())[0] if "/" in run.run_id] == []
