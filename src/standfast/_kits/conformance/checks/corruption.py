"""A14: a corrupt record hides nothing, deletes nothing, and stays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from standfast._kits.conformance.check_context import AnySession, Lab, batch, short
from standfast._kits.conformance.registry import proves

CORRUPT: dict[str, bytes] = {
    "invalid JSON": b'{"role": "user", "content": "SECRET',
    "invalid UTF-8": b'{"role": "SECRET \xff\xfe"}',
    "a JSON list": b'["SECRET"]',
    "a JSON null": b"null",
    "a JSON number": b"7",
    "nothing at all": b"",
}


def _corrupt(lab: Lab) -> dict[str, bytes]:
    """Return the corrupt records that this store can hold."""
    return {kind: data for kind, data in CORRUPT.items() if lab.backend.any_bytes or kind != "invalid UTF-8"}


@proves("A14", "inject_record")
async def a_corrupt_record_hides_no_history(lab: Lab) -> None:
    for kind, data in _corrupt(lab).items():
        for where in ("tail", "middle"):
            session = lab.open(f"{kind} {where}")
            history = batch("before", 2)
            await session.add_items(history)
            lab.backend.inject_record(session.session_id, data)
            if where == "middle":
                await session.add_items(batch("after", 2))
                history = history + batch("after", 2)
            await lab.holds(session, history, f"a record of {kind} in the {where}")
            lab.same(await session.get_items(limit=2), history[-2:], f"a record of {kind} in the {where}, limit=2")
            await session.add_items(batch("last", 1))
            await lab.holds(session, history + batch("last", 1), f"writing behind a record of {kind} in the {where}")


@proves("A14", "inject_record", "records")
async def a_pop_takes_a_valid_item_and_leaves_corrupt_records(lab: Lab) -> None:
    for kind, data in _corrupt(lab).items():
        session = lab.open(f"popping {kind}")
        await session.add_items(batch("before", 3))
        lab.backend.inject_record(session.session_id, data)
        lab.same(await session.pop_item(), batch("before", 3)[-1], f"a pop with a record of {kind} at the tail")
        await lab.holds(session, batch("before", 3)[:2], f"a pop with a record of {kind} at the tail")
        await _still(lab, session, [data], f"a pop with a record of {kind} at the tail")
        await session.add_items(batch("after", 1))
        lab.same(await session.pop_item(), batch("after", 1)[0], f"a pop behind a record of {kind}")
        await session.pop_item()
        await session.pop_item()
        lab.same(await session.pop_item(), None, f"every valid item was popped, a record of {kind} being left")
        await _still(lab, session, [data], f"every valid item was popped, a record of {kind} being left")


@proves("A14", "inject_record", "corrupt")
async def corrupt_records_are_listed_oldest_first(lab: Lab) -> None:
    session = lab.open()
    other = lab.open("another conversation")
    lab.same(await session.corrupt_records(), [], "nothing was corrupt")
    for number, data in enumerate(_corrupt(lab).values()):
        await session.add_items(batch(f"turn {number}", 1))
        lab.backend.inject_record(session.session_id, data)
    await other.add_items(batch("theirs", 1))
    found = await session.corrupt_records()
    lab.same([record.data for record in found], list(_corrupt(lab).values()), "corrupt records, by corrupt_records()")
    lab.expect(len({record.record_id for record in found}) == len(found), "corrupt records share a record_id")
    lab.expect(all(record.reason for record in found), "a corrupt record has no reason")
    lab.same(await other.corrupt_records(), [], "another session has corrupt records")


@proves("A14", "inject_record", "corrupt", "replace", "fork")
async def a_replace_an_undo_and_a_fork_delete_no_corrupt_record(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 2))
    lab.backend.inject_record(session.session_id, b"{front")
    await session.add_items(batch("older", 1))
    upto = await session.head()
    lab.backend.inject_record(session.session_id, b"{tail")
    await session.add_items(batch("since", 1))
    summary = batch("summary", 1)
    await session.replace(summary, upto=upto)
    await lab.holds(session, summary + batch("since", 1), "a replace across corrupt records")
    await _still(lab, session, [b"{front", b"{tail"], "a replace across corrupt records")
    await session.fork("fork")
    await _still(lab, session, [b"{front", b"{tail"], "a fork across corrupt records")
    await session.restore((await session.generations())[0].id)
    await lab.holds(session, batch("old", 2) + batch("older", 1) + batch("since", 1), "an undo across corrupt records")
    await _still(lab, session, [b"{front", b"{tail"], "an undo across corrupt records")


@proves("A14", "inject_record")
async def a_corrupt_record_is_logged_once_and_without_its_content(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("before", 2))
    lab.backend.inject_record(session.session_id, CORRUPT["invalid JSON"])
    with _capture_log() as lines:
        await session.get_items()
        lab.expect(bool(lines), "nothing was logged about a corrupt record")
        count = len(lines)
        for reader in (session, lab.another(session)):
            await reader.get_items()
            await reader.get_items(limit=1)
        lab.expect(len(lines) == count, f"it was logged again: {short(lines[count:])}")
        lab.expect(not any("SECRET" in line for line in lines), "the log has the record's content")


async def _still(lab: Lab, session: AnySession, wanted: list[bytes], after: str) -> None:
    """The corrupt records are still stored, whichever way they can be looked at."""
    if lab.has(session, "corrupt"):
        lab.same([record.data for record in await session.corrupt_records()], wanted, f"{after}, by corrupt_records()")
    if lab.backend.can("raw_records"):
        stored = lab.backend.raw_records(session.session_id)
        lab.expect(all(data in stored for data in wanted), f"after {after}: the corrupt record was deleted")


@contextmanager
def _capture_log() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, root = Keep(logging.DEBUG), logging.getLogger()
    root.addHandler(handler)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
