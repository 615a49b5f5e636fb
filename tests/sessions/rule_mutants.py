"""Deliberately wrong rules, each one small change of a source file, and the clause that each breaks."""

# ruff: noqa: E501 — a table is read by its columns

from __future__ import annotations

from tests.runs.driver_mutants import Mutant

RULES, WRITERS = "sessions.rules", "sessions.writer_rules"
GENERATIONS, FORKS = "sessions.generation_rules", "sessions.fork_rules"
LEASES, RUNS = "sessions.lease_rules", "sessions.run_rules"

MUTANTS: list[tuple[Mutant, str]] = [
    (Mutant("a limit counts corrupt records", RULES, "len(found) >= limit or", "len(rows) >= limit or"), "A2"),
    (Mutant("a pop takes a corrupt record", RULES, "Popped(found[-1][0], sight.epoch", "Popped(rows[-1], sight.epoch"), "A14"),
    (Mutant("a pop does not move the time", RULES, "drop=[popped.row.ref], touch=True)", "drop=[popped.row.ref])"), "A16"),
    (Mutant("clear forgets what writers wrote", RULES, "(WRITER, LEASE, LANE, OPEN_RUN)", "(LEASE, LANE, OPEN_RUN)"), "B1"),
    (Mutant("clear forgets the fence", RULES, "(WRITER, LEASE, LANE, OPEN_RUN)", "(WRITER, LANE, OPEN_RUN)"), "B7"),
    (Mutant("clear leaves saved runs", RULES, "sorted(runs - kept)", "sorted(kept)"), "A12"),
    (Mutant("a page shows one too many", RULES, "shown = found[1:]", "shown = found"), "B8"),
    (Mutant("a stale page is shown", RULES, "        if there:\n            raise", "        if not there:\n            raise"), "B8"),
    (Mutant("a gap is filled", WRITERS, "if not 0 <= batch.start <= known.total:", "if batch.start < 0:"), "B1"),
    (Mutant("digests are not compared", WRITERS, "not in (None, given)", "is NotImplemented"), "B1"),
    (Mutant("a repeat is stored again", WRITERS, "min(known.total - batch.start, len(batch.encoded))", "0"), "B1"),
    (Mutant("older digests are lost", WRITERS, "put[chunk_cell(batch.writer, number)] = value", "put[batch.writer] = value"), "B1"),
    (Mutant("an append on any head", WRITERS, "if batch.expect is not None and sight.mark", "if batch.expect is NotImplemented and sight.mark"), "B2"),
    (Mutant("written leaves generations out", WRITERS, "for rows in (*boxes.values(), sight.rows[0]):", "for rows in (sight.rows[0],):"), "B1"),
    (Mutant("a rewind keeps the count", WRITERS, "put={cell: now.value()},\n            touch=bool", "put={},\n            touch=bool"), "B5"),
    (Mutant("a rewind removes others' items", WRITERS, "if compacted or not all(leaves(row) or row.ref in faults for row in behind):", "if compacted:"), "B5"),
    (Mutant("a rewind removes damaged records", WRITERS, "    if faults:\n        raise Corrupt", "    if not behind:\n        raise Corrupt"), "B5"),
    (Mutant("a rewind of what was compacted", WRITERS, "if compacted or not all", "if not all"), "B1"),
    (Mutant("a rewind on any head", WRITERS, "if expect is not None and sight.mark != expect.value:\n            raise moved(name, expect, sight.mark)\n        leaving", "leaving"), "B5"),
    (Mutant("a replace drops what came after", GENERATIONS, "[*stay, new, Range(0, after=end)]", "[*stay, new]"), "B3"),
    (Mutant("a replace drops corrupt records", GENERATIONS, "[*stay, new, Range(0, after=end)]", "[new, Range(0, after=end)]"), "A14"),
    (Mutant("a replace of what changed", GENERATIONS, "        if sight.upto is None:\n            raise moved(name, upto, sight.mark)\n", ""), "B3"),
    (Mutant("one generation is kept", GENERATIONS, "GENERATIONS_KEPT = 3", "GENERATIONS_KEPT = 1"), "B3"),
    (Mutant("undo forgets what it displaced", GENERATIONS, "keep = ranges(0, live, stands_in)", "keep = ranges(0, live, lambda _: False)"), "B4"),
    (Mutant("undo drops what came between", GENERATIONS, "ranges(n, rows, lambda row: not stands_in(row), number)", "ranges(n, rows, lambda row: False, number)"), "B4"),
    (Mutant("undo cannot be undone", GENERATIONS, "Range(wanted, replaces=number)", "Range(wanted, replaces=0)"), "B4"),
    (Mutant("a fork over what is there", FORKS, "if new == name or target.mark or kept_in(target):", "if new == name:"), "B6"),
    (Mutant("a fork copies every count", FORKS, "for row in (*items[index:], *since):", "for row in ():"), "B6"),
    (Mutant("a fork takes one item less", FORKS, "items[:index], lowest)", "items[: max(0, index - 1)], lowest)"), "B6"),
    (Mutant("a lease is given to everybody", LEASES, "if (held.is_over(sight.now) or", "if (True or"), "B7"),
    (Mutant("a lease never lapses", LEASES, "return not self.ttl_s or not 0 <= now - self.since < self.ttl_s", "return not self.ttl_s"), "B7"),
    (Mutant("a lower number may write", LEASES, "if fence.number < held.number or (", "if fence.number > held.number or ("), "B7"),
    (Mutant("numbers do not grow", LEASES, "held.number + 1, asker.nonce", "held.number, asker.nonce"), "B7"),
    (Mutant("a release does nothing", LEASES, "return Held(held.number, held.nonce, tickets=held.tickets)", "return held"), "B7"),
    (Mutant("a run is saved over another's", RUNS, "    if ahead != 0 and not", "    if ahead < 0 and not"), "C12"),
    (Mutant("a repeated save is refused", RUNS, "and (ahead == 1 or", "and (ahead == 3 or"), "C12"),
    (Mutant("a tail is added at the end", RUNS, "logs.setdefault(log, [])[start:] = records", "logs.setdefault(log, []).extend(records)"), "C12"),
    (Mutant("an ended run keeps its logs", RUNS, "sweep = (LOG,) if is_short and any(lengths.values()) else ()", "sweep = ()"), "C12"),
    (Mutant("clear takes the run under way", LEASES, 'return status == "running" and number in (0, held.number)', "return False"), "A12"),
]  # fmt: skip
