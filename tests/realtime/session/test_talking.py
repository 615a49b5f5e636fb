"""Tools, approvals, guardrails, handoffs, interruptions and reconnection in a live call, on real sockets."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from realtime.session.helpers import Reader, at, runner, talk_of, talking, until, utterance

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    RunContextWrapper,
    RunHooks,
    ToolGuardrailFunctionOutput,
    function_tool,
    output_guardrail,
    tool_input_guardrail,
)
from standfast._kits.testing.loopback.faults import Gate
from standfast._kits.testing.realtime.faults import Cut, Stall
from standfast._src.base.errors import ConnectionLostError
from standfast.realtime import RealtimeAgent, realtime_handoff
from standfast.testing import LoopbackRealtimeServer
from standfast.testing.loopback import call


def agent(*tools: Any, name: str = "voice", **more: Any) -> RealtimeAgent[Any]:
    return RealtimeAgent(name=name, instructions=f"You are {name}.", tools=list(tools), **more)


def outputs(server: LoopbackRealtimeServer) -> list[str]:
    items = [frame["item"] for frame in server.received("conversation.item.create")]
    return [item["output"] for item in items if item["type"] == "function_call_output"]


async def test_parallel_calls_lead_to_one_reply_with_all_results():
    """E9: the reply is asked for when the last of them has returned."""
    gate = asyncio.Event()

    @function_tool
    async def quick() -> str:
        return "quick"

    @function_tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    async with LoopbackRealtimeServer([[call("quick", {}), call("slow", {})], "Both done."]) as server:
        session = await runner(agent(quick, slow)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("do both")
            await reader.until("tool_end")
            await until(lambda: outputs(server) == ["quick"])
            assert len(server.received("response.create")) == 1
            gate.set()
            await reader.until("agent_end", 2)
            assert sorted(outputs(server)) == ["quick", "slow"]
            assert len(server.received("response.create")) == 2
            assert not server.refused


async def test_a_call_that_waits_for_a_person_holds_nothing_back_and_the_model_is_told():
    """E5, E9: other replies go on; with the setting the model reads which calls wait."""
    ran: list[str] = []

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        ran.append(f"paid {amount}")
        return f"paid {amount}"

    script = [call("pay", {"amount": 3}), "Still waiting.", "Paid."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(agent(pay), announce_waiting_calls=True).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("pay three")
            asked = await reader.until("tool_approval_required")
            assert (asked.tool.name, asked.arguments, asked.agent.name) == ("pay", '{"amount":3}', "voice")
            await session.send_message("is it done?")
            await reader.until("agent_end", 2)
            told = [item for item in server.items() if item.get("role") == "system"]
            assert "pay" in told[0]["content"][0]["text"]
            assert not ran
            await session.approve_tool_call(asked.call_id)
            end = await reader.until("tool_end")
            assert end.output == "paid 3"
            await reader.until("agent_end", 3)
            assert ran == ["paid 3"]
            assert not session.pending_approvals


async def test_a_policy_decides_only_about_the_values_that_the_tool_gets():
    """C16, in a call as in a run: a person is asked about other ones, and sees both."""
    judged: list[Any] = []
    ran: list[Any] = []

    async def large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        judged.append(arguments)
        return False

    @tool_input_guardrail
    def small(data: Any) -> ToolGuardrailFunctionOutput:
        judged.append(data.context.tool_arguments)
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(needs_approval=large)
    async def pay(euros: int) -> str:
        ran.append(euros)
        return "paid"

    @function_tool(tool_input_guardrails=[small])
    async def lend(euros: int) -> str:
        ran.append(euros)
        return "lent"

    script = [[call("pay", {"euros": "5000"}), call("lend", {"euros": 6.0}), call("pay", {"euros": 7})], "Done."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(agent(pay, lend)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("pay")
            await reader.until("tool_approval_required", 2)
            await reader.until("tool_end")
            assert (judged, ran) == ([{"euros": 7}], [7])
            asked = reader.of("tool_approval_required")
            assert [(one.arguments, one.prepared_arguments) for one in asked] == [
                ('{"euros":"5000"}', '{"euros": 5000}'),
                ('{"euros":6.0}', '{"euros": 6}'),
            ]
            for one in asked:
                await session.approve_tool_call(one.call_id)
            await reader.until("tool_end", 3)
            assert sorted(ran) == [6, 7, 5000]
            assert judged[1:] == ['{"euros":6.0}']  # a guardrail still looks at what a person let through


async def test_a_rejection_is_read_by_the_model_and_sticks_where_it_was_meant_to():
    ran: list[str] = []

    @function_tool(needs_approval=True)
    async def delete(name: str) -> str:
        ran.append(name)
        return "deleted"

    script = [call("delete", {"name": "a"}), "Not a.", call("delete", {"name": "b"}), "Not b."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(agent(delete)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("delete a")
            asked = await reader.until("tool_approval_required")
            await session.reject_tool_call(asked.call_id, always=True, rejection_message="Never.")
            await reader.until("agent_end", 2)
            await session.send_message("delete b")
            await reader.until("agent_end", 4)
            assert outputs(server) == ["Never.", "Never."]
            assert len(reader.of("tool_approval_required")) == 1
    assert not ran


async def test_a_tool_that_raises_becomes_an_output_and_an_event_and_the_call_goes_on():
    @function_tool(failure_error_function=None)
    async def broken() -> str:
        raise ValueError("out of order")

    async with LoopbackRealtimeServer([call("broken", {}), call("nonsense", {}), "Sorry."]) as server:
        session = await runner(agent(broken)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("try")
            await reader.until("agent_end", 3)
            assert "failed" in outputs(server)[0]
            assert "nonsense" in outputs(server)[1]
            assert len(reader.of("error")) == 2
            assert session.state == "open"


async def test_a_tool_may_end_the_call_if_so_configured():
    @function_tool(failure_error_function=None)
    async def broken() -> str:
        raise ValueError("out of order")

    async with LoopbackRealtimeServer([call("broken", {})]) as server:
        session = await runner(agent(broken), tool_failure="raise").run(model_config=at(server))
        async with session:
            reader = Reader(session)
            await session.send_message("try")
            await reader.task
            assert "out of order" in str(reader.error)
            assert session.state == "closed"


async def test_tool_guardrails_look_before_the_question_and_again_after_it():
    """E11: a rejection goes back as the tool's output and as an event."""
    looks: list[str] = []

    @tool_input_guardrail
    def no_seven(data: Any) -> ToolGuardrailFunctionOutput:
        looks.append(data.context.tool_arguments)
        if "7" in data.context.tool_arguments:
            return ToolGuardrailFunctionOutput.reject_content("Seven is refused.")
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(needs_approval=True)
    async def book(seats: int) -> str:
        return f"booked {seats}"

    book.tool_input_guardrails = [no_seven]
    config = {"tool_execution": {"pre_approval_tool_input_guardrails": True}}
    script = [call("book", {"seats": 7}), "No.", call("book", {"seats": 2}), "Yes."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(agent(book), **config).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("seven")
            end = await reader.until("tool_end")
            assert end.output == "Seven is refused."
            await reader.until("agent_end", 2)
            await session.send_message("two")
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("agent_end", 4)
    assert looks == ['{"seats":7}', '{"seats":2}', '{"seats":2}']
    assert outputs(server) == ["Seven is refused.", "booked 2"]


async def test_one_call_at_a_time_in_order_and_never_in_the_reader():
    """E5: `async_tool_calls=False`; a call that waits for a person does not occupy the place."""
    order: list[str] = []
    gate = asyncio.Event()

    @function_tool
    async def first() -> str:
        order.append("first begins")
        await gate.wait()
        order.append("first ends")
        return "1"

    @function_tool
    async def second() -> str:
        order.append("second")
        return "2"

    @function_tool(needs_approval=True)
    async def asks() -> str:
        return "3"

    script = [[call("asks", {}), call("first", {}), call("second", {})], "Done."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(agent(first, second, asks), async_tool_calls=False).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("go")
            await until(lambda: order == ["first begins"])
            await reader.until("agent_end")  # the reader goes on while a tool runs
            gate.set()
            await reader.until("tool_end", 2)
            assert order == ["first begins", "first ends", "second"]


async def test_output_guardrails_look_at_short_replies_and_refuse_once():
    """E7: one event, the response cancelled, one note that names the guardrail, nothing of it stored."""
    looked: list[str] = []

    @output_guardrail
    def no_secret(context: RunContextWrapper[Any], agent: Any, output: str) -> GuardrailFunctionOutput:
        looked.append(output)
        return GuardrailFunctionOutput(None, "secret" in output)

    @output_guardrail
    def broken(context: RunContextWrapper[Any], agent: Any, output: str) -> GuardrailFunctionOutput:
        raise ValueError("I am broken")

    store = InMemorySession("g")
    talker = agent(output_guardrails=[broken, no_secret])
    async with LoopbackRealtimeServer(["the secret is out", "Let us talk of something else."]) as server:
        session = await runner(talker).run(model_config=at(server), session=store)
        async with talking(session) as reader:
            await session.send_message("tell me")
            tripped = await reader.until("guardrail_tripped")
            assert [one.guardrail.get_name() for one in tripped.guardrail_results] == ["no_secret"]
            await reader.until("agent_end", 2)
            await until(lambda: not talk_of(session).open)
            notes = [item["content"][0]["text"] for item in server.items() if item.get("role") == "system"]
            assert notes == ["guardrail triggered: no_secret"]
            assert len(reader.of("guardrail_tripped")) == 1
    stored = [item["content"] for item in await store.get_items()]
    assert stored[-1] == "Let us talk of something else."
    assert not any("guardrail" in text or "out" in text for text in stored)
    assert looked[0] == "the secret is out"


async def test_a_handoff_is_committed_when_the_server_has_confirmed_it():
    """E6: the event, the hooks and the new tools come with the confirmation; a refusal leaves the old agent."""
    seen: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            seen.append(f"{from_agent.name} to {to_agent.name}")

    @function_tool
    async def refund() -> str:
        return "refunded"

    billing = agent(refund, name="billing")
    front = agent(name="front", handoffs=[realtime_handoff(billing)])
    script = [call("transfer_to_billing", {}), "This is billing.", call("refund", {}), "Refunded."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(front).run(model_config=at(server), hooks=Hooks())
        async with talking(session) as reader:
            await session.send_message("billing please")
            handed = await reader.until("handoff")
            assert (handed.from_agent.name, handed.to_agent.name) == ("front", "billing")
            await reader.until("agent_end", 2)
            assert session.current_agent is billing
            await session.send_message("refund me")
            end = await reader.until("tool_end")
            assert end.agent is billing
            await reader.until("agent_end", 4)
            updates = server.received("session.update")
            assert set(updates[1]["session"]) == {"type", "instructions", "tools"}  # only what changed
            bad = agent(name="bad")
            bad.tools = [function_tool(name_override="x" * 80)(_nothing)]
            with pytest.raises(Exception, match="stays as it was"):
                await session.update_agent(bad)
            assert session.current_agent is billing
            await session.update_agent(front)
            assert session.current_agent is front
            await until(lambda: seen == ["front to billing", "billing to front"])


async def _nothing() -> str:
    return ""


async def test_a_call_keeps_the_agent_it_arrived_with():
    """E5: whatever the current agent is when it finishes."""
    gate, agents = asyncio.Event(), []

    @function_tool
    async def slow(context: RunContextWrapper[Any]) -> str:
        await gate.wait()
        agents.append(context.agent.name)  # type: ignore[attr-defined]
        return "slow"

    one, other = agent(slow, name="one"), agent(name="other")
    async with LoopbackRealtimeServer([call("slow", {}), "Done."]) as server:
        session = await runner(one).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("go")
            await reader.until("tool_start")
            await session.update_agent(other)
            gate.set()
            end = await reader.until("tool_end")
            assert end.agent is one
            await reader.until("agent_end", 2)
    assert agents == ["one"]


async def test_speech_interrupts_and_late_audio_is_not_shown():
    """E8: one signal to stop, a truncation that the server takes, no audio of that reply afterwards."""
    words = " ".join(f"word{number}" for number in range(600))
    async with LoopbackRealtimeServer([words, "Yes?"], pace=0.3) as server:
        session = await runner(agent()).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("talk")
            first = await reader.until("audio", 5)
            await session.send_audio(utterance(server, "wait a moment"))
            cut = await reader.until("audio_interrupted")
            assert cut.item_id == first.item_id
            place = reader.events.index(cut)
            await reader.until("agent_end", 2)
            later = [one for one in reader.events[place:] if one.type == "audio"]
            assert all(one.item_id != first.item_id for one in later)
            (truncated,) = server.received("conversation.item.truncate")
            assert truncated["item_id"] == first.item_id
            assert not server.refused
            heard = [text for role, text in server.said() if role == "assistant"]
            assert 0 < len(heard[0]) < len(words)


async def test_an_interruption_before_the_reply_exists_stops_it():
    async with LoopbackRealtimeServer(["never to be heard"]) as server:
        gate = Gate()
        server.fault(Stall(gate), on="response.created", direction="sent")
        session = await runner(agent()).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("talk")
            await server.until("response.create")
            await session.interrupt()
            gate.release()
            await reader.until("agent_end")
            await until(lambda: list(server.said()) == [("user", "talk")])  # cancelled or truncated: nobody heard it
            assert not reader.of("audio")
            assert not reader.of("audio_interrupted")


@pytest.mark.parametrize("code", [1001, 1006, 1011])
async def test_a_lost_connection_is_an_event_and_the_reply_is_asked_for_again(code: int):
    """E13: the conversation, the open question and the reply that was lost are there on the new connection."""
    ran: list[int] = []

    @function_tool(needs_approval=True)
    async def book(seats: int) -> str:
        ran.append(seats)
        return "booked"

    script = [call("book", {"seats": 4}), "lost on its way", "Here I am again.", "Booked it is."]
    config = {"reconnect": {"enabled": True, "first_delay_s": 0.01}}
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(agent(book), **config).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("book four")
            asked = await reader.until("tool_approval_required")
            gate = server.hold("response.output_item.added")
            await session.send_message("are you there?")
            await gate.reached()
            if code == 1006:
                server.cut_all()
            else:
                server.close_all(code)
            gate.release()
            lost = await reader.until("connection_lost")
            assert lost.code == code
            back = await reader.until("reconnected")
            assert back.restored == 3
            await reader.until("audio_end")
            await session.approve_tool_call(asked.call_id)
            await reader.until("tool_end")
            await reader.until("audio_end", 2)
            assert ran == [4]
            assert [text for _, text in server.said()][:2] == ["book four", "are you there?"]
            assert not server.refused


async def test_speech_that_nobody_understood_is_said_again():
    """E13: cut in the middle of an utterance, it is transcribed and answered on the next connection, once."""
    config = {"reconnect": {"enabled": True, "first_delay_s": 0.01}}
    async with LoopbackRealtimeServer(["I heard you."]) as server:
        session = await runner(agent(), **config).run(model_config=at(server))
        async with talking(session) as reader:
            said = utterance(server, "please book a table for two")
            server.fault(Cut(), on="input_audio_buffer.speech_started", direction="sent")
            half = len(said) // 4 * 2
            await session.send_audio(said[:half])
            await reader.until("connection_lost")
            await session.send_audio(said[half:])
            back = await reader.until("reconnected")
            await reader.until("audio_end")
            assert back is not None
            assert [text for _, text in server.said()] == ["please book a table for two", "I heard you."]


async def test_without_reconnection_a_lost_connection_ends_the_call_with_a_typed_error():
    async with LoopbackRealtimeServer(["Hello."]) as server:
        session = await runner(agent()).run(model_config=at(server))
        async with session:
            reader = Reader(session)
            await session.send_message("hi")
            await reader.until("agent_end")
            server.close_all(1001)
            await reader.task
            assert isinstance(reader.error, ConnectionLostError)
            assert reader.error.code == 1001
            assert "agent_end" in reader.types()  # what was queued came first


async def test_tools_run_in_the_context_the_session_was_entered_with():
    """E15: whoever approves or delivers, and whatever they have set since."""
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    @function_tool(needs_approval=True)
    async def look() -> str:
        seen.append(who.get())
        return "seen"

    async with LoopbackRealtimeServer([call("look", {}), "Done."]) as server:
        session = await runner(agent(look)).run(model_config=at(server))
        who.set("whoever entered")
        await session.enter()
        reader = Reader(session)
        await session.send_message("look")
        asked = await reader.until("tool_approval_required")

        async def approve() -> None:
            who.set("whoever approved")
            await session.approve_tool_call(asked.call_id)

        await asyncio.create_task(approve())
        await reader.until("tool_end")
        await asyncio.create_task(session.close())  # another task than the one that entered
        await reader.task
    assert seen == ["whoever entered"]


async def test_an_agent_works_as_a_tool_with_approvals_of_its_own():
    from standfast.testing import ScriptedModel, assistant_message, function_call

    ran: list[str] = []

    @function_tool
    async def lookup(name: str) -> str:
        ran.append(name)
        return f"{name} is fine"

    model = ScriptedModel(
        [[function_call("lookup", {"name": "Bob"}, call_id="i1")], [assistant_message("Bob is fine")]]
    )
    inner = Agent(name="inner", model=model, tools=[lookup])
    tool = inner.as_tool("ask_inner", "Ask the inner agent.")
    async with LoopbackRealtimeServer([call("ask_inner", {"input": "how is Bob?"}), "Bob is fine."]) as server:
        session = await runner(agent(tool)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("how is Bob?")
            end = await reader.until("tool_end")
            assert end.output == "Bob is fine"
            await reader.until("agent_end", 2)
    assert ran == ["Bob"]


async def test_hooks_observe_agents_tools_and_handoffs_and_one_that_raises_harms_nobody():
    """E6: the hooks the SDK documents and never calls."""
    seen: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append(f"start {agent.name}")

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            seen.append(f"tool {tool.name}")

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            seen.append(f"end {result}")

        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            raise ValueError("a hook that fails")

    @function_tool
    async def look() -> str:
        return "seen"

    other = agent(name="other")
    front = agent(look, name="front", handoffs=[other])
    script = [call("look", {}), "I looked.", call("transfer_to_other", {}), "I am other."]
    async with LoopbackRealtimeServer(script) as server:
        session = await runner(front).run(model_config=at(server), hooks=Hooks())
        async with talking(session) as reader:
            await session.send_message("look")
            await reader.until("agent_end", 2)
            await session.send_message("give me the other")
            await reader.until("agent_end", 4)
            await reader.until("error")
    assert seen == ["start front", "tool look", "end seen", "start other"]


@pytest.mark.parametrize("holds", [False, True])
async def test_audio_can_be_held_until_the_guardrails_have_looked(holds: bool):
    """E7: with `hold_audio` nothing of a refused reply is heard; a failing check can count as a trip."""

    @output_guardrail(name="broken")
    async def broken(context: Any, agent: Any, output: str) -> GuardrailFunctionOutput:
        await asyncio.sleep(0)
        if "secret" in output:
            raise ValueError("cannot tell")
        return GuardrailFunctionOutput(None, False)

    config = {"guardrails_settings": {"hold_audio": holds, "on_error": "trip", "debounce_text_length": 1_000}}
    async with LoopbackRealtimeServer(["the secret word", "Something else."]) as server:
        session = await runner(agent(output_guardrails=[broken]), **config).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("tell me")
            await reader.until("guardrail_tripped")
            first = next(item for item in session.history if getattr(item, "role", "") == "assistant")
            await reader.until("agent_end", 2)
            await reader.until("audio", where=lambda event: event.item_id != first.item_id)
            heard = [one for one in reader.of("audio") if one.item_id == first.item_id]
            assert bool(heard) is not holds


async def test_an_agent_used_as_a_tool_asks_its_own_questions():
    """E5, E11: the question of the inner agent is the caller's to see, and its decision reaches it."""
    from standfast.testing import ScriptedModel, assistant_message, function_call

    ran: list[str] = []

    @function_tool(needs_approval=True)
    async def transfer(amount: int) -> str:
        ran.append(f"transferred {amount}")
        return f"transferred {amount}"

    asks = function_call("transfer", {"amount": 8}, call_id="inner-1")
    model = ScriptedModel([[asks], [assistant_message("It is done.")]])
    tool = Agent(name="inner", model=model, tools=[transfer]).as_tool("banker", "Ask the banker.")
    async with LoopbackRealtimeServer([call("banker", {"input": "transfer eight"}), "Done."]) as server:
        session = await runner(agent(tool)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("transfer eight")
            asked = await reader.until("tool_approval_required")
            assert (asked.call_id, asked.tool.name) == ("inner-1", "transfer")
            assert [one.call_id for one in session.pending_approvals] == ["inner-1"]
            assert not ran
            await session.approve_tool_call("inner-1")
            end = await reader.until("tool_end")
            assert end.output == "It is done."
            await reader.until("agent_end", 2)
    assert ran == ["transferred 8"]
