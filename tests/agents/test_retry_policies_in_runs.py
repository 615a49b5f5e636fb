"""What a retry policy answers is understood or refused by the runner, never taken for yes."""

from __future__ import annotations

from typing import Any

import agents as sdk
import pytest

from standfast import Agent, ModelRetrySettings, ModelSettings, RetryDecision, UserError, retry_policies
from standfast.testing import ScriptedModel
from tests.runs.whole_runs import go, said

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


class LineDown(ConnectionError):
    pass


def asking(policy: Any) -> Agent[Any]:
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=3, policy=policy, backoff={"initial_delay": 0}))
    return Agent(name="a", model=ScriptedModel([LineDown("1"), said("answered")]), model_settings=settings)


async def later(answer: Any) -> Any:
    return answer


NO = [False, RetryDecision(retry=False), sdk.RetryDecision(retry=False)]
YES = [True, RetryDecision(retry=True), sdk.RetryDecision(retry=True, delay=0)]
NEITHER = ["no", {"retry": False}, None, 0, 1]
WAYS = [
    lambda answer: lambda context: answer,
    lambda answer: lambda context: later(answer),
    lambda answer: retry_policies.any(lambda context: answer),
]


@STREAMED
@pytest.mark.parametrize("way", WAYS, ids=["plain", "async", "inside any"])
@pytest.mark.parametrize("answer", NO, ids=repr)
async def test_no_means_no(way: Any, answer: Any, streamed: bool) -> None:
    agent = asking(way(answer))
    with pytest.raises(LineDown):
        await go(agent, "hello", streamed=streamed)
    assert len(agent.model.calls) == 1  # type: ignore[union-attr]


@STREAMED
@pytest.mark.parametrize("way", WAYS, ids=["plain", "async", "inside any"])
@pytest.mark.parametrize("answer", YES, ids=repr)
async def test_yes_means_yes(way: Any, answer: Any, streamed: bool) -> None:
    agent = asking(way(answer))
    assert (await go(agent, "hello", streamed=streamed)).final_output == "answered"
    assert len(agent.model.calls) == 2  # type: ignore[union-attr]


@STREAMED
@pytest.mark.parametrize("way", WAYS, ids=["plain", "async", "inside any"])
@pytest.mark.parametrize("answer", NEITHER, ids=repr)
async def test_anything_else_is_refused_with_a_remedy(way: Any, answer: Any, streamed: bool) -> None:
    agent = asking(way(answer))
    with pytest.raises(
        UserError, match=r"a retry policy returned (an? \w+|None)\. Return True, False or a RetryDecision"
    ):
        await go(agent, "hello", streamed=streamed)
    assert len(agent.model.calls) == 1  # type: ignore[union-attr]
