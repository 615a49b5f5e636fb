"""What is accepted for the SDK's sake and does nothing says so; the rest of what was ignored works."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, function_tool
from standfast._src.tools.function_tool import tool_namespace
from standfast.testing import ScriptedModel, function_call
from standfast.testing.loopback import LoopbackServer
from tests.runs.whole_runs import go, said

APIS: dict[str, tuple[Any, dict[str, Any]]] = {
    "responses": (OpenAIResponsesModel, {"frequency_penalty": 0.5, "presence_penalty": 0.5}),
    "chat": (
        OpenAIChatCompletionsModel,
        {"truncation": "auto", "response_include": ["x"], "context_management": [{"type": "x"}]},
    ),
}


@pytest.mark.parametrize("api", APIS)
async def test_a_setting_that_an_api_has_no_place_for_is_warned_about_once(
    api: str, caplog: pytest.LogCaptureFixture
) -> None:
    base, settings = APIS[api]
    # Once per process and API: another test may have been told already, but not of an API of this name.
    kind = type("Unheard", (base,), {"api_name": f"{base.api_name} of this test"})
    with LoopbackServer() as server:
        async with server.client(max_retries=0) as client:
            agent = Agent(name="a", model=kind("m", client), model_settings=ModelSettings(**settings))
            for _ in range(2):
                await go(agent, "hello")
        bodies = [call.body for call in server.model_calls]
    warned = [line for line in caplog.messages if "has no effect" in line]
    assert [any(f"ModelSettings.{name} " in line for line in warned) for name in settings] == [True] * len(settings)
    assert len(warned) == len(settings)
    assert all(not settings.keys() & body.keys() for body in bodies)


@pytest.mark.parametrize("namespace", [None, "till"])
async def test_a_decision_is_found_by_the_key_that_a_question_shows(namespace: str | None) -> None:
    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    tools = [pay] if namespace is None else tool_namespace(name=namespace, description="Money.", tools=[pay])
    call = function_call("pay", {}, call_id="c1", namespace=namespace)
    paused = await go(Agent(name="a", model=ScriptedModel([[call], said("ok")]), tools=tools), "pay")
    (question,) = paused.interruptions
    context = paused.context_wrapper
    context.reject_tool(question, rejection_message="not today")
    key = question.tool_lookup_key
    assert key is not None
    assert context.get_approval_status("another name", "c1", tool_lookup_key=key) is False
    assert context.get_rejection_message("another name", "c1", tool_lookup_key=key) == "not today"
