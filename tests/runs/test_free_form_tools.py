"""Tools with free-form input are calls like any other: history, cancellation, crashes, saved runs (C3, C8, C15).

What a program written for the SDK sees of them is compared with the SDK in `tests/compat/programs/free_form_tools.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.children import program

from standfast import (
    Agent,
    CustomTool,
    InMemorySession,
    InvalidSettingError,
    ModelBehaviorError,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    RunConfig,
    Runner,
    SQLiteSession,
    UserError,
    function_tool,
)
from standfast._src.items.texts_for_models import model_text
from standfast.testing import ScriptedModel, assistant_message
from standfast.testing.loopback import LoopbackServer

CALL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "query", "input": "SELECT 1;"}
PROGRAM = {"type": "program", "id": "p_1", "call_id": "p1", "code": "…", "fingerprint": "f"}


def _tool(done: list[str], **settings: Any) -> CustomTool:
    async def query(ctx: Any, text: str) -> str:
        done.append(f"{ctx.idempotency_key} {text}")
        return "1 row"

    return CustomTool(name="query", description="Ask the database.", on_invoke_tool=query, **settings)


def _agent(tool: Any, *replies: Any) -> Agent[Any]:
    return Agent(name="Clerk", tools=[tool], model=ScriptedModel(replies or [[CALL], [assistant_message("One.")]]))


async def test_a_cancelled_call_is_closed_with_an_output_of_its_own_type():
    begun = asyncio.Event()

    async def wait(ctx: Any, text: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    session = InMemorySession("s")
    tool = CustomTool(name="query", description="Ask.", on_invoke_tool=wait)
    stream = Runner.run_streamed(_agent(tool, [CALL]), "How many?", session=session)
    await begun.wait()
    stream.cancel()
    async for _ in stream.stream_events():
        pass
    *_, call, output = await session.get_items()
    assert call["type"] == "custom_tool_call"
    expected = {"type": "custom_tool_call_output", "call_id": "c1", "output": model_text("not_completed")}
    assert output == expected


DYING = """
import asyncio, os, sys
from standfast import Agent, CustomTool, RunConfig, Runner, SQLiteSession
from standfast.testing import ScriptedModel

CALL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "query", "input": "SELECT 1;"}

def query(ctx, text):
    print("begun", flush=True)
    os._exit(9)

tool = CustomTool(name="query", description="Ask the database.", on_invoke_tool=query)
agent = Agent(name="Clerk", tools=[tool], model=ScriptedModel([[CALL]]))
session = SQLiteSession("s", sys.argv[1])
asyncio.run(Runner.run(agent, "How many?", session=session, run_config=RunConfig(run_id="job")))
"""


@pytest.mark.parametrize(("idempotent", "ran"), [(False, []), (True, ["job:c1 SELECT 1;"])])
async def test_what_becomes_of_a_call_whose_process_died_is_the_tools_choice(
    idempotent: bool, ran: list[str], tmp_path: Path
):
    child = program(DYING, tmp_path / "h.db")
    assert child.communicate(timeout=300)[0] == "begun\n"
    assert child.returncode == 9
    done: list[str] = []
    agent = _agent(_tool(done, idempotent=idempotent), [assistant_message("One.")])
    session = SQLiteSession("s", tmp_path / "h.db")
    result = await Runner.resume(agent, "job", session=session, takeover=True)
    output = (await session.get_items())[2]
    assert result.final_output == "One."
    assert done == ran
    assert output["type"] == "custom_tool_call_output"
    assert output["output"] == ("1 row" if idempotent else model_text("outcome_unknown"))
    await session.close()


async def test_a_run_that_is_run_again_under_its_id_is_found_done():
    session, done = InMemorySession("s"), []  # type: InMemorySession, list[str]
    config = RunConfig(run_id="job")
    first = await Runner.run(_agent(_tool(done)), "How many?", session=session, run_config=config)
    again = await Runner.run(_agent(_tool(done)), "How many?", session=session, run_config=config)
    assert [item.type for item in again.new_items] == [item.type for item in first.new_items]
    assert again.final_output == "One."
    assert done == ["job:c1 SELECT 1;"]


async def test_others_see_a_call_that_waits_with_an_output_of_its_own_type():
    session, done = InMemorySession("s"), []  # type: InMemorySession, list[str]
    agent = _agent(_tool(done, needs_approval=True))
    paused = await Runner.run(agent, "How many?", session=session)
    assert paused.interruptions
    model = ScriptedModel([[assistant_message("Somebody must agree first.")]])
    await Runner.run(Agent(name="Other", model=model), "And?", session=session)
    shown = {"type": "custom_tool_call_output", "call_id": "c1", "output": model_text("waits_for_a_person")}
    assert shown in model.calls[0].input


async def test_a_call_id_that_is_repeated_with_other_text_is_refused():
    done: list[str] = []
    agent = _agent(_tool(done), [CALL], [CALL | {"input": "DROP TABLE t;"}])
    with pytest.raises(ModelBehaviorError, match="two different calls"):
        await Runner.run(agent, "How many?")
    assert len(done) == 1


async def test_a_tool_that_was_made_up_is_answered_in_its_own_type_where_the_program_wants_that():
    agent = _agent(_tool([]), [CALL | {"name": "other"}], [assistant_message("I see.")])
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    result = await Runner.run(agent, "How many?", run_config=config)
    assert result.new_items[1].to_input_item()["type"] == "custom_tool_call_output"


@pytest.mark.parametrize("streamed", [False, True])
async def test_against_a_server_that_refuses_wrong_answers(streamed: bool):
    done: list[str] = []
    with LoopbackServer([CALL, "One."]) as server:
        async with server.client() as client:
            model = OpenAIResponsesModel("m", client)
            agent = Agent(name="Clerk", tools=[_tool(done, format={"type": "text"})], model=model)
            if streamed:
                stream = Runner.run_streamed(agent, "How many?")
                names = [event.name async for event in stream.stream_events() if event.type == "run_item_stream_event"]
                assert names == ["tool_called", "tool_output", "message_output_created"]
                output = stream.final_output
            else:
                output = (await Runner.run(agent, "How many?")).final_output
        sent = server.requests[0].body["tools"]
    assert output == "One."
    assert len(done) == 1
    assert sent == [{"type": "custom", "name": "query", "description": "Ask the database.", "format": {"type": "text"}}]


async def test_chat_completions_says_that_it_has_no_such_tools():
    with LoopbackServer(["One."]) as server:
        async with server.client() as client:
            agent = Agent(name="Clerk", tools=[_tool([])], model=OpenAIChatCompletionsModel("m", client))
            with pytest.raises(UserError, match=r"no free-form tools, and 'query' is one.*OpenAIResponsesModel"):
                await Runner.run(agent, "How many?")
        assert not server.requests


@pytest.mark.parametrize("settings", [{"on_unknown": "guess"}, {"idempotent": False, "on_unknown": "rerun"}])
def test_a_policy_that_is_none_is_refused(settings: dict[str, Any]):
    with pytest.raises(InvalidSettingError):
        _tool([], **settings)


@pytest.mark.parametrize("callers", [[], ["anybody"], "direct"])
def test_callers_that_nobody_knows_are_refused(callers: Any):
    with pytest.raises(UserError, match="names an unknown caller"):
        _tool([], allowed_callers=callers)


# --- programs --------------------------------------------------------------------------------------------------------


async def test_a_call_that_a_program_made_and_that_was_cut_is_answered_to_that_program():
    begun = asyncio.Event()

    @function_tool(allowed_callers=["programmatic"])
    async def count(what: str) -> str:
        """Count."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    caller = {"type": "program", "caller_id": "p1"}
    call = {"type": "function_call", "call_id": "c1", "name": "count", "arguments": '{"what": "a"}', "caller": caller}
    session = InMemorySession("s")
    agent = Agent(name="Planner", tools=[count, ProgrammaticToolCallingTool()], model=ScriptedModel([[PROGRAM, call]]))
    stream = Runner.run_streamed(agent, "How many?", session=session)
    await begun.wait()
    stream.cancel()
    async for _ in stream.stream_events():
        pass
    assert (await session.get_items())[-1]["caller"] == caller


