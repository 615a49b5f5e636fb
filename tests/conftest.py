"""What holds for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import collected, servers, tiers
from tests.helpers.clauses import named_clauses
from tests.helpers.lingering import end_what_lingers
from tests.helpers.sdk_sessions import close_the_sdks_sessions

__all__ = ["close_the_sdks_sessions", "end_what_lingers"]  # fixtures of every test, by being imported

# Nothing that is imported or collected becomes garbage, and each look at it would cost more than the one before.
gc.disable()

# A slow machine is not a failure: no test may depend on speed. A failing example is printed so that it can be replayed
# elsewhere. In CI the examples are the same in every run, so that red means that the change is wrong; on a developer's
# machine they are new each time, and that is where new ones are found.
settings.register_profile(
    "standfast",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("standfast")
# The short tier looks at fewer examples of each property. Tests whose mistake needs more say so themselves.
settings.register_profile("short", settings.get_profile("standfast"), max_examples=25)

SHORT_SIZES = {"conformance_rounds": 3, "conformance_examples": 8, "conformance_objects": 1_000}
"""How much each check of the kit does in the short tier, unless the command line says it."""

VOICE = ("/realtime/session/", "/realtime/machine/", "/realtime/transports/")


def _enter_voice_clauses(items: list[pytest.Item]) -> None:
    """Enter tests of voice calls in the scorecard under the clauses that their docstrings name."""
    for item in items:
        if any(folder in str(item.path) for folder in VOICE):
            text = getattr(getattr(item, "function", None), "__doc__", None)
            named = sorted(clause_id for clause_id in named_clauses(text) if clause_id[0] == "E")
            if named:
                item.add_marker(pytest.mark.clause(*named, backend="calls"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        default=None,
        choices=tiers.TIERS,
        help="which tests to run: tests/tiers.toml has the table (default: all; with a test named by hand, that test)",
    )
    parser.addoption(
        "--without",
        default="",
        metavar="SERVERS",
        help="leave out the tests that need these servers, comma-separated: " + ", ".join(servers.KINDS),
    )
    parser.addoption(
        "--with",
        default="",
        metavar="SERVERS",
        help="also run the tests that need these, which take a download or minutes: " + ", ".join(servers.ON_REQUEST),
    )
    parser.addoption(
        "--worker-jobs",
        type=int,
        default=8,
        metavar="N",
        help="how many jobs three workers do on each store, and how many of them die of it (default: %(default)s)",
    )
    parser.addoption(
        "--message-lives",
        type=int,
        default=8,
        metavar="N",
        help="how many random lives of messages, and how many kills of senders and workers (default: %(default)s)",
    )
    parser.addoption(
        "--budget-kills",
        type=int,
        default=6,
        metavar="N",
        help="how many kills of processes that spend from one budget; half as many processes, 3 to 16 (default: "
        "%(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tier") == "short":
        settings.load_profile("short")
        for name, size in SHORT_SIZES.items():
            if not any(str(arg).startswith(f"--{name.replace('_', '-')}") for arg in config.invocation_params.args):
                setattr(config.option, name, size)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out whose import starts a server that only `--with` asks for: it is a download."""
    if collection_path.name == "test_contract_mariadb.py" and "mariadb" not in config.getoption("--with").split(","):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `--without` names, and what only `--with` asks for.

    A server that is missing and was not named fails its tests; none is skipped.
    """
    named = [name for name in config.getoption("--without").split(",") if name]
    unknown = set(named) - set(servers.KINDS)
    if unknown:
        raise pytest.UsageError(f"--without knows {', '.join(servers.KINDS)}, not {', '.join(sorted(unknown))}")
    asked = config.getoption("--with").split(",")
    named += [name for name in servers.ON_REQUEST if name not in asked]
    _enter_voice_clauses(items)
    collected.keep(config, items)
    tier = config.getoption("--tier")
    if tier is None:  # a test named by its own id runs, whatever its tier
        tier = "deep" if any("::" in arg for arg in config.args) else "all"
    left = [
        item
        for item in items
        if any(item.get_closest_marker(name) for name in named) or not tiers.is_in(item.nodeid, tier)
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector's sight: it stays to the end anyway.

    It is more than a million objects, and each full collection, of which tests ask for hundreds, would look at them.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _end_servers() -> Iterator[None]:
    yield
    servers.stop_all()
