"""Direct checks of the storage port: refused steps, effects in their order, marks, listings.

The rules read before they write, so that a store which takes a refused step in part, or answers it wrongly, is only
noticed when two processes meet. These checks simulate such a meeting.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from standfast._kits.conformance.check_context import Lab
from standfast._kits.conformance.registry import proves
from standfast._src.sessions.storage import (
    Addition,
    Answer,
    Arrange,
    Ask,
    Done,
    KeyUpdate,
    Load,
    Name,
    Plan,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
)

if TYPE_CHECKING:
    from standfast._src.sessions.client.stored_session import StoredSession

SESSION, RUN = Name("session", "conversation"), Name("run", "r")
COUNT, OTHER, KEPT_ONE = CELLS = "w/a", "gens", "w/b"
BOX = 1


def _ask(question: Ask) -> Plan[Answer]:
    answer = yield question
    return answer


async def _apply_changes(session: StoredSession, *changes: KeyUpdate) -> Answer:
    """Return the store's answer to a step."""
    return await session.changed(partial(_ask, list(changes)))


async def _look(session: StoredSession, name: Name = SESSION, **asked: Any) -> ReadAnswer:
    found = await session.looked(partial(_ask, ReadRequest(name, **asked)))
    assert isinstance(found, ReadAnswer)
    return found


async def _rows(session: StoredSession, box: int = 0) -> list[Row]:
    return list((await _look(session, rows=(Rows(box=box),))).rows[0])


def _new(*numbers: int, writer: str = "a") -> list[tuple[bytes, Tag]]:
    return [(b'{"n":%d}' % number, Tag(writer, number)) for number in numbers]


def _numbers(rows: list[Row]) -> list[int]:
    return [int(row.data[5:-1]) for row in rows]


def _labels(status: str, session_id: str = SESSION.id) -> dict[str, str]:
    return {"status": status, "session": session_id, "agent": "A", "revision": "1"}


@proves("C12", "port")
async def a_step_of_which_a_later_condition_fails_changes_nothing_and_says_what_it_found(lab: Lab) -> None:
    session = lab.open()
    saved = KeyUpdate(RUN, cells={"head": None}, put={"head": b"one"}, labels=_labels("running"), touch=True)
    lab.expect(
        isinstance(
            await _apply_changes(session, KeyUpdate(SESSION, push=_new(1), put={COUNT: b"1"}, touch=True), saved), Done
        ),
        "a step of two names was refused though all its conditions hold",
    )
    before = await _look(session, cells=(COUNT,), rows=(Rows(),), times=True)

    turn = KeyUpdate(SESSION, push=_new(2), put={COUNT: b"2"}, touch=True)
    later = KeyUpdate(RUN, cells={"head": b"another"}, put={"head": b"two"})
    for step, place, why in (
        ([turn, later], 1, "cell"),
        ([KeyUpdate(RUN, put={"head": b"two"}), KeyUpdate(SESSION, mark="")], 1, "mark"),
        ([KeyUpdate(RUN, put={"head": b"two"}), KeyUpdate(SESSION, cells={COUNT: None})], 1, "cell"),
        ([turn, KeyUpdate(RUN, cells={"none": b"there"})], 1, "cell"),
    ):
        got = await _apply_changes(session, *step)
        if not isinstance(got, Refused):
            lab.broken("a step was done though the condition of its second change does not hold")
        lab.same((got.place, got.why), (place, why), "a refusal of a second change, by its place and reason")
        if got.why == "mark":
            lab.same(got.mark, before.mark, "a refusal, by the mark that was found")
        else:
            name, cells = step[place].name, tuple(step[place].cells)
            there = (await _look(session, name, cells=cells)).cells
            said = {cell: found.value for cell, found in got.cells.items()}
            lab.same(said, {cell: found.value for cell, found in there.items()}, "a refusal, by the cells it found")
        now = await _look(session, cells=(COUNT,), rows=(Rows(),), times=True)
        lab.same(
            (now.mark, now.cells[COUNT].value, list(now.rows[0]), now.updated),
            (before.mark, b"1", list(before.rows[0]), before.updated),
            "a step that was refused at its second change, by the session",
        )
        head = (await _look(session, RUN, cells=("head",))).cells["head"].value
        lab.same(head, b"one", "a step that was refused at its second change, by the run")


