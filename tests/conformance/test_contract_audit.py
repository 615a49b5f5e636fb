"""The contract on `examples/audit_backend.py`, which the page for authors of backends builds."""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import StandfastError
from standfast._src.sessions.storage import KeyUpdate, Name, Tag
from standfast.conformance import Backend, Options, suite

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))
audit_backend: Any = importlib.import_module("audit_backend")


class Audit(Backend):
    name = "AuditSession (examples)"
    persistent = True
    closes_when_called = True
    not_applicable: Mapping[str, str] = {
        "A15": "a folder has no names to configure",
        "A20": "no expiry can be configured",
        "B10": "no other program writes this layout",
    }

    def open(self, session_id: str, **options: Any) -> Any:
        return audit_backend.AuditSession(session_id, self.folder / "store", **options)

    def inject_record(self, session_id: str, data: bytes) -> None:
        store = audit_backend.LogStore(audit_backend.Trail(self.folder / "store"))
        store.commit([KeyUpdate(Name("session", session_id), push=[(data, Tag())], touch=True)])
        store.close()

    @contextmanager
    def stall(self) -> Iterator[None]:
        (self.folder / "store").mkdir(exist_ok=True)
        with open(self.folder / "store" / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


TestAudit = suite(Audit(), options=Options(rounds=3, examples=10, objects=400))


def conversation(folder: Path, run: str = "run") -> None:
    async def scenario() -> None:
        session = audit_backend.AuditSession("invoice-7", folder)
        await session.append([{"role": "user", "content": "Pay 120."}], writer=run, start=0)
        await session.pop_item()
        await session.append([{"role": "user", "content": "Pay 12."}], writer=run, start=1)
        await session.clear_session()
        await session.close()

    asyncio.run(scenario())


def test_what_was_popped_and_cleared_is_still_in_the_trail(tmp_path: Path) -> None:
    conversation(tmp_path)
    told = "\n".join(audit_backend.tell(tmp_path))
    assert "Pay 120." in told
    assert "Pay 12." in told
    assert "wipe" in told


def test_files_are_only_added_to_and_go_on_in_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_backend, "FILE_BYTES_MAX", 500)
    before = b""
    for number in range(6):
        conversation(tmp_path, f"run {number}")
        files = sorted(tmp_path.glob("trail-*"))
        now = b"".join(file.read_bytes() for file in files)
        assert now.startswith(before)
        before = now
    assert len(files) > 2
    assert list(audit_backend.tell(tmp_path))


@pytest.mark.parametrize("damage", ["changed", "taken out", "put in between"])
def test_a_trail_that_was_changed_afterwards_is_noticed(damage: str, tmp_path: Path) -> None:
    conversation(tmp_path)
    trail = tmp_path / "trail-000001"
    lines = trail.read_bytes().splitlines(keepends=True)
    match damage:
        case "changed":
            lines[0] = lines[0].replace(b"120", b"999")
        case "taken out":
            del lines[1]
        case _:
            lines.insert(1, lines[0])
    trail.write_bytes(b"".join(lines))
    with pytest.raises(StandfastError, match="does not hold together"):
        list(audit_backend.tell(tmp_path))

    async def read() -> None:
        session = audit_backend.AuditSession("invoice-7", tmp_path, timeout_s=5)
        try:
            await session.get_items()
        finally:
            await session.close()

    with pytest.raises(StandfastError, match="does not hold together"):
        asyncio.run(read())


def test_a_line_that_was_torn_by_a_kill_stays_and_is_stepped_over(tmp_path: Path) -> None:
    conversation(tmp_path)
    trail = tmp_path / "trail-000001"
    whole = trail.read_bytes()
    trail.write_bytes(whole + whole.splitlines()[-1][:90])
    conversation(tmp_path, "another run")
    assert trail.read_bytes().startswith(whole)
    assert len(list(audit_backend.tell(tmp_path))) == 2 * whole.count(b"\n")
