"""The eight failure-path phases of the seed document, and bad input, each through the public path on a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from standfast import GuardrailFunctionOutput, InMemorySession, OutputGuardrail, function_tool, output_guardrail
from standfast._kits.testing.leaks import no_leaks
from standfast._src.base.errors import ConnectionRefusedByServerError, RealtimeStateError, StandfastError, UserError
from standfast.realtime import (
    OpenAIRealtimeWebSocketModel,
    RealtimeAgent,
    RealtimeModelSendEvent,
    RealtimeModelSendRawMessage,
    RealtimeRunner,
    realtime_handoff,
)
from standfast.testing.loopback import call
from standfast.testing.realtime import Cut, Instead, LoopbackRealtimeServer, Lose, Refuse, Rejected
from tests.realtime.session.parts import CONFIG, House, answer, calling


def options(server: LoopbackRealtimeServer, **settings: Any) -> Any:
    return {"url": server.url, "api_key": "key", "initial_model_settings": settings}


# --- 1, 2: entering --------------------------------------------------------------------------------------------------


def _broken_instructions(context: Any, agent: Any) -> str:
    raise LookupError("no instructions today")


async def _broken_enabled(context: Any, agent: Any) -> bool:
    raise LookupError("is it enabled?")


@function_tool(is_enabled=_broken_enabled)
def sometimes() -> str:
    """A tool that may be there."""
    return "x"


BROKEN = [
    RealtimeAgent(name="Desk", instructions=_broken_instructions),
    RealtimeAgent(name="Desk", tools=[sometimes]),
]


@pytest.mark.parametrize("agent", BROKEN, ids=["instructions", "tools"])
async def test_what_fails_before_connecting_leaves_nothing(agent: RealtimeAgent[Any]):
    """E1: nothing that was acquired stays."""
    async with no_leaks(), LoopbackRealtimeServer() as server:
        session = await RealtimeRunner(agent, config=CONFIG).run(model_config=options(server))
        with pytest.raises(LookupError):
            await session.enter()
        assert not server.frames()
        await session.close()


@pytest.mark.parametrize("memory", [None, InMemorySession("m")], ids=["alone", "with a session"])
async def test_a_connection_that_is_refused_leaves_nothing_and_the_session_can_be_used_by_others(memory: Any):
    """E1: the lease is released too."""
    async with no_leaks(), LoopbackRealtimeServer() as server:
        server.reject(Rejected(401, "Incorrect API key provided."))
        session = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config=options(server), session=memory)
        with pytest.raises(ConnectionRefusedByServerError, match="Incorrect API key"):
            await session.enter()
        await session.close()
        other = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config=options(server), session=memory)
        async with other:
            assert other.state == "open"


async def test_settings_that_the_server_refuses_are_found_at_entry():
    """E1: the first error is raised."""
    async with no_leaks(), LoopbackRealtimeServer() as server:
        server.fault(Refuse("invalid_value", "Invalid voice."), on="session.update", direction="received")
        session = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config=options(server, voice="nobody"))
        with pytest.raises(ConnectionRefusedByServerError, match="Invalid voice"):
            await session.enter()
        await session.close()
        assert not server.connection_count or await _gone(server)


async def _gone(server: LoopbackRealtimeServer) -> bool:
    async with asyncio.timeout(30):
        while server.connection_count:
            await asyncio.sleep(0.005)
    return True


async def test_cancelling_the_entry_leaves_nothing():
    """E1: a cancelled entry releases what it acquired."""
    async with no_leaks(), LoopbackRealtimeServer() as server:
        server.fault(Lose(), on="session.updated")  # entering waits for it
        session = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config=options(server))
        entering = asyncio.create_task(session.enter())
        await server.until("session.update")
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await session.close()


# --- 3: tools and guardrails that raise ------------------------------------------------------------------------------


async def test_a_tool_that_raises_is_an_output_and_an_event():
    """E4: an exception of a background task reaches the event stream."""

    @function_tool(failure_error_function=None)
    def broken() -> str:
        """Fails."""
        raise ZeroDivisionError("on purpose")

    house = House()
    house.agent = lambda: RealtimeAgent(name="Desk", tools=[broken])  # type: ignore[method-assign]
    async with no_leaks(), LoopbackRealtimeServer([call("broken"), "I am sorry"]) as server:
        async with calling(server, house) as caller:
            await caller.type("do it")
            await caller.answered("sorry")
            assert caller.count("error") == 1
            (output,) = [item for item in server.items() if item["type"] == "function_call_output"]
            assert output["output"]


@pytest.mark.parametrize("asks", [False, True])
async def test_a_tool_that_cancels_itself_has_run_once_and_the_call_goes_on(asks: bool):
    """E4: a cancellation that nobody asked for is a failure like any other: an output and an event, and not again."""
    ran: list[int] = []

    @function_tool(failure_error_function=None, needs_approval=asks)
    async def gives_up() -> str:
        """Cancels itself, as a timeout does that leaks out of somebody's library."""
        ran.append(1)
        raise asyncio.CancelledError

    house = House()
    house.agent = lambda: RealtimeAgent(name="Desk", tools=[gives_up])  # type: ignore[method-assign]
    async with no_leaks(), LoopbackRealtimeServer([call("gives_up"), "I am sorry"]) as server:
        async with calling(server, house) as caller:
            await caller.type("do it")
            if asks:
                await caller.until(lambda: caller.count("tool_approval_required") == 1)
                await caller.session.approve_tool_call(caller.session.pending_approvals[0].call_id)
            await caller.answered("sorry")
            assert caller.count("error") == 1
    assert ran == [1]


