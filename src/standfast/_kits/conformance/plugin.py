"""The pytest plugin: options, the `clause` marker, and the scorecard at the end.

Every test may enter the scorecard, also one outside a suite:

    @pytest.mark.clause("C3", backend="SQLite")
    def test_a_completed_turn_is_one_append(): ...

Under pytest-xdist each worker sends its results to the controller, which prints and writes the whole.

Every pytest of an environment with standfast loads this, so it imports nothing of the kit before a test uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from standfast._kits.conformance.scorecard import Scorecard

OURS = "standfast"
"""The column of tests that name no backend."""

_card = pytest.StashKey["Scorecard"]()
_declared = pytest.StashKey[list[object]]()  # what suites said about themselves, each once


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the kit."""
    group = parser.getgroup("conformance", "conformance of session stores")
    group.addoption(
        "--conformance-rounds",
        type=int,
        default=25,
        metavar="N",
        help="how many processes each crash check kills inside a write (default: %(default)s)",
    )
    group.addoption(
        "--conformance-examples",
        type=int,
        default=30,
        metavar="N",
        help="how many examples each generated check makes (default: %(default)s)",
    )
    group.addoption(
        "--conformance-objects",
        type=int,
        default=10_000,
        metavar="N",
        help="how many session objects are opened to see what they hold (default: %(default)s)",
    )
    group.addoption(
        "--conformance-report",
        action="append",
        default=[],
        metavar="PATH",
        help="write the scorecard there: Markdown (.md), JSON (.json), both for another ending; may be repeated",
    )
    parser.getgroup("standfast", "programs written for the OpenAI Agents SDK").addoption(
        "--as-agents",
        action="store_true",
        help="make `import agents` give standfast (install_as_agents), before any conftest.py is imported",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Make `import agents` give standfast before a conftest.py or a test imports it."""
    if early_config.known_args_namespace.as_agents:
        from standfast import CallerError, install_as_agents

        try:
            install_as_agents()
        except CallerError as error:  # another plugin was faster
            raise pytest.UsageError(f"--as-agents: {error}") from error


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.stash[_declared] = []
    config.addinivalue_line(
        "markers",
        "clause(*ids, backend=...): this test proves these clauses of the contract, or sentences of them, for that "
        "backend; its outcome enters the scorecard",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Record a suite's declarations about clauses without a test."""
    described = getattr(getattr(item, "cls", None), "conformance", None)
    if described is not None and described not in item.config.stash[_declared]:
        item.config.stash[_declared].append(described)
        described.declare(_card_of(item.config))
    for marker in item.iter_markers("clause"):
        from standfast._kits.contract.clauses import clause_with

        for clause_id in marker.args:
            clause_with(clause_id)


def _card_of(config: pytest.Config) -> Scorecard:
    """Return the scorecard of this test run, created at its first use."""
    if _card not in config.stash:
        from standfast._kits.conformance.scorecard import Scorecard

        config.stash[_card] = Scorecard()
    return config.stash[_card]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the outcome of a test that proves clauses."""
    report = yield
    if report.when == "call" or (report.when == "setup" and report.failed):
        for marker in item.iter_markers("clause"):
            from standfast._kits.contract.clauses import clause_with

            for clause_id in dict.fromkeys(clause_with(sentence).id for sentence in marker.args):
                _enter(item, clause_id, marker.kwargs, report, call)
    return report


def _enter(
    item: pytest.Item, clause_id: str, named: Mapping[str, Any], report: pytest.TestReport, call: pytest.CallInfo[None]
) -> None:
    from standfast._kits.conformance.results import BROKEN, KEPT, Result

    if report.outcome == "skipped":
        return
    check = named.get("check") or getattr(item, "originalname", item.name).removeprefix("test_")
    detail = "" if report.outcome == "passed" else _describe_failure(call)
    result = Result(clause_id, check, KEPT if report.outcome == "passed" else BROKEN, detail)
    _card_of(item.config).record(_backend(item, named), result)


def _backend(item: pytest.Item, named: Mapping[str, Any]) -> str:
    """The column: what the marker says, else the test's parameter `backend`, else our own."""
    if "backend" in named:
        return str(named["backend"])
    callspec = getattr(item, "callspec", None)
    given = None if callspec is None else callspec.params.get("backend")
    return given if isinstance(given, str) else getattr(given, "name", None) or OURS


def _describe_failure(call: pytest.CallInfo[None]) -> str:
    from standfast._kits.conformance.registry import ClauseBroken

    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, ClauseBroken):
        return error.seen
    return f"{type(error).__name__}: {error}".splitlines()[0] if error is not None else "the test failed"


# --- the end --------------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the results from a worker of xdist; else write the reports."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        if _card in config.stash:
            output["conformance"] = config.stash[_card].data()
        return
    for path in config.getoption("conformance_report"):
        write(_card_of(config), Path(path))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merge a worker's results in the controller of xdist."""
    if known := getattr(node, "workeroutput", {}).get("conformance"):
        _card_of(node.config).merge(known)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the scorecard."""
    card = config.stash.get(_card, None)
    if card:
        terminalreporter.section("contract")
        for line in card.lines():
            terminalreporter.write_line(line)


def pytest_unconfigure() -> None:
    """End the fork server of child processes."""
    if "standfast._kits.conformance.processes" in sys.modules:
        from standfast._kits.conformance.processes import end

        end()


def write(card: Scorecard, path: Path) -> list[Path]:
    """Write the scorecard as the path's ending says, or as both; returns what was written."""
    kinds = {".md": card.markdown, ".json": card.json}
    paths = [path] if path.suffix in kinds else [path.with_name(path.name + suffix) for suffix in kinds]
    for each in paths:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(kinds[each.suffix](), encoding="utf-8")
    return paths
