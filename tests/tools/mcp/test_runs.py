"""A call of an MCP tool is a tool call like any other: crashes, approvals, guardrails, timeouts and failures."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from agents.mcp import MCPServerStdio as SdkStdio
from tools.mcp.helpers import HERE, WAIT_S_MAX, alive, bare, calls, children, clerk, first_line, gone, lines

from standfast import (
    Agent,
    ApprovalError,
    MCPServerError,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from standfast._kits.testing.leaks import no_leaks
from standfast.testing import ScriptedModel
from tests.runs.whole_runs import go, outputs, said


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


# --- a crash in the middle of a call ---------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tools.mcp.helpers import bare, calls, clerk
from standfast import Runner, RunConfig, SQLiteSession

async def main():
    async with bare("calm", Path({notes!r})) as server:
        session = SQLiteSession("s", {database!r})
        await Runner.run(clerk(server, calls("hang")), "go", session=session, run_config=RunConfig(run_id="job"))

asyncio.run(main())
"""


async def test_a_run_killed_in_a_call_tells_that_nobody_knows_and_does_nothing_twice(notes: Path, tmp_path: Path):
    database = str(tmp_path / "runs.db")
    code = PROGRAM.format(path=sys.path, notes=str(notes), database=database)
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await first_line(notes) == "hang job:c1"  # the key: the same in every attempt at this call
    program.kill()
    await program.wait()
    async with no_leaks(), bare("calm", notes) as server:
        session = SQLiteSession("s", database)
        agent = clerk(server, said("I cannot tell whether it was done"))
        result = await Runner.resume(agent, "job", session=session)
        stored = await session.get_items()
        await session.close()
    (told,) = outputs(result.to_input_list())
    assert "Whether it took effect is not known" in told
    assert lines(notes) == ["hang job:c1"]
    assert outputs(stored) == [told]


async def test_a_server_that_dies_in_a_call_is_told_to_the_model_and_serves_the_next_turn(notes: Path):
    async with no_leaks(), bare("calm", notes, max_retry_attempts=2, retry_backoff_seconds_base=0.0) as server:
        agent = clerk(server, calls("die"), calls("look", "c2"), said("ok"))
        result = await go(agent, "go")
    first, second = outputs(result.to_input_list())
    assert "Whether it took effect is not known; it was not repeated" in first
    assert "seen by" in str(second)
    assert [line.split()[0] for line in lines(notes)] == ["die", "look"]


async def test_without_a_failure_function_a_lost_call_ends_the_run(notes: Path):
    async with bare("calm", notes, failure_error_function=None) as server:
        with pytest.raises(MCPServerError, match="not known") as told:
            await go(clerk(server, calls("die")), "go")
    assert told.value.outcome_unknown


async def test_a_run_that_is_cancelled_gives_its_call_up(notes: Path):
    async with no_leaks(), bare("calm", notes) as server:
        running = asyncio.create_task(go(clerk(server, calls("hang")), "go"))
        await first_line(notes)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not children()


async def test_a_server_that_cannot_be_listed_ends_the_run_with_the_remedy(notes: Path):
    async with bare("listing is no list", notes) as server:
        with pytest.raises(MCPServerError, match="could not list tools"):
            await go(clerk(server, said("never")), "go")


# --- approvals -------------------------------------------------------------------------------------------------------


def only_look(context: Any, agent: Any, tool: Any) -> bool:
    return bool(tool.name == "look" and agent.name == "clerk" and context.context == "app")


async def only_look_later(context: Any, agent: Any, tool: Any) -> bool:
    return only_look(context, agent, tool)


@pytest.mark.parametrize(
    "policy",
    [
        "always",
        True,
        {"look": "always"},
        {"look": True, "die": "never"},
        {"always": {"tool_names": ["look"]}, "never": {"tool_names": ["die"]}},
        only_look,
        only_look_later,
        lambda context, agent, tool: None,  # no answer: a person is asked
    ],
)
async def test_every_form_of_require_approval_asks_a_person(policy: Any, notes: Path):
    async with bare("calm", notes, require_approval=policy) as server:
        agent = clerk(server, calls("look"), said("ok"))
        paused = await go(agent, "go", context="app")
        assert lines(notes) == []
        (question,) = paused.interruptions
        assert question.tool_origin.mcp_server_name == "office"
        state = paused.to_state()
        state.approve(question)
        result = await Runner.run(agent, state)
    assert result.final_output == "ok"
    assert [line.split()[0] for line in lines(notes)] == ["look"]