async def test_an_output_that_cannot_be_written_down_is_a_failure_of_a_tool_that_has_run_once():
    """E4: what fails behind a tool must not be taken for a tool that has not run."""
    ran: list[int] = []

    class Sealed:
        def __str__(self) -> str:
            raise ValueError("no")

    @function_tool
    def hands_out() -> Sealed:
        """Returns something that has no words."""
        ran.append(1)
        return Sealed()

    house = House()
    house.agent = lambda: RealtimeAgent(name="Desk", tools=[hands_out])  # type: ignore[method-assign]
    async with no_leaks(), LoopbackRealtimeServer([call("hands_out"), "I am sorry"]) as server:
        async with calling(server, house) as caller:
            await caller.type("do it")
            await caller.answered("sorry")
            assert caller.count("error") == 1
    assert ran == [1]


async def test_a_handoff_whose_message_cannot_be_made_is_told_and_made_once():
    """E6: the agent stays, and whoever's code failed is not asked again."""
    asked: list[int] = []
    other: RealtimeAgent[Any] = RealtimeAgent(name="Other")

    def invoked(context: Any) -> None:
        asked.append(1)

    handoff = realtime_handoff(other, on_handoff=invoked, tool_name_override="go")
    handoff.get_transfer_message = lambda agent: str(1 / 0)  # type: ignore[method-assign]
    house = House()
    house.agent = lambda: RealtimeAgent(name="Desk", handoffs=[handoff])  # type: ignore[method-assign]
    async with no_leaks(), LoopbackRealtimeServer([call("go"), "I am sorry"]) as server:
        async with calling(server, house) as caller:
            await caller.type("let me talk to another")
            await caller.answered("sorry")
            assert caller.session.current_agent.name == "Desk"
            assert caller.count("error") == 1
    assert asked == [1]