@proves("B2", "port")
async def no_mark_stands_for_two_histories(lab: Lab) -> None:
    """Check marks also when popped rows of abandoned calls are put back, one by one, between other writes."""
    session = lab.open()
    await _apply_changes(session, KeyUpdate(SESSION, push=_new(1, 2, 3, 4), touch=True))
    rows = await _rows(session)
    await _apply_changes(session, KeyUpdate(SESSION, drop=[rows[3].ref]))
    await _apply_changes(session, KeyUpdate(SESSION, push=_new(5), touch=True))
    rows = [*rows, (await _rows(session))[-1]]
    early = (await _look(session)).mark  # of 1, 2, 3, 5
    for ref in (rows[4].ref, rows[2].ref):
        await _apply_changes(session, KeyUpdate(SESSION, drop=[ref]))
    for row in (rows[4], rows[3]):
        await _apply_changes(session, KeyUpdate(SESSION, back=[row]))
    lab.same(_numbers(await _rows(session)), [1, 2, 4, 5], "rows that were dropped and put back")
    late = await _look(session, upto=early)
    lab.expect(late.mark != early, "two histories of four rows that end alike have one mark")
    lab.expect(late.upto is None, "a mark is said to hold though a row below it is another")
    got = await _apply_changes(session, KeyUpdate(SESSION, mark=early, push=_new(6), touch=True))
    lab.expect(isinstance(got, Refused), "a change was done on the mark of another history")

    kept = await _look(session, rows=(Rows(),))
    got = await _apply_changes(session, KeyUpdate(SESSION, push=_new(6), touch=True))
    behind = await _look(session, upto=kept.mark)
    lab.same(behind.upto, kept.rows[0][-1].ref, "a push, by the last row that the mark before it covers")
    got = await _apply_changes(session, KeyUpdate(SESSION, prefix=kept.mark, push=_new(7), touch=True))
    lab.expect(isinstance(got, Done), "a change on a mark that rows have come behind was refused")
    before = await _look(session)
    await _apply_changes(session, KeyUpdate(SESSION, drop=[kept.rows[0][1].ref]))
    after = await _look(session, upto=before.mark)
    lab.expect(after.mark != before.mark, "a row was taken out of the middle, and the mark is the same")
    lab.expect(after.upto is None, "a mark is said to hold though a row below it is gone")


@proves("A12", "port")
async def what_survives_a_clear_belongs_to_no_history_and_no_number_of_a_row_comes_again(lab: Lab) -> None:
    session = lab.open()
    await _apply_changes(session, KeyUpdate(SESSION, push=_new(1, 2, 3), put={COUNT: b"3", OTHER: b"[]"}, touch=True))
    rows = await _rows(session)
    edge = Range(0, None, rows[1].ref)
    await _apply_changes(
        session, KeyUpdate(SESSION, arrange=Arrange([_new(4), Range(0, rows[1].ref)], BOX, [edge]), touch=True)
    )
    highest = max(row.ref for row in [*rows, *await _rows(session)])
    before = await _look(session, times=True)
    await _apply_changes(session, KeyUpdate(SESSION, wipe=("w/",)))
    cleared = await _look(session, cells=(COUNT, OTHER), rows=(Rows(), Rows(box=BOX)), times=True)
    lab.same((cleared.mark, cleared.created), ("", None), "a clear, by the mark and the time of creation")
    lab.same([list(found) for found in cleared.rows], [[], []], "a clear, by the history and what was kept of it")
    lab.same({cell: found.value for cell, found in cleared.cells.items()}, {COUNT: b"3"}, "a clear, by the cells")
    await _apply_changes(session, KeyUpdate(SESSION, push=_new(5), touch=True))
    after = await _look(session, cells=(COUNT,), rows=(Rows(),), times=True)
    lab.expect(not after.cells[COUNT].alive, "a cell that survived a clear is said to belong to the new history")
    lab.expect(after.epoch != before.epoch, "the history after a clear is said to be the one before it")
    lab.expect(after.rows[0][0].ref > highest, "the number of a row was given again after a clear")
    got = await _apply_changes(session, KeyUpdate(SESSION, cells={COUNT: b"3"}, put={COUNT: b"4"}))
    lab.expect(isinstance(got, Done), "a condition on a cell that survived a clear does not hold")
    lab.expect((await _look(session, cells=(COUNT,))).cells[COUNT].alive, "a cell that was just put is not alive")


