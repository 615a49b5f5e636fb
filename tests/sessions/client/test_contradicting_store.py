"""A store whose conditions contradict its answers is told, and not asked for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast import InMemorySession, SQLiteSession
from standfast._src.base.errors import StoreError
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.storage import CommitRequest, Done, KeyUpdate, Refused


class AlwaysChanged(InMemoryStore):
    """Refuses every step under a condition as if somebody had just been faster."""

    def commit(self, step: CommitRequest) -> Done | Refused:
        wrong = [KeyUpdate(change.name, mark="never") for change in step]
        return super().commit(wrong)


@pytest.mark.parametrize(
    "write",
    [
        lambda session: session.pop_item(),
        lambda session: session.append([{"n": 1}], writer="w", start=0),
        lambda session: session.fork("t"),
    ],
    ids=["pop_item", "append", "fork"],
)
async def test_it_is_refused_with_a_remedy_instead_of_being_asked_for_ever(write: Any) -> None:
    honest = InMemoryStore()
    await InMemorySession("s", store=honest).add_items([{"n": 0}])
    store = AlwaysChanged()
    store.__dict__.update(honest.__dict__)
    with pytest.raises(StoreError, match="conformance kit"):
        await write(InMemorySession("s", store=store))


@pytest.mark.parametrize("sessions", [1, 5], ids=["alone", "in a group"])
async def test_a_file_that_contradicts_itself_is_not_asked_for_ever_either(
    sessions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone or in a group, no plan may hold the file's one writer for ever."""
    opened = [SQLiteSession(f"s{number}", tmp_path / "a.db") for number in range(sessions)]
    for session in opened:
        await session.add_items([{"n": 0}])
    with monkeypatch.context() as wrong:
        wrong.setattr(Transaction, "commit", lambda self, step: Refused(0, "mark", "", {}))
        told = await asyncio.gather(*(session.pop_item() for session in opened), return_exceptions=True)
    assert [type(error) for error in told] == [StoreError] * sessions
    for session in opened:
        assert await session.pop_item() == {"n": 0}
        await session.close()
