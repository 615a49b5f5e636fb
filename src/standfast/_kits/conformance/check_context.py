"""Context of a check: an unused store, sessions on it, and descriptions of observations."""

from __future__ import annotations

import copy
import inspect
import json
import math
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.registry import Check, ClauseBroken
from standfast._src.base.json_values import Item
from standfast._src.sessions.protocol import Session, abilities

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store


AnySession: TypeAlias = Any
"""A session of whatever class is checked. What it can do besides the five methods it declares, and `Lab.has` says."""


@dataclass(frozen=True, slots=True)
class Options:
    """Amount of work: kill rounds, generated examples (the same each time if `repeatable`), session objects.

    `soon_s` is the time limit of quick operations. `shrink=False` reports a generated history that breaks a clause as
    found, however long: enough for a caller that only asks whether there is one.
    """

    rounds: int = 25
    examples: int = 30
    objects: int = 10_000
    repeatable: bool = False
    soon_s: float = 15
    shrink: bool = True


@contextmanager
def fresh(backend: Backend, *, prepare: bool = True) -> Iterator[Backend]:
    """Yield a copy of the backend with an empty store; `prepare=False` leaves out `setup` and `teardown`."""
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        live = copy.copy(backend)
        live.folder, live.unique = Path(folder), f"c{uuid.uuid4().hex[:12]}"
        if not prepare:
            yield live
            return
        live.setup()
        try:
            yield live
        finally:
            live.teardown()


