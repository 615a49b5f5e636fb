"""Description of a store for the kit: how to open a session, and the faults that can be staged.

The least is a class with a name and `open`, three lines. Everything else is optional: a hook that is not overridden, or
a flag with its default, excludes the checks that need it, and the scorecard says so. For every check the kit copies the
backend and gives the copy a `folder` and a `unique` string of its own, so that each check starts with an unused store.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from standfast._kits.contract.clauses import clause
from standfast._kits.operators.store import Store, store_of


class Backend:
    """Describe a session store to the kit by overriding `name`, `open`, and whatever else applies."""

    name: str = ""
    """The column of the scorecard."""

    about: str = ""
    """Text about the store in a report: its version, for example."""

    persistent: bool = False
    """The history outlives the process, and another process that calls `open` sees it."""

    shared: bool = True
    """Two session objects opened for one id see one history."""

    files: bool = False
    """The store writes files below `folder`."""

    remote: bool = False
    """The store is reached over a network: a write that has left may be done though its caller was cancelled (A13)."""

    any_bytes: bool = True
    """A record can be any bytes. False: the store itself refuses what is no valid text, so it can never stand there."""

    deadlines: bool = True
    """`open` takes `timeout_s`."""

    settings: bool = True
    """`open` takes `session_settings`."""

    closes_when_called: bool = False
    """`close()` takes effect without an await and without a loop (A19: memory and SQLite)."""

    id_chars_max: int = 1000
    """The longest session id that this store takes. Longer ones may be refused; those up to here may not (A18)."""

    opens_before_setup: bool = False
    """`open` works before `setup` has run and without a server. Collecting a suite of such a backend starts nothing."""

    names: Mapping[str, Any] = {}
    """Options of `open` that configure other names than the default ones (A15)."""

    bad_names: tuple[Mapping[str, Any], ...] = ()
    """Options of `open` whose names must be refused (A15)."""

    not_applicable: Mapping[str, str] = {}
    """Clause id to the reason why it cannot apply to this store."""

    not_claimed: Mapping[str, str] = {}
    """Clause id to the reason why this store does not promise it (yet)."""

    permitted: frozenset[str] | None = None
    """Needs that a check may have here; None: any. For a shared store: the kit knows checks that would harm
    them, and one whose needs are not all named here is left out (`standfast.verify_store`)."""

    patience_s: float = 120
    """Seconds that a check may take before it counts as hanging."""

    folder: Path
    """An empty folder for the check at hand, given by the kit."""

    unique: str
    """A string no other check has, for stores that need a prefix rather than a folder; given by the kit."""

    hooks: ClassVar[tuple[str, ...]] = (
        "inject_record",
        "damage_newest",
        "raw_records",
        "stall",
        "lose_acknowledgement",
        "shift_times",
        "stored_times",
        "peer",
        "handed_in",
        "expiring",
        "watch_durability",
    )
    """The methods that are optional."""

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session object for an id in this backend's store.

        `options` are `session_settings` and `timeout_s`, as far as the flags above say that they are taken, and those
        of `names`. Called often: with one id for objects that share a history, with other ids, in child processes.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method open(session_id, **options)")

    def whole_store(self, *, read_only: bool = False) -> Store:
        """The whole store, as `standfast.open_store` gives it (B16, B17); by default made of sessions of `open`."""
        return store_of(self.open, self.name, read_only=read_only)

    def setup(self) -> None:
        """Prepare the store: called once per check, in the process of the check, before anything is opened."""

    def teardown(self) -> None:
        """Take the store down again, after the check has closed its sessions."""

    def child_state(self) -> dict[str, Any]:
        """Return attributes that a copy of this backend in a child process needs to reach the same store; picklable."""
        return {}

    # --- faults that can be staged ------------------------------------------------------------------------------

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Put raw bytes as one record behind the session's newest, as a faulty program would (A14)."""
        raise NotImplementedError

    def damage_newest(self, session_id: str, data: bytes) -> None:
        """Replace the content of the session's newest record by raw bytes; its writer stays known (A14, B5)."""
        raise NotImplementedError

    def raw_records(self, session_id: str) -> list[bytes]:
        """Every stored record of the session in order, valid or not, read without the session (A14)."""
        raise NotImplementedError

    def stall(self) -> AbstractContextManager[Any]:
        """While the context is entered, the store takes no write: it neither answers nor refuses (A13)."""
        raise NotImplementedError

    def lose_acknowledgement(self) -> AbstractContextManager[Any]:
        """While the context is entered, writes are taken and their answers lost (A6, A8)."""
        raise NotImplementedError

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move every stored time of the session, as if written by a wrong clock (A4)."""
        raise NotImplementedError

    def stored_times(self, session_id: str) -> tuple[datetime, datetime] | None:
        """Creation and update time, read without the session; only needed without the ability `times` (A16)."""
        raise NotImplementedError

    def peer(self, session_id: str) -> Any:
        """A session of the OpenAI Agents SDK on the same store (B10)."""
        raise NotImplementedError

    def handed_in(self, session_id: str) -> tuple[Any, Any]:
        """Return a session with a given engine, client or store, and an awaitable function that uses it (A19)."""
        raise NotImplementedError

    def expiring(self, session_id: str, seconds: int) -> Any:
        """Return a session whose history expires `seconds` after its latest change (A20)."""
        raise NotImplementedError

    def watch_durability(self) -> AbstractContextManager[list[str]]:
        """While the context is entered, collect a complaint per write acknowledged before the disk had it (A23)."""
        raise NotImplementedError

    # --- what the kit asks --------------------------------------------------------------------------------------

    def can(self, hook: str) -> bool:
        """Return whether an optional method is overridden."""
        return getattr(type(self), hook) is not getattr(Backend, hook)

    def check_description(self) -> None:
        """Refuse an unusable description before anything runs."""
        if not self.name:
            raise ValueError(f"{type(self).__name__} has no name. Set `name`: it is the column of the scorecard.")
        for clause_id, reason in {**self.not_applicable, **self.not_claimed}.items():
            clause(clause_id)
            if not reason.strip():
                raise ValueError(f"{self.name!r} leaves {clause_id} out without a reason. Give one: people read it.")

    def importable(self) -> bool:
        """Return whether a child process can import this backend's class."""
        kind = type(self)
        module = sys.modules.get(kind.__module__)
        if getattr(module, "__file__", None) is None:  # a notebook, or code that was given as text
            return False
        return getattr(module, kind.__qualname__, None) is kind
