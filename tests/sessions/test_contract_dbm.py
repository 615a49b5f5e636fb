"""The contract on `examples/dbm_backend.py`, which was written from the page for authors of backends."""

from __future__ import annotations

import fcntl
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from standfast.conformance import Backend, suite
from standfast.sessions.port import Change, Name, Tag

EXAMPLE = Path(__file__).parents[2] / "examples" / "dbm_backend.py"


def _example() -> Any:
    found = importlib.util.spec_from_file_location("dbm_backend", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["dbm_backend"] = module
    found.loader.exec_module(module)
    return module


dbm_backend = _example()


class Dbm(Backend):
    name = "DbmSession (examples)"
    persistent = True
    closes_when_called = True
    not_applicable: Mapping[str, str] = {
        "A15": "a folder has no names to configure",
        "A20": "no expiry can be configured",
        "B10": "no other program writes this layout",
    }

    def open(self, session_id: str, **options: Any) -> Any:
        return dbm_backend.DbmSession(session_id, self.folder / "store", **options)

    def inject_record(self, session_id: str, data: bytes) -> None:
        store = dbm_backend.DbmStore(str(self.folder / "store"))
        store.commit([Change(Name("session", session_id), push=[(data, Tag())], touch=True)])
        store.close()

    @contextmanager
    def stall(self) -> Iterator[None]:
        (self.folder / "store").mkdir(exist_ok=True)
        with open(self.folder / "store" / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


TestDbm = suite(Dbm())
