"""Scratch name space in a store for its verification, distinct from all other data and from crashed verifications.

A scratch name is a fixed word, the time and a random part. A verification writes below its name only, and nothing else
is ever removed. While it runs it renews a mark in the store. A verification without a fresh mark was killed, and the
next verification removes its remains.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from standfast._kits.conformance.backend import Backend
from standfast._src.sessions.protocol import ALL_ABILITIES

PREFIX = "standfast_verify_"
_BASE = re.compile(rf"{PREFIX}[0-9]{{8}}t[0-9]{{6}}_[0-9a-f]{{8}}")

SILENT_S = 120
BEAT_S = 15
# A verification says that it lives every BEAT_S; one that was silent for SILENT_S counts as dead. Where the process
# itself can be looked at, because it is on this machine, that it has ended is known at once.

HARMLESS = ALL_ABILITIES | {
    "shared", "deadlines", "settings", "closes_when_called", "close", "names", "hypothesis", "clock times",
}  # fmt: skip
"""What a check may need on any live store: what sessions themselves can do, within a name space of their own."""


def new_name() -> str:
    """A scratch name; it is valid as a table, schema and file name."""
    return f"{PREFIX}{datetime.now(UTC):%Y%m%dt%H%M%S}_{secrets.token_hex(4)}"


def base_of(text: str) -> str | None:
    """Return the scratch name at the beginning of a name, or None: then the name is not ours."""
    found = _BASE.match(text)
    return None if found is None else found[0]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Remains of another verification in the store."""

    name: str
    is_dead: bool
    """Whether it has ended, so that this is only in the way; else it is at work right now."""


class Site:
    """A scratch name space in one store. The methods block, and raise the errors of the store's backend."""

    where: str
    """Where the checks are made, in words."""
    writes: tuple[str, ...]
    """What is written, and what stays, in sentences."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        """The store as the kit sees it."""
        self.name = ""

    def look(self) -> None:
        """Raise if the store is not there, or cannot be verified."""
        self.leftovers()

    def leftovers(self) -> list[Leftover]:
        """Return the remains of other verifications, without changing anything."""
        raise NotImplementedError

    def begin(self) -> None:
        """Take a scratch name and mark it as used in the store."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Remove everything of a scratch name."""
        raise NotImplementedError

    def end(self) -> None:
        """Remove everything of our own, and then the mark."""
        raise NotImplementedError

    def close(self) -> None:
        """Close resources opened for looking."""

    def remove_dead(self) -> tuple[list[str], list[str]]:
        """Remove the remains of killed verifications; return the removed names, and the names that could not be
        removed.
        """
        removed, left = [], []
        for one in self.leftovers():
            if one.is_dead and one.name != self.name:
                try:
                    self.remove(one.name)
                except Exception:
                    left.append(one.name)  # another user's, or in use after all: it does no harm where it is
                else:
                    removed.append(one.name)
        return removed, left


class Beat:
    """Thread that renews a mark at intervals while this process lives."""

    def __init__(self, beat: Callable[[], Any]) -> None:
        self._beat, self._over = beat, threading.Event()
        self._thread = threading.Thread(target=self._run, name="standfast-verify-beat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            with contextlib.suppress(Exception):  # a server that is away for a moment: the next one tells
                self._beat()

    def stop(self) -> None:
        """Stop; nothing is said any more when this returns."""
        self._over.set()
        self._thread.join()