async def test_a_guardrail_that_cancels_itself_is_skipped():
    """E7: a guardrail that raises is skipped."""
    looks: list[str] = []

    @output_guardrail
    async def gives_up(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        looks.append(str(output))
        raise asyncio.CancelledError

    house = House()
    house.agent = lambda: RealtimeAgent(name="Desk", output_guardrails=[gives_up])  # type: ignore[method-assign]
    async with no_leaks(), LoopbackRealtimeServer(["fine", "fine again"]) as server:
        async with calling(server, house) as caller:
            await caller.type("one")
            await caller.until(lambda: looks == ["fine"])
            await caller.answered("fine")
            await caller.type("two")
            await caller.until(lambda: looks == ["fine", "fine again"])
            await caller.answered("fine again")
    assert looks == ["fine", "fine again"]


async def test_a_guardrail_that_raises_is_skipped_and_the_others_still_count():
    """E7: the verdict of the others counts."""

    @output_guardrail
    def broken(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        raise ZeroDivisionError("on purpose")

    @output_guardrail
    def no_secrets(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in str(output))

    house = House()
    house.agent = lambda: RealtimeAgent(  # type: ignore[method-assign]
        name="Desk", output_guardrails=[broken, no_secrets]
    )
    async with no_leaks(), LoopbackRealtimeServer(["fine", "the secret is out", "never mind"]) as server:
        async with calling(server, house) as caller:
            await caller.type("one")
            await caller.answered("fine")
            await caller.type("two")
            await caller.until(lambda: caller.count("guardrail_tripped") == 1)
            await caller.answered("never mind")
            assert caller.count("guardrail_tripped") == 1


async def test_what_escapes_a_guardrails_task_reaches_the_event_stream():
    """E4, E7: here the guardrail that tripped has no name; the error is an event, and the call continues."""

    class Nameless(OutputGuardrail[Any]):
        def get_name(self) -> str:
            raise LookupError("no name")

    trips = Nameless(lambda *_: GuardrailFunctionOutput(output_info=None, tripwire_triggered=True))
    house = House()
    house.agent = lambda: RealtimeAgent(name="Desk", output_guardrails=[trips])  # type: ignore[method-assign]
    async with no_leaks(), LoopbackRealtimeServer(["fine"]) as server:
        async with calling(server, house) as caller:
            await caller.type("one")
            await caller.until(lambda: caller.count("error") > 0)


# --- 6: changes of agent that fail -----------------------------------------------------------------------------------


async def test_a_change_of_agent_that_the_server_refuses_leaves_the_old_one():
    """E6: a refusal leaves the old agent."""
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        async with calling(server, House()) as caller:
            server.fault(Refuse("invalid_value", "No."), on="session.update", direction="received")
            with pytest.raises(StandfastError):
                await caller.session.update_agent(RealtimeAgent(name="Other", instructions="Other."))
            assert caller.session.current_agent.name == "Desk"
            assert caller.count("handoff") == 0
            await caller.type("hello")
            await caller.answered("hello")


async def test_a_change_of_agent_that_was_cut_is_sent_again_on_the_next_connection():
    """E6: unconfirmed settings are sent again."""
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        async with calling(server, House(), InMemorySession("m")) as caller:
            server.fault(Cut(), on="session.update", direction="received")
            await caller.session.update_agent(RealtimeAgent(name="Other", instructions="Other."))
            assert caller.session.current_agent.name == "Other"
            assert server.inside(lambda: server.conversations[-1].session["instructions"]) == "Other."


# --- 7: outputs that could not be sent -------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["before", "after"])
async def test_an_output_that_was_lost_is_sent_again_and_the_tool_is_not_run_again(side: Any):
    """E10: under the same item id, on the next connection."""
    house = House()
    async with no_leaks(), LoopbackRealtimeServer([call("menu"), "There is soup", "There is soup"]) as server:
        async with calling(server, house, InMemorySession("m")) as caller:
            is_output = lambda frame: frame.type == "conversation.item.create" and "output" in frame.body["item"]  # noqa: E731
            server.fault(Cut(side=side), on=is_output, direction="received")
            await caller.type("what is there")
            await caller.answered("soup")
            assert house.done == {"menu": 1}
            outputs = [item for item in server.items() if item["type"] == "function_call_output"]
            assert [item["output"] for item in outputs] == ["soup"]


class Held(OpenAIRealtimeWebSocketModel):
    """A connection whose outputs of tools leave late: they wait until `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.holds, self.released = asyncio.Event(), asyncio.Event()

    async def send_event(self, event: RealtimeModelSendEvent) -> None:
        if isinstance(event, RealtimeModelSendRawMessage) and "output" in event.message.get("other_data", {}).get(
            "item", {}
        ):
            self.holds.set()
            await self.released.wait()
        await super().send_event(event)


async def test_an_output_that_is_being_sent_is_not_lost_while_the_model_goes_on_talking():
    """E10: frames of the server arrive while the connection is still busy with the output, and no other is missing."""
    house, model = House(), Held()
    async with no_leaks(), LoopbackRealtimeServer([[call("menu"), "Let me look. " * 20], "There is soup"]) as server:
        async with calling(server, house, model=model) as caller:
            await caller.type("what is there")
            await model.holds.wait()
            await caller.until(lambda: caller.count("agent_end") == 1)
            model.released.set()
            await caller.answered("soup")
            outputs = [item for item in server.items() if item["type"] == "function_call_output"]
            assert [item["output"] for item in outputs] == ["soup"]
            assert house.done == {"menu": 1}


# --- bad input -------------------------------------------------------------------------------------------------------


async def test_a_frame_that_is_no_json_and_one_that_nobody_knows_harm_nothing():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server, calling(server, House()) as caller:
        server.fault(Instead("{"), on="rate_limits.updated")
        await caller.type("hello")
        await caller.answered("hello")
        await caller.until(lambda: caller.count("error") == 1)
        server.fault(Instead('{"type": "response.smell"}'), on="rate_limits.updated")
        await caller.type("again")
        await caller.answered("again")
        assert caller.count("error") == 1


async def test_audio_of_odd_length_and_an_unknown_approval_are_typed_errors():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server, calling(server, House()) as caller:
        with pytest.raises(StandfastError):
            await caller.session.approve_tool_call("nobody")
        with pytest.raises((StandfastError, ValueError)):
            await caller.session.send_audio(b"\0\0\0")
        await caller.type("hello")
        await caller.answered("hello")


async def test_a_session_is_used_only_while_it_is_open():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config=options(server))
        with pytest.raises(RealtimeStateError):
            await session.send_message("too early")
        async with session:
            with pytest.raises(RealtimeStateError):
                await session.enter()
            await session.send_message("hello")
        for late in (session.send_message("x"), session.send_audio(b"\0\0"), session.interrupt()):
            with pytest.raises(RealtimeStateError):
                await late
        with pytest.raises(RealtimeStateError):
            await session.enter()


async def test_a_model_with_a_call_id_and_a_model_name_is_refused():
    async with no_leaks():
        config: Any = {"api_key": "k", "call_id": "c", "initial_model_settings": {"model_name": "m"}}
        session = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config=config)
        with pytest.raises(UserError, match="call_id"):
            await session.enter()
        await session.close()
