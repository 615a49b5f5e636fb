"""Effects start in any order and finish in any order, and the process dies anywhere: the history is the calm one."""

from __future__ import annotations

from hypothesis import given

from tests.runs.engine import strategies as some
from tests.runs.engine.properties import check


@some.examples(300)
@given(some.scripts(), some.gentle, some.saves)
def test_a_crash_anywhere_leaves_the_same_history(script, schedule, saves):
    """C3, C5, C6, C8, D2: killed between any two steps, resumed from what was saved, compared with the calm run."""
    check(script, schedule, saves)


@some.examples(300)
@given(some.scripts(), some.anything, some.saves)
def test_whatever_stops_a_run_its_history_is_whole_and_nothing_runs_twice(script, schedule, saves):
    """C8: cancelled at once, failed, abandoned, resumed, with a stranger writing to the session in between."""
    check(script, schedule, saves)
