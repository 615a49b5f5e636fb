"""An executor to a server answers some looks by what this process last knew: the effect is that of a look."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from standfast._kits.conformance.check_context import message
from standfast._src.base.errors import SessionConflictError
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.rules.saved_runs import RunSave
from tests.sessions.client.test_lost_answers_in_few_steps import KINDS, Network, Session, words


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_that_expired_under_a_lease_is_stored_beside_a_save(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease keeps the writer's count with the same value, so the step does not notice that it has expired (B1)."""
    session = Session(Network(InMemoryStore(ttl_s=1000)), kind)
    lease = await session.lease(ttl_s=5000, wait_s=0, renewed=False)
    save = RunSave("run", 0, b"{}", {}, "running", "agent", "talk")
    await session.record(items=[message("a")], writer="run", run=save, lease=lease)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2000)
    assert await words(session) == []
    later = RunSave("another", 0, b"{}", {}, "running", "agent", "talk")
    done = await session.record(items=[message("a")], writer="run", run=later, lease=lease)
    assert (done.revision, await words(session)) == (1, ["a"])
    session.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_costs_are_kept_with_the_time(kind: str) -> None:
    """Prices are those of that time (B15)."""
    session = Session(Network(InMemoryStore()), kind)
    cost = {"turn": 1, "usage": {"requests": 1, "input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
    before = datetime.fromtimestamp(int(time.time()) - 1, UTC)
    for number in range(2):
        await session.record(items=[message("a")], writer=f"run {number}", start=0, costs=(0, [cost]))
    after = datetime.fromtimestamp(int(time.time()) + 2, UTC)
    assert [before < run.at < after for run in await session.usage()] == [True, True]
    session.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fork_knows_how_much_was_written_before_another_process_cleared(kind: str) -> None:
    """Whoever goes on by what it knew names older digests that the clear has removed; the count stays (B1, B6)."""
    store = InMemoryStore()
    session, other = Session(Network(store), kind), Session(Network(store), kind)
    await session.append([message(f"{number}") for number in range(70)], writer="run", start=0)
    await other.clear_session()
    await session.append([message(f"{number}") for number in range(70, 140)], writer="run", start=70)
    fork: Session = await session.fork("fork")  # type: ignore[assignment]
    for one in (session, fork):
        await one.append([message("late")], writer="run", start=0)  # a repeat, of what only the count is left
        with pytest.raises(SessionConflictError):
            await one.append([message("another")], writer="run", start=70)
        await one.append([message("140")], writer="run", start=140)
        assert await words(one) == [f"{number}" for number in range(70, 141)]
    session.end()
    other.end()
