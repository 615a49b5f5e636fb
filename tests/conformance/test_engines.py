"""The kit for engines: our adapters keep G1, and three bad ones are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast import NotFoundError
from standfast._kits.conformance.engines.__main__ import main
from standfast._kits.contract.clauses import CLAUSES
from standfast.conformance.engines import CHECKS, Engine, EngineBroken, FileQueueEngine, check_engine, make_check
from tests.conformance.bad_engines import DoublingEngine, ForgettingEngine, HoardingEngine
from tests.conformance.engines import DbosKillable, Procrastinate, ProcrastinateKillable
from tests.conformance.temporal_engine import Temporal

WITHOUT_RESTART = [name for name, check in CHECKS.items() if not check.needs]


@pytest.mark.parametrize("name", WITHOUT_RESTART)
def test_the_kits_own_queue(name: str) -> None:
    """G1 on the smallest engine there is: a file."""
    make_check(FileQueueEngine(), CHECKS[name])


@pytest.mark.postgres
@pytest.mark.parametrize("name", WITHOUT_RESTART)
def test_procrastinate(name: str) -> None:
    """G1 on procrastinate."""
    make_check(Procrastinate(), CHECKS[name])


@pytest.mark.postgres
@pytest.mark.parametrize("name", WITHOUT_RESTART)
def test_dbos(name: str) -> None:
    """G1 on DBOS, on a server of its own: its leftovers would slow down other tests."""
    make_check(DbosKillable(), CHECKS[name])


@pytest.mark.postgres
@pytest.mark.restarts
@pytest.mark.parametrize("engine", [ProcrastinateKillable, DbosKillable])
def test_a_restart_of_postgres_loses_nothing(engine: type[Engine]) -> None:
    """G1e, where the engine and the store are in one server."""
    make_check(engine(), CHECKS["a_restart_of_the_engines_server_loses_nothing"])


@pytest.mark.parametrize(
    ("engine", "name", "seen"),
    [
        (ForgettingEngine, "no_worker_for_a_while_loses_nothing", "not every message was answered"),
        (DoublingEngine, "a_job_delivered_several_times_at_once_runs_once", "times"),
        (HoardingEngine, "the_log_of_a_job_does_not_grow_with_the_conversation", "bytes of a job"),
    ],
)
def test_a_bad_adapter_is_found(engine: type[Engine], name: str, seen: str) -> None:
    """G1: a check that nothing can fail is no check."""
    with pytest.raises(EngineBroken, match=seen):
        make_check(engine(), CHECKS[name])


@pytest.mark.temporal
@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.needs != "restart_store"])
def test_temporal(name: str) -> None:
    """G1 on Temporal, a restart of its server included."""
    make_check(Temporal(), CHECKS[name])


def test_every_sentence_has_a_check() -> None:
    """G1, sentence by sentence."""
    assert {check.sentence for check in CHECKS.values()} == CLAUSES["G1"].lettered.keys()


def test_an_unknown_check_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match="a_job_delivered_after_its_end"):
        check_engine(FileQueueEngine(), "no_such_check")


def test_the_command_writes_a_scorecard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, name = tmp_path / "engines.md", "a_job_delivered_after_its_end_changes_nothing"
    where = "standfast.conformance.engines:FileQueueEngine"
    assert main([where, "--check", name, "--check", "a_restart_of_the_stores_server_loses_nothing"]) == 0
    assert main([f"{Path(__file__).parent / 'bad_engines.py'}:DoublingEngine", "--check", name, "--report", str(page)])
    printed = capsys.readouterr().out
    assert "file queue: G1b kept" in printed
    assert "file queue: G1e left out" in printed
    assert "doubling: G1b broken" in printed
    row = next(line for line in page.read_text().splitlines() if name.replace("_", " ") in line)
    assert row.endswith("| ✗ |")


def test_the_page_in_the_docs_has_every_check() -> None:
    """A scorecard that lacks a check is written anew with `python -m standfast.conformance.engines`."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "engine-scorecard.md").read_text(encoding="utf-8")
    for name in CHECKS:
        assert name.replace("_", " ") in page
    assert "✗" not in page.replace("✗ broken", "")
