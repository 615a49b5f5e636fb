"""What the kit finds in the SQLite session of the OpenAI Agents SDK, and what it does not.

A report is no gate: the SDK is not ours to fix. But a kit that no longer sees what it once saw has lost its eyes, and
one that accuses wrongly is worth nothing, so both are pinned here.
"""

from __future__ import annotations

import pytest

from standfast._kits.conformance.results import BROKEN, KEPT
from standfast.conformance import Options, Result, check
from tests.conformance.kit_backends import AgentsSQLite

QUICK = Options(rounds=3, examples=10, objects=800, soon_s=5)

SEEN = {
    "A2": "a_limit_that_is_no_count_is_refused",
    "A9": "opening_a_session_touches_nothing_before_its_first_operation",
    "A13": "a_cancelled_pop_loses_nothing",
    "A14": "a_pop_takes_a_valid_item_and_leaves_corrupt_records",
    "A15": "names_that_are_no_identifiers_are_refused",
    "A16": "the_creation_time_is_set_once_and_the_update_time_moves_with_changes",
    "A17": "what_json_cannot_hold_is_refused_and_never_changed",
    "A18": "what_is_no_id_is_refused",
    "A21": "many_session_objects_hold_a_constant_number_of_descriptors_and_threads",
}

KEEPS = {
    "A1": "items_come_back_in_the_order_they_were_appended",
    "A2": "a_limit_gives_the_latest_items_oldest_first",
    "A4": "stored_times_from_the_future_change_no_order",
    "A5": "a_writer_killed_inside_a_batch_leaves_all_or_nothing_of_it",
    "A6": "a_batch_that_is_not_json_leaves_nothing",
    "A10": "concurrent_writers_lose_nothing_and_do_not_interleave",
    "A11": "concurrent_pops_never_return_the_same_item",
    "A12": "clearing_removes_this_session_and_no_other",
    "A22": "a_session_works_in_one_event_loop_after_another",
    "A23": "every_acknowledged_batch_survives_a_kill",
}


def result_of(clause: str, name: str) -> Result:
    (result,) = check(AgentsSQLite(), clause, only=name, options=QUICK)
    return result


@pytest.mark.parametrize(("clause", "name"), SEEN.items())
def test_a_known_violation_of_the_sdk_is_still_seen(clause: str, name: str) -> None:
    assert result_of(clause, name).value == BROKEN


@pytest.mark.parametrize(("clause", "name"), KEEPS.items())
def test_what_the_sdk_keeps_is_not_called_broken(clause: str, name: str) -> None:
    assert result_of(clause, name).value == KEPT


def test_what_it_does_not_declare_is_not_held_against_it() -> None:
    assert {result.value for result in check(AgentsSQLite(), "B1", "B5", options=QUICK)} == {"left out"}
