"""Checks: functions that each prove a clause, registered under its id.

A check takes a `Lab` and either returns, which means that it saw the clause kept, or raises `ClauseBroken` with its
observation. `needs` are the required abilities and hooks; a backend without one of them is not accused of anything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from standfast._kits.conformance.backend import Backend
from standfast._kits.contract.clauses import CLAUSES, clause

Body = Callable[[Any], Coroutine[Any, Any, None] | None]
"""A function of a `Lab`, async or not."""


class ClauseBroken(AssertionError):
    """A clause was seen broken. `seen` says how, in words that need no debugger."""

    __module__ = "standfast.conformance"  # in a traceback, the path that it is imported from

    def __init__(self, clause_id: str, backend: str, check: str, seen: str) -> None:
        super().__init__(clause_id, backend, check, seen)
        self.clause_id, self.backend, self.check, self.seen = clause_id, backend, check, seen

    def __str__(self) -> str:
        broken = clause(self.clause_id)
        return (
            f"{self.clause_id} ({broken.title}) is broken by {self.backend}: {self.seen}\n"
            f"  promised: {broken.text}\n"
            f"  checked:  {self.check.replace('_', ' ')}"
        )


@dataclass(frozen=True, slots=True)
class Check:
    """A way to see whether a clause is kept."""

    clause_id: str
    name: str
    body: Body
    needs: tuple[str, ...]

    def missing(self, backend: Backend, abilities: frozenset[str]) -> str | None:
        """Return the reason why a backend cannot be checked, or None."""
        ability = CLAUSES[self.clause_id].ability
        wanted = self.needs if ability is None else (ability, *self.needs)
        if backend.permitted is not None:
            withheld = next((need for need in wanted if need not in backend.permitted), None)
            if withheld is not None:
                return _WITHHELD.get(withheld, f"it needs {withheld!r}, which is not done to a store that others use")
        return next((reason for need in wanted if (reason := _lack(need, backend, abilities))), None)


_WITHHELD = {
    "stall": "a store that stands still would do so for everybody on it",
    "lose_acknowledgement": "answers are lost by a proxy, which a store that others use is not put behind",
    "processes": "processes are killed in the middle of a write, which is done to a copy and not to the file itself",
    "import": "processes of their own are not let at the file itself",
    "files": "it fills the disk, or looks at files that others write",
    "bad_names": "names that must be refused would harm others if they were not",
    "inject_record": "records are damaged behind the store's back, which is not done to the file itself",
    "damage_newest": "records are damaged behind the store's back, which is not done to the file itself",
    "shift_times": "times are changed behind the store's back, which is not done to the file itself",
    "watch_durability": "it looks into connections that are made for it",
    "handed_in": "it needs a client made for it",
    "port": "a store is asked for steps by names that others may use",
    "peer": "the OpenAI Agents SDK would have to write beside it",
}
"""Reasons against a check on a shared store (`Backend.permitted`), by need."""


_FLAGS = {
    "shared": "two session objects do not share a history",
    "files": "the store has no files of its own",
    "deadlines": "no timeout_s can be set",
    "settings": "no session_settings can be given",
    "closes_when_called": "close() is a coroutine, which needs a loop",
    "names": "no names can be configured",
    "bad_names": "the backend names no options that must be refused",
}


def _lack(need: str, backend: Backend, abilities: frozenset[str]) -> str | None:
    if need in _FLAGS:
        return None if getattr(backend, need) else _FLAGS[need]
    if need == "processes":
        if not backend.persistent:
            return "the history does not outlive its process"
        need = "import"
    if need == "import":
        return None if backend.importable() else "a child process cannot import the backend's class"
    if need == "hypothesis":
        is_there = importlib.util.find_spec("hypothesis") is not None
        return None if is_there else "Hypothesis is not installed: pip install 'standfast[conformance]'"
    if need == "records":
        return None if "corrupt" in abilities or backend.can("raw_records") else "stored records cannot be looked at"
    if need == "clock times":
        return None if "times" in abilities or backend.can("stored_times") else "times cannot be read"
    if need == "port":
        return None if need in abilities else "its sessions are not made over a store of the port (`StoredSession`)"
    if need == "close":
        return None if need in abilities else "its sessions have no close()"
    if need in backend.hooks:
        return None if backend.can(need) else f"the backend has no hook {need}()"
    return None if need in abilities else f"the ability {need!r} is not declared"


CHECKS: dict[str, list[Check]] = {}
"""Clause id to its checks, in the order they were written."""


def proves(clause_id: str, *needs: str) -> Callable[[Body], Body]:
    """Register a function as a check of a clause."""
    clause(clause_id)

    def register(body: Body) -> Body:
        CHECKS.setdefault(clause_id, []).append(Check(clause_id, body.__name__, body, needs))
        return body

    return register
