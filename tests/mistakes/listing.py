"""A pytest plugin for `tools/mutants.py`: lists the clauses of collected tests, and how those that run ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.clauses import clauses_of
from tests.helpers.servers import KINDS
from tests.mistakes.registry import NOT_PLANTED


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the two files."""
    parser.addoption("--clauses-to", metavar="PATH", help="write the clauses of every collected test there, as JSON")
    parser.addoption("--outcomes-to", metavar="PATH", help="append the outcome of every test there, a JSON line each")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the tests that are left after selection, each with its clauses and the servers that it needs."""
    path = session.config.getoption("--clauses-to")
    if path:
        found = {item.nodeid: _described(item) for item in session.items}
        Path(path).write_text(json.dumps(found, indent=0), encoding="utf-8")


def _described(item: pytest.Item) -> dict[str, Any]:
    needs = [kind for kind in KINDS if item.get_closest_marker(kind)]
    check = next((marker.kwargs["check"] for marker in item.iter_markers("clause") if "check" in marker.kwargs), "")
    return {"clauses": sorted(clauses_of(item)), "needs": needs, "check": check}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Append how the test ended and how long it took, at once: a run that is cut off has told what it knew."""
    report: pytest.TestReport = yield
    path = item.config.getoption("--outcomes-to")
    if path and (report.when == "call" or report.failed):
        line = {"test": item.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2)}
        if report.failed:
            text = str(report.longrepr)
            # A hang may be the machine's, and a test that plants a mistake itself meets the one that is there already.
            line |= {
                "says_nothing": "Timeout (>" in text or NOT_PLANTED in text,
                "seen": text.strip().splitlines()[-1][:200] if text else "",
            }
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report