@pytest.mark.parametrize("policy", [None, "never", False, {"die": "always"}, {"never": {"tool_names": ["look"]}}])
async def test_every_form_of_it_can_ask_nobody(policy: Any, notes: Path):
    async with bare("calm", notes, require_approval=policy) as server:
        assert (await go(clerk(server, calls("look"), said("ok")), "go")).final_output == "ok"


async def test_an_approval_for_one_server_lets_no_other_run(notes: Path):
    async with bare("calm", notes, require_approval="always") as server:
        paused = await go(clerk(server, calls("look")), "go")
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    async with bare("calm", notes, name="another", require_approval="always") as other:
        with pytest.raises(ApprovalError, match=r"server:office.*server:another"):
            await Runner.run(clerk(other, said("never")), state)
    assert lines(notes) == []


# --- guardrails, timeouts, hooks -------------------------------------------------------------------------------------


async def test_a_servers_guardrails_look_at_every_call(notes: Path):
    looked: list[str] = []

    def before(data: Any) -> ToolGuardrailFunctionOutput:
        looked.append(f"before {data.context.tool_name}")
        if data.context.tool_name == "die":
            return ToolGuardrailFunctionOutput.reject_content("not that one")
        return ToolGuardrailFunctionOutput.allow()

    def after(data: Any) -> ToolGuardrailFunctionOutput:
        looked.append(f"after {data.context.tool_name}")
        return ToolGuardrailFunctionOutput.reject_content("nothing to see")

    settings = {
        "tool_input_guardrails": [ToolInputGuardrail(before)],
        "tool_output_guardrails": [ToolOutputGuardrail(after)],
    }
    async with bare("calm", notes, **settings) as server:
        result = await go(clerk(server, [*calls("die"), *calls("look", "c2")], said("ok")), "go")
    assert outputs(result.to_input_list()) == ["not that one", "nothing to see"]
    assert sorted(looked) == ["after look", "before die", "before look"]
    assert [line.split()[0] for line in lines(notes)] == ["look"]


async def test_a_call_has_no_more_time_than_the_connection_gives_it(notes: Path):
    async with bare("calm", notes, client_session_timeout_seconds=0.5, cache_tools_list=True) as server:
        result = await go(clerk(server, calls("hang"), said("ok")), "go")
    (told,) = outputs(result.to_input_list())
    assert "did not answer in time. Whether it took effect is not known" in told


# --- several servers, and the SDK's own ------------------------------------------------------------------------------


async def test_servers_with_tools_of_one_name_are_told_apart_or_refused(notes: Path):
    async with bare("calm", notes, name="one") as one, bare("calm", notes, name="two") as two:
        both = Agent(name="clerk", model=ScriptedModel([said("never")]), mcp_servers=[one, two])
        with pytest.raises(Exception, match=r"called 'look': 'one' and 'two'.*include_server_in_tool_names"):
            await go(both, "go")
        model = ScriptedModel([calls("mcp_two__look"), said("ok")])
        apart = Agent(
            name="clerk",
            model=model,
            mcp_servers=[one, two],
            mcp_config={"include_server_in_tool_names": True},
        )
        result = await go(apart, "go")
    assert {tool.name for tool in model.calls[0].tools} >= {"mcp_one__look", "mcp_two__look"}
    assert "seen by" in str(outputs(result.to_input_list()))


async def test_the_sdks_own_server_objects_work(notes: Path):
    params = {"command": sys.executable, "args": [str(HERE / "bare_server.py"), "calm"]}
    sdk = SdkStdio(
        {**params, "env": {"OFFICE_NOTES": str(notes)}},  # type: ignore[typeddict-item]
        name="office",
        client_session_timeout_seconds=WAIT_S_MAX,
        require_approval={"look": "always"},
        cache_tools_list=True,
    )
    async with sdk:
        agent = clerk(sdk, calls("look"), calls("refuse", "c2"), said("ok"))
        paused = await go(agent, "go")
        state = paused.to_state()
        state.approve(paused.interruptions[0])
        result = await Runner.run(agent, state)
    look, refused = outputs(result.to_input_list())
    assert "seen by" in str(look)
    assert "refused" in refused
    keys = [line.split()[1].partition(":")[2] for line in lines(notes)]
    assert keys == ["c1", "c2"]
    served = [int(word) for word in str(look).replace("'", " ").split() if word.isdigit()]
    assert not any(map(alive, served)) or await gone(*served)
