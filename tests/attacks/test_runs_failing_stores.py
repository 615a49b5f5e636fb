"""Stores that fail at the worst moment: no result is lost, no tool runs twice, and a run can be read again."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemoryRunStore, RunConfig, Runner, SettingTypeError, function_tool
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call
from tests.helpers.runs_apart import KeepsNoRuns


class Unreliable:
    """A run store that fails to save what has the given status, before it has or after."""

    def __init__(self, inner: Any, status: str, *, after: bool) -> None:
        self._inner, self._status, self._after = inner, status, after

    async def load_run(self, run_id: str) -> Any:
        return await self._inner.load_run(run_id)

    async def save_run(self, run_id: str, **named: Any) -> int:
        failing = named["status"] == self._status
        if failing and not self._after:
            raise OSError("no space left")
        revision: int = await self._inner.save_run(run_id, **named)
        if failing:
            raise OSError("the answer was lost")
        return revision

    async def list_runs(self, **named: Any) -> Any:
        return await self._inner.list_runs(**named)

    async def delete_run(self, run_id: str) -> bool:
        return bool(await self._inner.delete_run(run_id))

    async def prune_runs(self, **named: Any) -> int:
        return int(await self._inner.prune_runs(**named))


def agent(ran: list[str]) -> Agent[Any]:
    @function_tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    model = ScriptedModel([[function_call("act", {}, call_id="c1")], [assistant_message("done")]])
    return Agent(name="A", model=model, tools=[act])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("with_session", [False, True], ids=["no session", "session"])
async def test_a_run_whose_history_is_stored_gives_its_result_though_its_end_was_not_saved(
    after: bool, with_session: bool
) -> None:
    """There is nothing left to resume, so an error would only take the answer from whoever paid for it."""
    ran: list[str] = []
    session = KeepsNoRuns("s")
    store = Unreliable(InMemoryRunStore(), "done", after=after)
    result = await Runner.run(
        agent(ran), "go", session=session if with_session else None, run_config=RunConfig(run_store=store)
    )
    assert result.final_output == "done"
    assert ran == ["act"]
    assert len(await session.get_items()) == (4 if with_session else 0)


async def test_a_store_that_fails_while_a_failed_run_is_closed_does_not_hide_why_it_failed() -> None:
    class Full(Unreliable):
        is_full = False

        async def save_run(self, run_id: str, **named: Any) -> int:
            if self.is_full:
                raise OSError("no space left")
            return await super().save_run(run_id, **named)

    store = Full(InMemoryRunStore(), "none", after=False)

    async def fail(call: Any) -> Any:
        store.is_full = True
        raise ZeroDivisionError("the first")

    failing = agent([])
    failing.model = ScriptedModel([[function_call("act", {}, call_id="c1")], ModelStep.respond(fail)])
    with pytest.raises(ZeroDivisionError, match="the first") as ended:
        await Runner.run(failing, "go", session=KeepsNoRuns("s"), run_config=RunConfig(run_store=store))
    assert any("no space left" in note for note in ended.value.__notes__)


@pytest.mark.parametrize("odd", [1.5, True, "3"])
async def test_a_limit_of_turns_that_no_saved_run_can_hold_is_refused_at_once(odd: Any) -> None:
    with pytest.raises(SettingTypeError, match="max_turns"):
        await Runner.run(agent([]), "go", max_turns=odd)
    with pytest.raises(SettingTypeError, match="max_turns"):
        agent([]).as_tool("ask", "Ask.", max_turns=odd)