class Lab:
    """A running check on a store."""

    def __init__(self, backend: Backend, check: Check, options: Options) -> None:
        self.backend, self.check, self.options = backend, check, options
        self._opened: list[Any] = []

    # --- sessions -------------------------------------------------------------------------------------------------

    def open(self, session_id: str = "conversation", **options: Any) -> AnySession:
        """Open a session, closed at the end of the check."""
        session = self.backend.open(session_id, **options)
        self._opened.append(session)
        return session

    def open_impatient(self, session_id: str = "conversation") -> AnySession:
        """Open a session with a timeout of a few seconds, if configurable: for a permanent fault."""
        return self.open(session_id, **({"timeout_s": 5.0} if self.backend.deadlines else {}))

    def keep(self, session: object) -> None:
        """Register a session for closing at the end of the check."""
        self._opened.append(session)

    def store(self, *, read_only: bool = False) -> Store:
        """The whole store; closed when the check is over."""
        store = self.backend.whole_store(read_only=read_only)
        self._opened.append(store)
        return store

    def another(self, session: AnySession) -> AnySession:
        """Open a second object for the same history, if the store shares histories; else return the session itself."""
        return self.open(session.session_id) if self.backend.shared else session

    def has(self, session: object, *names: str) -> bool:
        """Return whether a session declares all these abilities."""
        return set(names) <= abilities(session)

    async def close(self) -> None:
        """Close all opened sessions."""
        while self._opened:
            await close(self._opened.pop())

    @asynccontextmanager
    async def elsewhere(self) -> AsyncIterator[Lab]:
        """Yield a lab on another empty store, for checks that need many."""
        with fresh(self.backend) as live:
            lab = Lab(live, self.check, self.options)
            try:
                yield lab
            finally:
                await lab.close()

    # --- what was seen ----------------------------------------------------------------------------------------------

    def broken(self, seen: str) -> NoReturn:
        """Raise ClauseBroken with a description of the observation."""
        raise ClauseBroken(self.check.clause_id, self.backend.name, self.check.name, seen)

    def expect(self, kept: bool, seen: str) -> None:
        """Raise ClauseBroken with the observation unless the condition holds."""
        if not kept:
            self.broken(seen)

    def same(self, seen: object, wanted: object, after: str) -> None:
        """Raise ClauseBroken with the difference, unless both values are equal."""
        if seen != wanted:
            self.broken(f"after {after}: {difference(seen, wanted)}")

    def same_exactly(self, seen: object, wanted: object, after: str) -> None:
        """Raise ClauseBroken unless both values are equal, key order and the kind of each number included (A17)."""
        self.same(seen, wanted, after)
        self.expect(
            exact(seen) == exact(wanted),
            f"after {after}: key order or number kind changed: saw {short(exact(seen))}, wanted {short(exact(wanted))}",
        )

    async def holds(self, session: Session, wanted: Sequence[Item], after: str) -> None:
        """Raise ClauseBroken unless the session's whole history equals `wanted`."""
        self.same(await session.get_items(), list(wanted), after)

    async def stays_flat(
        self, small: Callable[[], Awaitable[Any]], large: Callable[[], Awaitable[Any]], factor: int, what: str
    ) -> None:
        """Fail the check if `large` never costs less than `factor` times what `small` does.

        In turns and the quickest of each, until it holds: what else the machine does lengthens some of the rounds, and
        never makes one quick that reads everything. Not after the first rounds: they may be long for `small` alone.
        """
        quickest = [math.inf, math.inf]
        for number in range(60):
            for place, look in enumerate((small, large)):
                began = time.perf_counter()
                await look()
                quickest[place] = min(quickest[place], time.perf_counter() - began)
            if number >= 4 and quickest[1] < factor * quickest[0] + 0.002:
                return
        self.broken(f"{what}: {quickest[0] * 1e3:.2f} ms and {quickest[1] * 1e3:.2f} ms")

    async def refuses(self, doing: Awaitable[Any], what: str, *kinds: type[BaseException]) -> BaseException:
        """Raise ClauseBroken unless the awaitable raises, one of `kinds` if any are given; return the error."""
        try:
            outcome = await doing
        except Exception as error:
            if kinds and not isinstance(error, kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                self.broken(f"{what} raised {type(error).__name__} ({error}), not {names}")
            return error
        self.broken(f"{what} was accepted and gave {short(outcome)}")


async def close(session: object) -> None:
    """Close a session with a missing, a plain or an async close method."""
    method = getattr(session, "close", None)
    if method is None:
        return
    with suppress(RuntimeError):  # already closed, by the check or with its loop
        result = method()
        if inspect.isawaitable(result):
            await result


def message(text: object) -> Item:
    """A plain user message."""
    return {"role": "user", "content": str(text)}


def batch(name: str, size: int) -> list[Item]:
    """Build a batch of items that name their batch and place."""
    return [
        {"role": "user", "content": f"{name} {place} of {size}", "batch": name, "place": place, "size": size}
        for place in range(size)
    ]


def torn(items: Sequence[Item]) -> str:
    """Describe the fault of a history made of whole batches; empty without a fault."""
    place = 0
    seen: set[str] = set()
    while place < len(items):
        name, size = items[place].get("batch"), items[place].get("size", 0)
        if not size:
            return f"item {place} of {len(items)} belongs to no batch: {short(items[place])}"
        got = [(item.get("batch"), item.get("place")) for item in items[place : place + size]]
        if got != [(name, n) for n in range(size)]:
            return f"batch {name!r} of {size} is not whole at item {place} of {len(items)}: {got[:6]}"
        if name in seen:
            return f"batch {name!r} is there twice"
        seen.add(str(name))
        place += size
    return ""


def short(value: object, limit: int = 160) -> str:
    """A value in a few words."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def difference(seen: object, wanted: object) -> str:
    """Describe the difference of two values, in short."""
    if isinstance(seen, list) and isinstance(wanted, list):
        place = next(
            (n for n, (a, b) in enumerate(zip(seen, wanted, strict=False)) if a != b), min(len(seen), len(wanted))
        )
        return (
            f"{len(seen)} instead of {len(wanted)} items, first difference at {place}: "
            f"saw {short(seen[place] if place < len(seen) else 'nothing')}, "
            f"wanted {short(wanted[place] if place < len(wanted) else 'nothing')}"
        )
    return f"saw {short(seen)}, wanted {short(wanted)}"


def exact(items: object) -> str:
    """A form in which key order and the kind of a number count."""
    return json.dumps(items, ensure_ascii=True)
