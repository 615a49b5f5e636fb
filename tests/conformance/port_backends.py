"""Stores at the port, for the kit: memory behind threads, behind a line that loses answers, and sealed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from standfast._src.base.errors import OutcomeUnknownError, StoreTimeoutError
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.rules.history import CELLS, FAMILIES
from standfast._src.sessions.storage import (
    Arrange,
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Load,
    Name,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Store,
    Tag,
)
from standfast.conformance import Backend


class PortSession(StoredSession):
    """A session over any store of the port."""

    def __init__(self, session_id: str, backend: PortBackend, **options: Any) -> None:
        super().__init__(session_id, **options)
        self._backend = backend

    def _carrier(self) -> Executor:
        return self._backend.carrier

    def _store_key(self) -> Hashable:
        return id(self._backend.carrier)

    def _another(self, new_id: str) -> Self:
        settings = self._copied_settings()
        return type(self)(new_id, self._backend, session_settings=settings, timeout_s=self.timeout_s)


class PortBackend(Backend):
    """Memory, reached through threads: what a backend on a blocking library gets."""

    name = "a store behind threads"
    closes_when_called = True
    not_applicable: Mapping[str, str] = {
        "A15": "memory has no tables or keys to name",
        "A20": "no expiry is configured here",
        "A23": "nothing in memory outlives its process",
        "B10": "no other program can open this process's memory",
    }

    @cached_property
    def memory(self) -> Stalling:
        return Stalling()

    @cached_property
    def store(self) -> Store:
        return self.around(self.memory)

    @cached_property
    def carrier(self) -> ThreadedExecutor:
        return ThreadedExecutor(lambda: self.store, loses_answers=self.store.loses_answers)

    def around(self, store: Store) -> Store:
        return store

    def setup(self) -> None:
        for made in ("memory", "store", "carrier"):
            vars(self).pop(made, None)

    def teardown(self) -> None:
        self.carrier.close(1)

    def open(self, session_id: str, **options: Any) -> PortSession:
        return PortSession(session_id, self, **options)

    def inject_record(self, session_id: str, data: bytes) -> None:
        inner = self.store.inner if isinstance(self.store, Losing) else self.store
        inner.commit([KeyUpdate(Name("session", session_id), push=[(data, Tag())], touch=True)])

    def shift_times(self, session_id: str, seconds: float) -> None:
        self.memory.shift_times(session_id, seconds)

    @contextmanager
    def stall(self) -> Iterator[None]:
        with self.memory.lock:
            yield


class Stalling(InMemoryStore):
    """Memory that a test can keep from answering, and that knows every cell a session has."""

    def commit(self, step: CommitRequest) -> Done | Refused:
        self._check_free()
        for change in step:
            for cell in change.put if change.name.kind == "session" else ():
                # Two rules that chose one name each took the other's cell for their own: all names stand in one place.
                assert cell in CELLS or cell.startswith(FAMILIES), f"rules.py does not know the cell {cell!r}"
        return super().commit(step)

    def look(self, look: ReadRequest) -> ReadAnswer:
        self._check_free()
        return super().look(look)

    def _check_free(self) -> None:
        if self.lock.locked():
            raise StoreTimeoutError("somebody else has the store", "Ask again.")


class Through:
    """A store that hands everything on."""

    loses_answers = False

    def __init__(self, store: Store) -> None:
        self.inner = store

    def look(self, look: ReadRequest) -> ReadAnswer:
        return self.inner.look(look)

    def commit(self, step: CommitRequest) -> Done | Refused:
        return self.inner.commit(step)

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        return self.inner.listing(kind, after=after, limit=limit, labels=labels)

    def count(self, kind: Kind) -> int:
        return self.inner.count(kind)


# --- lost answers ----------------------------------------------------------------------------------------------------


class Losing(Through):
    """A line that takes every commit, and loses every other answer; while `is_deaf`, all of them."""

    loses_answers = True

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_deaf = False
        self._commits = 0

    def commit(self, step: CommitRequest) -> Done | Refused:
        got = self.inner.commit(step)
        self._commits += 1
        if self.is_deaf or self._commits % 2:
            raise OutcomeUnknownError("the answer was lost", "Ask again.")
        return got


class LosingBackend(PortBackend):
    name = "a store behind a line that loses answers"

    def around(self, store: Store) -> Store:
        return Losing(store)

    @contextmanager
    def lose_acknowledgement(self) -> Iterator[None]:
        assert isinstance(self.store, Losing)
        self.store.is_deaf = True
        try:
            yield
        finally:
            self.store.is_deaf = False


# --- sealing ---------------------------------------------------------------------------------------------------------


class Sealed(Through):
    """AES-GCM below the rules: the store sees no content of a row or a cell, nor can it move one to another name."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._key = AESGCM(b"k" * 32)
        self._numbers = iter(range(1, 2**60))

    def look(self, look: ReadRequest) -> ReadAnswer:
        sight = self.inner.look(replace(look, only_data=False))
        rows = tuple([self._row(look.name, row) for row in box] for box in sight.rows)
        cells = {
            name: Cell(self._opened(look.name, name, cell.value), cell.alive) for name, cell in sight.cells.items()
        }
        data = [row.data for row in rows[0]] if look.only_data else ()
        return replace(sight, rows=rows, cells=cells, data=data)

    def commit(self, step: CommitRequest) -> Done | Refused:
        sealed = []
        for place, change in enumerate(step):
            found = self.inner.look(ReadRequest(change.name, cells=tuple(change.cells)))
            cells = {name: Cell(self._opened(change.name, name, c.value), c.alive) for name, c in found.cells.items()}
            if any((cells[n].value if n in cells else None) != value for n, value in change.cells.items()):
                return Refused(place, "cell", found.mark, cells)
            sealed.append(self._sealed_change(change, {n: c.value for n, c in found.cells.items()}))
        got = self.inner.commit(sealed)
        if isinstance(got, Refused):
            name = step[got.place].name
            cells = {n: Cell(self._opened(name, n, c.value), c.alive) for n, c in got.cells.items()}
            return replace(got, cells=cells)
        return got

    def _sealed_change(self, change: KeyUpdate, found: Mapping[str, bytes]) -> KeyUpdate:
        name = change.name
        return replace(
            change,
            cells={cell: found.get(cell) for cell in change.cells},
            back=[row._replace(data=self._sealed(name, "", row.data)) for row in change.back],
            push=[(self._sealed(name, "", data), tag) for data, tag in change.push],
            put={cell: None if v is None else self._sealed(name, cell, v) for cell, v in change.put.items()},
            arrange=None if change.arrange is None else self._sealed_arrange(name, change.arrange),
            load=None if change.load is None else self._sealed_load(name, change.load),
        )

    def _sealed_load(self, name: Name, load: Load) -> Load:
        def sealed(rows: Sequence[tuple[bytes, Tag]]) -> list[tuple[bytes, Tag]]:
            return [(self._sealed(name, "", data), tag) for data, tag in rows]

        return load._replace(live=sealed(load.live), boxes={box: sealed(rows) for box, rows in load.boxes.items()})

    def _sealed_arrange(self, name: Name, arrange: Arrange) -> Arrange:
        live: list[Range | Sequence[tuple[bytes, Tag]]] = []
        for part in arrange.live:
            if isinstance(part, Range) and part.of is None:
                live.append(part)
            elif isinstance(part, Range):
                live.append(self._taken_over(name, part))
            else:
                live.append([(self._sealed(name, "", data), tag) for data, tag in part])
        return arrange._replace(live=live)

    def _taken_over(self, name: Name, part: Range) -> list[tuple[bytes, Tag]]:
        """Rows of another name, sealed again for this one."""
        assert part.of is not None
        rows = self.inner.look(ReadRequest(part.of, rows=(Rows(box=part.box),))).rows[0]
        wanted = [row for row in rows if row.ref > (part.after or 0) and (part.upto is None or row.ref <= part.upto)]
        return [
            (
                self._sealed(name, "", self._opened(part.of, "", row.data)),
                (row.tag or Tag())._replace(replaces=part.replaces or 0),
            )
            for row in wanted
        ]

    def _row(self, name: Name, row: Row) -> Row:
        return row._replace(data=self._opened(name, "", row.data))

    def _sealed(self, name: Name, cell: str, data: bytes) -> bytes:
        nonce = next(self._numbers).to_bytes(12, "big")
        return nonce + self._key.encrypt(nonce, data, _place(name, cell))

    def _opened(self, name: Name, cell: str, data: bytes) -> bytes:
        try:
            return self._key.decrypt(data[:12], data[12:], _place(name, cell))
        except InvalidTag:
            return b"not sealed for this place"


def _place(name: Name, cell: str) -> bytes:
    return repr((*name, cell)).encode(errors="surrogatepass")


class SealedBackend(PortBackend):
    name = "a sealed store"

    def around(self, store: Store) -> Store:
        return Sealed(store)
