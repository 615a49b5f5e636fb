"""Deliberately wrong doctors, each one small change of a source file. A story of `STORIES` sees each of them."""

# ruff: noqa: E501 — a table is read by its columns

from __future__ import annotations

from tests.driver.driver_mutants import Mutant
from tests.operators.doctor.world import Story

RULES, JUDGE, HISTORY = "sessions.mend_rules", "words.broken_items", "words.history"
DIAGNOSIS, MENDING, FILE = "operators.doctor.diagnosis", "operators.doctor.mending", "operators.doctor.undo_file"

TURNS = ((2, True), (1, True), (0, False))
STORIES = [
    Story(TURNS, ((("remove", 4, 0),),)),  # an output
    Story(TURNS, ((("remove", 2, 0),), (("remove", 5, 0),)), crash_at=4),  # a call; an answer
    Story(TURNS, ((("cut end", 0, 2),), (("cut bytes", 4, 9),)), crash_at=1, kept_bytes=40),
    Story(TURNS, ((("copy many", 1, 7),), (("copy", 6, 9),))),
    Story(((0, True), (0, False)), ((("remove", 2, 0),),)),  # the answer that reasoning led to
    Story(TURNS, ((("other copy", 0, 0), ("remove", 9, 0)),)),
    Story(TURNS, ((("other copy", 0, 0),), (("remove", 3, 0),)), compacts=True),
    Story(TURNS, ((("junk", 0, 5), ("stray output", 0, 8), ("stray call", 0, 0)),), crash_at=5, undo_crash_at=1),
    Story(TURNS, ((("remove", 4, 0),), (("remove", 4, 0),)), crash_at=3, undo_crash_at=2),
    Story(((1, True),), ((("remove", 0, 0), ("remove", 2, 0), ("junk", 2, 0)),), compacts=True),
]  # fmt: skip

MUTANTS = [
    Mutant("a healthy record leaves with a broken one", DIAGNOSIS, "        if place in leaving:\n            follower", "        if place in leaving or place == 0:\n            follower"),
    Mutant("calls without an output stay", JUDGE, "kept, left_out = prune([items[place] for place in single])", "kept, left_out = [items[place] for place in single], []"),
    Mutant("second copies stay", JUDGE, "    single = _without_repeated_ids(items, merged)", "    single = merged"),
    Mutant("equal messages are merged", JUDGE, "if type(given) is not str or not given or given == PLACEHOLDER_ID:", "given = str(item)\n        if given == PLACEHOLDER_ID:"),
    Mutant("reasoning at the end stays", JUDGE, "    while end and items", "    while False and items"),
    Mutant("reasoning before a user's message stays", HISTORY, 'is_cut = items[place].get("role") in BEGINS_A_TURN', "is_cut = False"),
    Mutant("reasoning before an answer leaves", HISTORY, 'is_cut = items[place].get("role") in BEGINS_A_TURN', "is_cut = True"),
    Mutant("a later copy is not moved", DIAGNOSIS, "(*_ranges(rows, order), Range(0, rows[-1].ref)) if moved else ()", "()"),
    Mutant("corrupt records stay", DIAGNOSIS, "leaving[place] = CORRUPT", "places.append(place)\n                items.append({})"),
    Mutant("the undo file comes last", MENDING, "    file.add(session_id, mend)\n    session = store.session(session_id)\n    try:\n        outcome = await session.changed(partial(mend_rules.mend, Name(\"session\", session_id), mend, is_quiet))\n", "    session = store.session(session_id)\n    try:\n        outcome = await session.changed(partial(mend_rules.mend, Name(\"session\", session_id), mend, is_quiet))\n        file.add(session_id, mend)\n"),
    Mutant("a mend is not noted", RULES, "put: dict[str, bytes | None] = {cell: b\"%d\" % (_newest_mend(sight) + 1)}", "put: dict[str, bytes | None] = {}"),
    Mutant("an undo is not noted", RULES, "put={cell: None, **rewritten(sight)}", "put=rewritten(sight)"),
    Mutant("an undo drops what came since", RULES, "return Arrange([*parts, Range(0, after=last)])", "return Arrange(parts[:1] if len(live) > 2 else parts)"),
    Mutant("what is put back goes to the end", RULES, "            inserted.setdefault(place, []).append(one)\n        return inserted, set()", "            inserted.setdefault(len(live), []).append(one)\n        return inserted, set()"),
    Mutant("a moved record is put back and stays", RULES, "leaving.add(rows[place][2].ref)", "pass"),
    Mutant("what is put back belongs to nobody", RULES, "(one.row.data, one.row.tag or Tag())", "(one.row.data, Tag())"),
    Mutant("places are taken for the same after a restore", RULES, "if not wanted.parts and value_of(sight, GENERATIONS) == wanted.generations:", "if not wanted.parts:"),
    Mutant("a place is one too far", RULES, "behind = rows[one.before] if one.before < len(rows) else None", "behind = rows[one.before + 1] if one.before + 1 < len(rows) else None"),
    Mutant("a cut line is read", FILE, "cut = lines.pop()", "cut = lines[-1]"),
    Mutant("bytes are mended on the way into the file", FILE, "        return data.decode()\n    except UnicodeDecodeError:", "        return data.decode().strip()\n    except UnicodeDecodeError:"),
    Mutant("only the first session is undone", MENDING, "in reversed(found.mends):", "in found.mends[:1]:"),
]  # fmt: skip
"""Those that the stories see. What only a moment sees (quiet, held, changed meanwhile) is in `test_doctor_mending`."""
