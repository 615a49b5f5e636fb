"""Asking a model again."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    ModelSettings,
    RetryDecision,
    RetryPolicyContext,
    Runner,
    retry_policies,
)
from agents.retry import ModelRetrySettings as SameSettings
from agents.testing import ScriptedModel, assistant_message

AT_ONCE = ModelRetryBackoffSettings(initial_delay=0.0, max_delay=0.0, multiplier=1.0, jitter=False)


class Busy(Exception):
    status_code = 503


def _agent(retry: Any, *steps: Any) -> Agent[Any]:
    return Agent(name="A", model=ScriptedModel(steps), model_settings=ModelSettings(retry=retry))


async def _run(agent: Agent[Any]) -> Any:
    try:
        result: Any = await Runner.run(agent, "Hi")
    except Exception as error:
        result = error
    return result, len(agent.model.calls)


async def example_a_model_that_recovers(folder):
    def policy(context: RetryPolicyContext) -> bool:
        return isinstance(context.error, ConnectionError)

    retry = ModelRetrySettings(max_retries=2, backoff=AT_ONCE, policy=policy)
    down = ConnectionError("down")
    result, calls = await _run(_agent(retry, down, ConnectionError("down"), [assistant_message("Hello.")]))
    usage = result.context_wrapper.usage
    return result.final_output, calls, usage.requests, SameSettings is ModelRetrySettings


async def example_a_model_that_does_not(folder):
    retry = ModelRetrySettings(max_retries=1, backoff=AT_ONCE, policy=lambda context: True)
    return await _run(_agent(retry, ConnectionError("1"), ConnectionError("2"), [assistant_message("never")]))


async def example_without_a_policy(folder):
    retry = ModelRetrySettings(max_retries=3, backoff=AT_ONCE)
    return await _run(_agent(retry, ConnectionError("1"), [assistant_message("never")]))


async def example_a_policy_that_decides(folder):
    seen: list[Any] = []

    async def policy(context: RetryPolicyContext) -> RetryDecision:
        seen.append((context.attempt, context.max_retries, context.stream, type(context.error).__name__))
        return RetryDecision(retry=context.attempt < 2, delay=0.0, reason="because")

    retry = ModelRetrySettings(max_retries=5, backoff=AT_ONCE, policy=policy)
    return await _run(_agent(retry, ValueError("1"), ValueError("2"), ValueError("3"))), seen


async def example_ready_made_policies(folder):
    policies = {
        "never": retry_policies.never(),
        "status": retry_policies.http_status([503]),
        "network": retry_policies.network_error(),
        "any": retry_policies.any(retry_policies.never(), retry_policies.http_status([503])),
        "all": retry_policies.all(retry_policies.never(), retry_policies.http_status([503])),
    }
    seen = {}
    for name, policy in policies.items():
        retry = ModelRetrySettings(max_retries=1, backoff=AT_ONCE, policy=policy)
        outcome, calls = await _run(_agent(retry, Busy("later"), [assistant_message("ok")]))
        seen[name] = (calls, isinstance(outcome, Exception))
    return seen


async def example_while_streaming(folder):
    retry = ModelRetrySettings(max_retries=1, backoff=AT_ONCE, policy=lambda context: True)
    result = Runner.run_streamed(_agent(retry, ConnectionError("1"), [assistant_message("Hello.")]), "Hi")
    async for _ in result.stream_events():
        pass
    return result.final_output


async def example_settings_of_the_run_win(folder):
    retry = ModelRetrySettings(max_retries=3, backoff=AT_ONCE, policy=lambda context: True)
    agent = _agent(retry, ConnectionError("1"), [assistant_message("never")])
    config = {"model_settings": ModelSettings(retry=ModelRetrySettings(max_retries=0))}
    try:
        await Runner.run(agent, "Hi", run_config=config)
    except ConnectionError as error:
        return error, len(agent.model.calls)
