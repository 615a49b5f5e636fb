"""`Runner` calls the runner of the process, which a package may replace; types of the SDK take one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import agents.run as sdk
import pytest

from standfast import Agent, Handoff, RunConfig, Runner, StandfastError
from standfast.lifecycle import RunHooksBase
from standfast.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from standfast.testing import ScriptedModel, final, function_call
from standfast.tool import ToolContext, ToolFunction


@pytest.fixture(autouse=True)
def _the_runner_is_put_back() -> Iterator[None]:
    yield
    set_default_agent_runner(None)


def agent(*steps: Any) -> Agent[Any]:
    return Agent(name="a", model=ScriptedModel(list(steps) or [final("done")]))


class Recording(AgentRunner):
    def __init__(self) -> None:
        self.before = get_default_agent_runner()
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def run(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        self.calls.append(("run", kwargs))
        return await self.before.run(starting_agent, input, **kwargs)

    def run_sync(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        self.calls.append(("run_sync", kwargs))
        return self.before.run_sync(starting_agent, input, **kwargs)

    def run_streamed(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        self.calls.append(("run_streamed", kwargs))
        return self.before.run_streamed(starting_agent, input, **kwargs)


async def test_runs_go_through_the_runner_that_a_package_installed() -> None:
    own = Recording()
    set_default_agent_runner(own)
    assert get_default_agent_runner() is own
    config = RunConfig(workflow_name="w")
    assert (await Runner.run(agent(), "q", run_config=config, max_turns=3)).final_output == "done"
    result = Runner.run_streamed(agent(), "q", {"user": 1})
    assert [event async for event in result.stream_events()]
    assert [name for name, _ in own.calls] == ["run", "run_streamed"]
    assert own.calls[0][1]["run_config"] is config
    assert own.calls[0][1]["max_turns"] == 3
    assert own.calls[1][1]["context"] == {"user": 1}
    set_default_agent_runner(None)
    await Runner.run(agent(), "q")
    assert len(own.calls) == 2


def test_a_synchronous_run_goes_through_it_too() -> None:
    own = Recording()
    set_default_agent_runner(own)
    assert Runner.run_sync(agent(), "q").final_output == "done"
    assert [name for name, _ in own.calls] == ["run_sync"]


async def test_runs_inside_a_run_belong_to_it() -> None:
    own = Recording()
    set_default_agent_runner(own)
    inner = agent(final("in")).as_tool("ask", "Ask.")
    outer = agent([function_call("ask", {"input": "q"}, call_id="c1")], final("out")).clone(tools=[inner])
    assert (await Runner.run(outer, "q")).final_output == "out"
    assert len(own.calls) == 1


async def test_a_method_that_is_patched_is_what_runner_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """openai-guardrails and tracers patch the class."""
    seen: list[str] = []
    plain = AgentRunner.run

    async def patched(self: Any, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        seen.append(input)
        return await plain(self, starting_agent, input, **kwargs)

    monkeypatch.setattr(AgentRunner, "run", patched)
    await Runner.run(agent(), "q")
    assert seen == ["q"]


async def test_what_is_no_runner_and_what_is_no_option_is_refused() -> None:
    with pytest.raises(StandfastError, match="has no run_streamed"):
        set_default_agent_runner(type("Half", (), {"run": print, "run_sync": print})())
    with pytest.raises(TypeError, match=r"AgentRunner.run\(\) got an unexpected keyword argument 'sesion'"):
        await AgentRunner().run(agent(), "q", sesion=None)  # type: ignore[call-arg]
    with pytest.raises(RuntimeError, match="where an event loop is running"):
        Runner.run_sync(agent(), "q")


def test_it_takes_what_the_sdks_takes() -> None:
    for name in ("run", "run_sync", "run_streamed"):
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (AgentRunner, sdk.AgentRunner))
        assert list(ours.parameters) == list(theirs.parameters)


def test_types_have_the_defaults_of_the_sdk() -> None:
    assert Handoff[int] == Handoff[int, Any]
    assert RunHooksBase[int] == RunHooksBase[int, Any]
    assert ToolFunction[...]
    assert ToolContext.__name__ == "ToolContext"
    Kind = TypeVar("Kind")

    class Mine(RunHooksBase[Kind, Agent[Any]], Generic[Kind]):
        pass

    assert Mine[int]
