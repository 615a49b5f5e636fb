"""`standfast budgets`: what is left of a budget, and a new limit (F10)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from standfast import Agent, Budget, RunConfig, Runner, SQLiteSession, Usage
from standfast._kits.cli import entry
from standfast.testing import ModelStep, ScriptedModel, assistant_message


@pytest.fixture
def store(tmp_path: Path) -> str:
    usage = Usage(requests=1, input_tokens=900, output_tokens=100, total_tokens=1000)
    agent = Agent(name="Clerk", model=ScriptedModel([ModelStep([assistant_message("done")], usage=usage)]))
    config = RunConfig(budgets=[Budget("acme", usd=5), Budget(requests=3)], price=lambda used, model: 0.25)
    path = tmp_path / "talks.db"
    asyncio.run(Runner.run(agent, "hello", session=SQLiteSession("guest", path), run_config=config))
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *line: str, code: int = 0) -> str:
    assert entry.main(list(line)) == code
    found = capsys.readouterr()
    return found.out or found.err


def test_budgets_are_listed_with_what_is_used_and_left(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "budgets", "ls", store).splitlines() == [
        "conversation/requests/guest\talways\t-\t1\t-\t0\t0",
        "total/usd/acme\talways\t-\t$0.25\t-\t$0.00\t$0.00",
    ]


def test_a_limit_is_set_and_taken_back(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "budgets", "set", store, "total/usd/acme", "2.5")
    assert told == "budget total/usd/acme: limit $2.50, used $0.25, left $2.25\n"
    record = json.loads(said(capsys, "budgets", "ls", store, "--json").splitlines()[1])
    assert (record["schema"], record["limit"], record["left"]) == ("standfast.budget/1", "$2.50", "$2.25")
    assert "limit as programs give it" in said(capsys, "budgets", "unset", store, "total/usd/acme")


@pytest.mark.parametrize(("budget", "amount"), [("acme", "1"), ("total/usd/acme", "much"), ("day/tokens/acme", "1.5")])
def test_a_limit_without_a_meaning_is_refused(
    store: str, capsys: pytest.CaptureFixture[str], budget: str, amount: str
) -> None:
    assert "Traceback" not in said(capsys, "budgets", "set", store, budget, amount, code=2)
