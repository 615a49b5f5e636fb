"""A provider that uses an id again in one conversation: what is paired is paired by place (C2)."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    RunConfig,
    Runner,
    function_tool,
)
from standfast._src.items.texts_for_models import model_text
from standfast.testing import ScriptedModel, assistant_message, final, function_call
from standfast.testing.loopback import Drop, LoopbackServer, Script, call
from tests.runs.whole_runs import go

# --- a call, in a conversation that a server keeps -------------------------------------------------------------------

SERVERS = ["conversation_id", "auto_previous_response_id"]


class Till:
    """An agent whose provider asks twice for the same payment, under one call id."""

    def __init__(self, server: LoopbackServer, client: AsyncOpenAI, owner: str, **tool: Any) -> None:
        self.paid: list[int] = []

        @function_tool(**tool)
        def pay() -> str:
            """Pay."""
            self.paid.append(1)
            return f"paid {len(self.paid)}"

        server.rule = Script([call("pay", {}, call_id="c1"), call("pay", {}, call_id="c1"), "done", "yes"])
        conversation = server.new_conversation()
        self.owner: dict[str, Any] = {owner: conversation if owner == "conversation_id" else True}
        self.config = RunConfig(run_store=InMemoryRunStore())
        self.agent = Agent(name="a", model=OpenAIResponsesModel("m", client), tools=[pay])

    async def say(self, words: str, *, streamed: bool = False) -> Any:
        return await go(self.agent, words, streamed=streamed, run_config=self.config, **self.owner)


def answers(items: list[Any]) -> list[str]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


TWICE = ["paid 1", model_text("call_repeated")]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("owner", SERVERS)
async def test_a_call_that_a_server_makes_again_is_answered_and_not_run(
    owner: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """It was taken for the first, and the server waited for its output for ever."""
    till = Till(server, client, owner)
    result = await till.say("pay", streamed=streamed)
    assert result.final_output == "done"
    assert till.paid == [1]
    assert answers(result.to_input_list()) == TWICE
    assert [answers(one.input) for one in server.model_calls] == [[], TWICE[:1], TWICE[1:]]
    kinds = [item.type for item in result.new_items]
    assert kinds.count("tool_call_item") == kinds.count("tool_call_output_item") == 2
    assert (await till.say("next")).final_output == "yes"


async def test_whoever_watches_sees_both_outputs(server: LoopbackServer, client: AsyncOpenAI) -> None:
    till = Till(server, client, "conversation_id")
    result = Runner.run_streamed(till.agent, "pay", run_config=till.config, **till.owner)
    seen = [one.item.output async for one in result.stream_events() if getattr(one, "name", "") == "tool_output"]
    assert seen == TWICE


async def test_an_approval_of_the_first_is_not_one_of_the_second(server: LoopbackServer, client: AsyncOpenAI) -> None:
    """C16: an approval is for one call."""
    till = Till(server, client, "conversation_id", needs_approval=True)
    paused = await till.say("pay")
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    result = await Runner.run(till.agent, state, run_config=till.config)
    assert (result.final_output, till.paid, result.interruptions) == ("done", [1], [])


async def test_a_lost_answer_with_the_call_made_again_is_found(server: LoopbackServer, client: AsyncOpenAI) -> None:
    """D5: the output that the request carried answers the call before it, and not the one that came back."""
    till = Till(server, client, "conversation_id")
    server.fault(Drop(committed=True), skip=1)
    result = await till.say("pay")
    assert (result.final_output, till.paid) == ("done", [1])
    assert answers(result.to_input_list()) == TWICE


# --- a program -------------------------------------------------------------------------------------------------------

BY_PROGRAM = {"caller": {"type": "program", "caller_id": "p"}}


def begun(number: int) -> dict[str, Any]:
    return {"type": "program", "call_id": "p", "id": f"p{number}", "code": "…", "fingerprint": "f"}


def ended(number: int, status: str = "completed") -> dict[str, Any]:
    return {"type": "program_output", "call_id": "p", "id": f"o{number}", "result": "r", "status": status}


def search(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"tool_search_{kind}", "call_id": "t", "id": kind, "execution": "server", **more}


def programmer(model: ScriptedModel) -> Agent[Any]:
    @function_tool(allowed_callers=["direct", "programmatic"])
    def look() -> str:
        """Look."""
        return "seen"

    return Agent(name="a", model=model, tools=[look, ProgrammaticToolCallingTool()])


async def test_what_a_program_made_is_sent_where_its_id_is_used_again() -> None:
    """The first was forgotten when a second of its id began behind a call of it, and the call was left out."""
    made = [begun(1), ended(1, "incomplete"), search("call", arguments={}, **BY_PROGRAM), begun(2)]
    found = [search("output", tools=[]), function_call("look", {}, call_id="c1")]
    model = ScriptedModel([made, found, final("done")])
    await Runner.run(programmer(model), "go", session=InMemorySession("s"))
    kinds = [item.get("type") for item in model.last_call.input]
    assert kinds[1:5] == ["program", "program_output", "tool_search_call", "tool_search_output"]


async def test_a_program_is_not_taken_for_an_earlier_one_of_its_id_that_has_ended() -> None:
    """The reply with its output was refused: the history was read as if both had ended with the first."""
    session = InMemorySession("s")
    await session.add_items([{"role": "user", "content": "before"}, begun(1), ended(1)])
    asks: dict[str, Any] = {**function_call("look", {}, call_id="c1").model_dump(), **BY_PROGRAM}
    model = ScriptedModel([[begun(2), asks], [ended(2), assistant_message("done")]])
    result = await Runner.run(programmer(model), "go", session=session)
    assert result.final_output == "done"
