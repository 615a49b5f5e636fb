"""Conformance kit for session stores of any origin, with the contract and the checks of standfast's own stores.

    from standfast.conformance import Backend, suite

    class MyStore(Backend):
        name = "my store"
        def open(self, session_id, **options):
            return MySession(session_id, self.folder / "my.db", **options)

    TestMyStore = suite(MyStore())

Running pytest then makes every check of parts A, B and F, and of saved runs (C12), that the store can be asked for, and
ends with a scorecard.
`check` does the same as a function; `python -m standfast.conformance` as a command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standfast._kits.conformance.backend import Backend
    from standfast._kits.conformance.check_context import Lab, Options, batch, message
    from standfast._kits.conformance.pytest_suite import suite
    from standfast._kits.conformance.registry import ClauseBroken, proves
    from standfast._kits.conformance.results import Result
    from standfast._kits.conformance.run import check
    from standfast._kits.conformance.scorecard import Scorecard

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

# The plugin is loaded by every pytest of an environment that has standfast, whether or not it has Hypothesis, and
# whether or not the kit is used there: so nothing is imported before it is asked for.
_HOMES = {
    "backend": ("Backend",),
    "check_context": ("Lab", "Options", "batch", "message"),
    "pytest_suite": ("suite",),
    "registry": ("ClauseBroken", "proves"),
    "results": ("Result",),
    "run": ("check",),
    "scorecard": ("Scorecard",),
}
_LATER = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from standfast._src.base.extras import needed_by

        with needed_by(f"standfast.conformance.{name}"):
            found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