@proves("B3", "port")
async def the_effects_of_a_change_take_place_in_their_order(lab: Lab) -> None:
    session = lab.open()
    put = {COUNT: b"1", KEPT_ONE: b"1", OTHER: b"1"}
    await _apply_changes(
        session,
        KeyUpdate(SESSION, load=Load(_new(1, 2), [1e9, 1e9], {BOX: _new(8, 9, writer="b")}, 1e9), put=put, touch=True),
    )
    lab.same(_numbers(await _rows(session, BOX)), [8, 9], "an import, by the order of what was kept")
    lab.same((await _look(session, times=True)).created, 1e9, "an import, by the time of creation")
    first = (await _rows(session))[0]
    wanted = Arrange([Range(BOX, replaces=7), Range(0, first.ref)], BOX + 1, [Range(0, None, first.ref)], [BOX])
    await _apply_changes(
        session,
        KeyUpdate(SESSION, arrange=wanted, push=_new(3), sweep=("w/",), put={KEPT_ONE: b"2", OTHER: None}, touch=True),
    )
    rows = await _rows(session)
    lab.same(_numbers(rows), [8, 9, 2, 3], "an arrangement and a push in one change")
    replaces = [row.tag.replaces if row.tag else 0 for row in rows]
    lab.same(replaces, [7, 7, 0, 0], "an arrangement, by what rows stand in for")
    lab.same(_numbers(await _rows(session, BOX + 1)), [1], "what an arrangement kept")
    lab.same(await _rows(session, BOX), [], "what an arrangement took from and forgot")
    cells = (await _look(session, cells=CELLS)).cells
    lab.same({cell: found.value for cell, found in cells.items()}, {KEPT_ONE: b"2"}, "cells swept, put and removed")
    middle = await _look(session, rows=(Rows(before=rows[2].ref, limit=1), Rows(after=rows[0].ref, limit=2)))
    lab.same([_numbers(list(some)) for some in middle.rows], [[9], [9, 2]], "rows before one and behind one")
    await _apply_changes(session, KeyUpdate(SESSION, push=_new(10, writer="b"), touch=True))
    of_writer = await _look(session, rows=(Rows(writer="a", limit=2),))
    lab.same(_numbers(list(of_writer.rows[0])), [2, 3], "the latest two rows of one writer, behind one of another")

    fork = Name("session", "fork")
    taken = Arrange([Range(0, None, rows[1].ref, 0, SESSION)])
    await _apply_changes(
        session, KeyUpdate(fork, arrange=taken, touch=True), KeyUpdate(SESSION, prefix=(await _look(session)).mark)
    )
    copied = list((await _look(session, fork, rows=(Rows(),))).rows[0])
    told = [(number, row.tag.replaces if row.tag else 0) for number, row in zip(_numbers(copied), copied, strict=True)]
    lab.same(told, [(8, 0), (9, 0)], "rows of another name, by what they stand in for")


