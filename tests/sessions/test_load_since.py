"""Loading what is new of a run gives what loading all of it gives, whatever was known before (C12)."""

# ruff: noqa: E501 — a table is read by its columns

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from standfast import InMemoryRunStore, LogTail, SavedRun
from tests.helpers.stores import SERVERS, opened, place
from tests.mistakes.planting import planted
from tests.mistakes.registry import Mistake, proving

SEALED = pytest.param("sealed", marks=pytest.mark.redis)
KINDS = ["memory", "sqlite", "sqlalchemy", *SERVERS, SEALED]

# A save: for each log, how far from its end the tail starts, and how many records it brings; None: its end, without
# logs. A deletion is "gone".
Saves = list[Any]
STORY: Saves = [
    {"a": (0, 2)}, {"a": (0, 1), "b": (0, 1)}, {"a": (0, 1)}, {"a": (0, 1)}, {}, {"a": (2, 1)}, {"b": (1, 3)}, {"a": (9, 0)}, {"a": (0, 2)}, None,
    "gone", {"a": (0, 3)}, {"b": (0, 1)}, None,
]  # fmt: skip


async def states_after(store: Any, saves: Saves) -> list[SavedRun | None]:
    """The run after each of these saves, as somebody has it who looks after every second one."""
    states: list[SavedRun | None] = []
    revision, lengths, made = 0, dict[str, int](), 0
    for save in saves:
        if save == "gone":
            await store.delete_run("r")
            revision, lengths = 0, {}
        else:
            tails = {}
            for log, (back, count) in ({} if save is None else save).items():
                start = max(0, lengths.get(log, 0) - back)
                tails[log] = LogTail(start, [b'"%d"' % (made + number) for number in range(count)])
                made += count
            if save is None:
                tails = {log: LogTail(0, ()) for log in lengths}
            lengths |= {log: tail.start + len(tail.records) for log, tail in tails.items()}
            made += 1
            head, status = b'{"n":%d}' % made, "done" if save is None else "running"
            revision = await store.save_run("r", expect=revision, head=head, tails=tails, status=status, agent="a")
        states.append(await check_all(store, states))
    return states


async def check_all(store: Any, known: list[SavedRun | None]) -> SavedRun | None:
    """Whatever somebody knows, what is new gives the same as the whole; and so does what came of that."""
    now = await store.load_run("r")
    found = now
    for one in (*known[-5:], now):
        for _ in range(2):
            if one is not None:
                one = found = await store.load_run_since(one)
                assert same(found) == same(now)
    return found if len(known) % 2 else now


def same(run: SavedRun | None) -> Any:
    return (
        None
        if run is None
        else (run.run_id, run.revision, run.head, {log: list(kept) for log, kept in run.logs.items()})
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_was_known_what_is_new_makes_it_whole(kind: str, tmp_path: Path) -> None:
    session = opened(place(kind, tmp_path))
    await states_after(session.run_store(), STORY)
    await session.close()


SAVES = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("ab"), st.tuples(st.integers(0, 4), st.integers(0, 3))),
        st.sampled_from([None, "gone"]),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(SAVES)
def test_any_saves_are_read_alike(saves: Saves) -> None:
    asyncio.run(states_after(InMemoryRunStore(), saves))


async def test_one_who_is_far_behind_reads_all() -> None:
    store = InMemoryRunStore()
    await states_after(store, [{"a": (0, 1)}] * 80)


async def test_nothing_new_is_the_same_value() -> None:
    store = InMemoryRunStore()
    await states_after(store, [{"a": (0, 1)}, {"a": (0, 1)}])
    first = await store.load_run("r")
    assert first is not None
    known = await store.load_run_since(first)
    assert known is not None
    assert await store.load_run_since(known) is known


@pytest.mark.parametrize("mistake", proving("load_since"), ids=lambda mistake: mistake.id)
async def test_a_wrong_rule_is_seen(mistake: Mistake) -> None:
    with planted(mistake):
        try:
            await states_after(InMemoryRunStore(), STORY)
        except Exception:  # any failure is a notice
            return
    raise AssertionError(mistake.fault)
