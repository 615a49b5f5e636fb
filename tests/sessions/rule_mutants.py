"""Deliberately wrong rules, each one small change of a source file, the clause that each breaks, and the check that sees it."""

# ruff: noqa: E501 — a table is read by its columns

from __future__ import annotations

from tests.driver.driver_mutants import Mutant

RULES, WRITERS = "sessions.rules", "sessions.writer_rules"
GENERATIONS, FORKS = "sessions.generation_rules", "sessions.fork_rules"
LEASES, RUNS = "sessions.lease_rules", "sessions.run_rules"
PICTURES, BRINGING = "sessions.picture_rules", "sessions.bring_rules"

MUTANTS: list[tuple[Mutant, str, str]] = [
    (Mutant("a limit counts corrupt records", RULES, "len(found) >= limit or", "len(rows) >= limit or"), "A2", "corrupt_records_do_not_count_against_a_limit"),
    (Mutant("a pop takes a corrupt record", RULES, "Popped(found[-1][0], sight,", "Popped(rows[-1], sight,"), "A14", "a_pop_takes_a_valid_item_and_leaves_corrupt_records"),
    (Mutant("a pop does not move the time", RULES, "drop=[popped.row.ref], touch=True)", "drop=[popped.row.ref])"), "A16", "the_creation_time_is_set_once_and_the_update_time_moves_with_changes"),
    (Mutant("clear forgets what writers wrote", RULES, "(WRITER, LEASE, LANE, OPEN_RUN, BROUGHT)", "(LEASE, LANE, OPEN_RUN)"), "B1", "a_count_survives_pop_and_clear"),
    (Mutant("clear forgets the fence", RULES, "(WRITER, LEASE, LANE, OPEN_RUN, BROUGHT)", "(WRITER, LANE, OPEN_RUN)"), "B7", "clearing_does_not_make_an_old_lease_valid_again"),
    (Mutant("clear leaves saved runs", RULES, "sorted(runs - kept)", "sorted(kept)"), "A12", "clearing_removes_the_runs_that_nobody_holds"),
    (Mutant("a page shows one too many", RULES, "shown = found[1:]", "shown = found"), "B8", "pages_put_together_are_the_history"),
    (Mutant("a stale page is shown", RULES, "        if there:\n            raise", "        if not there:\n            raise"), "B8", "a_page_of_a_history_that_is_gone_is_refused"),
    (Mutant("a gap is filled", WRITERS, "if not 0 <= start <= total:", "if start < 0:"), "B1", "a_gap_is_refused"),
    (Mutant("digests are not compared", WRITERS, "stored.get(ordinal, given) != given", "stored is given"), "B1", "another_item_under_the_same_number_is_refused"),
    (Mutant("a repeat is stored again", WRITERS, "encoded, digests = encoded[total - start :], digests[total - start :]", "pass"), "B1", "a_repeated_append_stores_each_item_once"),
    (Mutant("every batch is taken for a new one", WRITERS, "if batch.start != known.total or", "if"), "B1", "a_repeated_append_stores_each_item_once"),
    (Mutant("older digests are lost", WRITERS, "put[chunk_cell(writer, chunks + number)] =", "put[writer] ="), "B1", "another_item_under_the_same_number_is_refused"),
    (Mutant("an append on any head", WRITERS, "        check_head(name, expect, sight)\n    put = grown", "        expect = None\n    put = grown"), "B2", "a_change_on_a_session_that_moved_is_refused_with_both_heads"),
    (Mutant("written leaves generations out", WRITERS, "kept = (*boxes.values(), sight.rows[0])", "kept = (sight.rows[0],)"), "B1", "a_count_survives_replace_and_undo"),
    (Mutant("a rewind keeps the count", WRITERS, "put={own: value for own, value in now.items() if value != value_of(seen, own)},", "put={},"), "B5", "a_rewind_removes_a_writers_tail_and_lowers_its_count"),
    (Mutant("a rewind removes others' items", WRITERS, "if compacted or not all(leaves(row) or row.ref in faults for row in behind):", "if compacted:"), "B5", "a_rewind_of_what_is_not_the_whole_tail_is_refused"),
    (Mutant("a rewind removes damaged records", WRITERS, "    if faults:\n        raise Corrupt", "    if not behind:\n        raise Corrupt"), "B5", "a_rewind_with_a_corrupt_record_behind_it_is_refused"),
    (Mutant("a rewind of what was compacted", WRITERS, "if compacted or not all", "if not all"), "B1", "any_changes_agree_with_the_reference"),
    (Mutant("a rewind on any head", WRITERS, "check_head(name, expect, sight)\n        seen", "seen"), "B5", "a_rewind_on_a_session_that_moved_is_refused"),
    (Mutant("a replace drops what came after", GENERATIONS, "[*stay, new, Range(0, after=end)]", "[*stay, new]"), "B3", "a_replacement_stands_before_what_was_appended_since"),
    (Mutant("a replace drops corrupt records", GENERATIONS, "[*stay, new, Range(0, after=end)]", "[new, Range(0, after=end)]"), "A14", "a_replace_an_undo_and_a_fork_delete_no_corrupt_record"),
    (Mutant("a replace of what changed", GENERATIONS, "        if sight.upto is None:\n            raise moved(name, upto, sight)\n", ""), "B3", "a_replace_of_what_has_changed_is_refused"),
    (Mutant("one generation is kept", GENERATIONS, "GENERATIONS_KEPT = 3", "GENERATIONS_KEPT = 1"), "B3", "the_last_three_generations_are_kept"),
    (Mutant("undo forgets what it displaced", GENERATIONS, "keep = ranges(0, live, stands_in)", "keep = ranges(0, live, lambda _: False)"), "B4", "undo_puts_a_generation_back_and_can_be_undone"),
    (Mutant("undo drops what came between", GENERATIONS, "ranges(n, rows, lambda row: not stands_in(row), number)", "ranges(n, rows, lambda row: False, number)"), "B4", "undo_reaches_through_later_replaces"),
    (Mutant("undo cannot be undone", GENERATIONS, "Range(wanted, replaces=number)", "Range(wanted, replaces=0)"), "B4", "undo_puts_a_generation_back_and_can_be_undone"),
    (Mutant("a fork over what is there", FORKS, "        if new == name or target.mark or kept_in(target):", "        if target.mark:\n            yield from commit([Change(new, wipe=())])\n        if new == name:"), "B6", "a_fork_into_a_session_that_is_not_empty_is_refused"),
    (Mutant("a fork copies every count", FORKS, "for row in (*items[index:], *behind):", "for row in ():"), "B6", "a_fork_knows_how_much_each_writer_had_written_there"),
    (Mutant("a fork takes one item less", FORKS, "items[:index], lowest)", "items[: max(0, index - 1)], lowest)"), "B6", "a_fork_continues_from_any_position"),
    (Mutant("a lease is given to everybody", LEASES, "if (held.is_over(sight.now) or", "if (True or"), "B7", "a_session_has_one_holder_at_a_time"),
    (Mutant("a lease never lapses", LEASES, "return not self.ttl_s or not 0 <= now - self.since < self.ttl_s", "return not self.ttl_s"), "B7", "a_lease_that_nobody_renews_is_over_without_anybody_waiting"),
    (Mutant("a lower number may write", LEASES, "if fence.number < held.number or is_other", "if fence.number > held.number or is_other"), "B7", "a_write_under_a_lost_lease_is_refused"),
    (Mutant("an expiry takes the lease", LEASES, "hold_s=held.ttl_s", "hold_s=0.0"), "B7", "a_lease_is_held_though_the_history_expires"),
    (Mutant("numbers do not grow", LEASES, "held.number + 1, asker.nonce", "held.number, asker.nonce"), "B7", "a_session_has_one_holder_at_a_time"),
    (Mutant("a release does nothing", LEASES, "return LeaseState(held.number, held.nonce, tickets=held.tickets)", "return held"), "B7", "a_lease_is_held_though_the_history_expires"),
    (Mutant("a run is saved over another's", RUNS, "    if ahead != 0 and not", "    if ahead < 0 and not"), "C12", "of_two_who_save_on_one_revision_the_second_is_told"),
    (Mutant("a repeated save is refused", RUNS, "and (ahead == 1 or", "and (ahead == 3 or"), "C12", "the_same_save_again_succeeds"),
    (Mutant("a tail is added at the end", RUNS, "logs.setdefault(log, [])[start:] = records", "logs.setdefault(log, []).extend(records)"), "C12", "a_tail_takes_the_place_of_what_the_log_has_from_its_start_on"),
    (Mutant("an ended run keeps its logs", RUNS, "sweep = (LOG,) if is_short and any(lengths.values()) else ()", "sweep = ()"), "C12", "a_tail_takes_the_place_of_what_the_log_has_from_its_start_on"),
    (Mutant("clear takes the run under way", LEASES, 'return status == "running" and number in (0, held.number)', "return False"), "A12", "clearing_leaves_a_run_that_holds_its_session"),
    (Mutant("an import forgets who wrote how much", BRINGING, "put |= known.cells(writer)", "put |= known._replace(base=0, digests=b'').cells(writer)"), "B16", "a_session_that_was_copied_away_and_back_is_the_same"),
    (Mutant("an import forgets what writers are known by", BRINGING, "put |= known.cells(writer)", "put |= known._replace(base=known.total, digests=b'').cells(writer)"), "B16", "a_session_that_was_copied_away_and_back_is_the_same"),
    (Mutant("an import does not say which generations are kept", BRINGING, "    if seen.generations:", "    if not seen.generations:"), "B16", "a_session_that_was_copied_away_and_back_is_the_same"),
    (Mutant("a picture leaves costs out", PICTURES, "in usage_in_cells(sight)", "in ()"), "B16", "a_session_that_was_copied_away_and_back_is_the_same"),
    (Mutant("a picture leaves older digests out", WRITERS, "older + known.latest", "known.latest"), "B16", "a_session_that_was_copied_away_and_back_is_the_same"),
]  # fmt: skip