async def test_a_program_of_an_earlier_run_may_go_on():
    """A conversation is one, whoever of its runs sent the program."""

    @function_tool(allowed_callers=["programmatic"])
    def count(what: str) -> str:
        """Count."""
        return "2"

    def asks(call_id: str) -> dict[str, Any]:
        caller = {"type": "program", "caller_id": "p1"}
        return {"type": "function_call", "call_id": call_id, "name": "count", "arguments": '{"what": "a"}'} | {
            "caller": caller
        }

    ended = {"type": "program_output", "id": "o_1", "call_id": "p1", "result": "4", "status": "completed"}
    session = InMemorySession("s")
    tools = [count, ProgrammaticToolCallingTool()]
    first = Agent(name="P", tools=tools, model=ScriptedModel([[PROGRAM, asks("c1")], [assistant_message("Wait.")]]))
    await Runner.run(first, "How many?", session=session)
    second = Agent(name="P", tools=tools, model=ScriptedModel([[asks("c2")], [ended, assistant_message("Four.")]]))
    result = await Runner.run(second, "And now?", session=session)
    assert result.final_output == "Four."
    assert result.new_items[2].output == "4"


@pytest.mark.parametrize(
    ("tools", "what"),
    [
        ([_tool([], allowed_callers=["programmatic"])], "may be called by programs only"),
        ([_tool([]), ProgrammaticToolCallingTool()], "none of its tools may be called by one"),
        ([ProgrammaticToolCallingTool(), ProgrammaticToolCallingTool()], "more than one"),
    ],
)
async def test_what_no_provider_would_take_is_refused_before_it_is_asked(tools: list[Any], what: str):
    with LoopbackServer(["One."]) as server:
        async with server.client() as client:
            agent = Agent(name="Clerk", tools=tools, model=OpenAIResponsesModel("m", client))
            with pytest.raises(UserError, match=what):
                await Runner.run(agent, "How many?")
        assert not server.requests


def test_an_output_type_that_is_no_object_is_refused():
    with pytest.raises(UserError, match="no strict JSON object"):
        function_tool(output_type=list[int])(_numbers)
    with pytest.raises(UserError, match="no strict JSON object"):
        function_tool(allowed_callers=["programmatic"])(_numbers)
    assert function_tool(_numbers).output_json_schema is None


def _numbers(upto: int) -> list[int]:
    """Count."""
    return list(range(upto))