@proves("B9", "port")
async def a_listing_holds_what_has_all_the_labels_and_nothing_that_was_never_touched(lab: Lab) -> None:
    session = lab.open()
    for number, (status, owner) in enumerate((("paused", "s"), ("paused", "t"), ("running", "s"))):
        name, put, labels = Name("run", f"r{number}"), {"head": b"1|"}, _labels(status, owner)
        await _apply_changes(session, KeyUpdate(name, cells={"head": None}, put=put, labels=labels, touch=True))
    found, _ = await session.run_store().list_runs(status="paused", session_id="s")
    lab.same([run.run_id for run in found], ["r0"], "a listing of the paused runs of one session")
    await _apply_changes(session, KeyUpdate(SESSION, put={"lease": b"held"}))
    shown = (await session.list_sessions(limit=5)).sessions
    lab.same((len(shown), await session.count_sessions()), (0, 0), "a lease on a session that nobody has written to")


# --- additions -------------------------------------------------------------------------------------------------------


SUM = "budget/sum"


async def _add(session: StoredSession, name: Name, n: int, bound: int | None, number: int) -> Answer | None:
    """Add in a step with a cell against repeats; return None for a done step with a lost answer."""
    own = KeyUpdate(Name("run", f"of {session.session_id}"), put={SUM: b"%d" % number})
    own = msgspec.structs.replace(own, cells={SUM: b"%d" % (number - 1) if number else None})
    got = await _apply_changes(session, KeyUpdate(name, add={SUM: Addition(n, bound)}), own)
    is_repeat = isinstance(got, Refused) and got.place == 1
    if not is_repeat:
        found = await _look(session, own.name, cells=(SUM,), times=True)
        is_repeat = isinstance(got, Refused) and SUM in found.cells and found.cells[SUM].value == b"%d" % number
    return None if is_repeat else got


@proves("F10", "port")
async def an_addition_above_its_bound_refuses_the_step_and_changes_nothing(lab: Lab) -> None:
    session, name = lab.open(), Name("run", "sum")

    async def read_sum() -> bytes | None:
        cell = (await _look(session, name, cells=(SUM,), times=True)).cells.get(SUM)
        return None if cell is None else cell.value

    refused = await _add(session, name, 5, 4, 0)
    lab.expect(isinstance(refused, Refused), f"5 was added to nothing under a bound of 4: {refused}")
    lab.same(await read_sum(), None, "a cell whose addition was refused")
    for number, (n, bound, wanted) in enumerate(((4, 4, b"4"), (-1, None, b"3"), (2**52, None, b"4503599627370499"))):
        got = await _add(session, name, n, bound, number)
        lab.expect(got is None or isinstance(got, Done), f"an addition of {n} under {bound} was refused")
        lab.same(await read_sum(), wanted, f"the sum after {n} under {bound}")
    refused = await _add(session, name, 1, 2**52 + 3, 3)
    assert isinstance(refused, Refused)
    lab.same({cell: one.value for cell, one in refused.cells.items()}, {SUM: b"4503599627370499"}, "what was found")
    got = await _add(session, name, -(2**52), 2**52, 3)
    lab.expect(got is None or isinstance(got, Done), "an addition within its bound was refused")
    lab.same(await read_sum(), b"3", "the sum after all additions")


@proves("F10", "port")
async def additions_of_many_writers_never_pass_the_bound(lab: Lab) -> None:
    name, sessions = Name("run", "shared"), [lab.open(f"s{number}") for number in range(4)]

    async def add(session: StoredSession) -> int:
        done = 0
        for _ in range(8):
            got = await _add(session, name, 1, 20, done)
            done += got is None or isinstance(got, Done)
        return done

    taken = await asyncio.gather(*map(add, sessions))
    lab.same(sum(taken), 20, "the additions that were done under a bound of 20")
    cell = (await _look(sessions[0], name, cells=(SUM,), times=True)).cells[SUM]
    lab.same(cell.value, b"20", "the sum")
