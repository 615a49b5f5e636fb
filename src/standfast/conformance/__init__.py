"""A test kit for session stores: anybody's, held to the contract that ours are held to.

    from standfast.conformance import Backend, suite

    class MyStore(Backend):
        name = "my store"
        def open(self, session_id, **options):
            return MySession(session_id, self.folder / "my.db", **options)

    TestMyStore = suite(MyStore())

Running pytest then makes every check of parts A and B, and of saved runs (C12), that the store can be asked for, and
ends with a scorecard.
`check` does the same as a function; `python -m standfast.conformance` as a command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from standfast.conformance.backend import Backend
from standfast.conformance.check_context import Lab, Options, batch, message
from standfast.conformance.registry import ClauseBroken, proves
from standfast.conformance.results import Result
from standfast.conformance.scorecard import Scorecard
from standfast.ground.extras import needed_by

if TYPE_CHECKING:
    from standfast.conformance.pytest_suite import suite
    from standfast.conformance.run import check

__all__ = [
    "Backend",
    "ClauseBroken",
    "Lab",
    "Options",
    "Result",
    "Scorecard",
    "batch",
    "check",
    "message",
    "proves",
    "suite",
]

# The plugin is loaded by every pytest of an environment that has standfast, whether or not it has Hypothesis: what
# needs Hypothesis is imported when it is asked for.
_LATER = {"suite": "pytest_suite", "check": "run"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        with needed_by(f"standfast.conformance.{name}"):
            return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
