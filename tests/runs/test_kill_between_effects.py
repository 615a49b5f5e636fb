"""Kill the real driver between any two effects, resume from what was saved, and compare with the calm run.

The pure engine has its own test of this kind (tests/engine). Here everything is real but the world: the driver, the
performers, the saver and the runner's ways to go on, on stores that keep what reached them and a process that is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from standfast._kits.testing.simulator.scripts import Plan
from standfast._kits.testing.simulator.text_lives import Journey, Kind
from tests.mistakes.planting import planted
from tests.mistakes.registry import Mistake, named, proving
from tests.runs import crash_points
from tests.runs.crash_points import GUARDED, RICH, WITH_APPROVAL, Story, calm_telling, point_count, tell

CONVERSATIONS: dict[str, tuple[tuple[Plan, ...], bool]] = {
    "rich": (RICH, False),
    "approval": (WITH_APPROVAL, False),
    "guarded": (GUARDED, True),
}
EVERY = [(name, kind) for name in CONVERSATIONS for kind in ("saved", "adopted")]


@cache
def calm(name: str, kind: Kind) -> Journey:
    plans, guarded = CONVERSATIONS[name]
    return calm_telling(Story(plans, (), guarded, kind=kind))


@pytest.mark.clause("C3", "C5", "C8", "C12", backend="runs")
@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_killed_at_any_point_the_run_ends_as_if_nothing_had_happened(name: str, kind: Kind) -> None:
    """Every point of three conversations, one after the other: nothing is left to chance here."""
    plans, guarded = CONVERSATIONS[name]
    for point in itertools.count():
        telling = tell(Story(plans, (point,), guarded, kind=kind, seed=point), calm(name, kind))
        assert not telling.problems, f"killed {telling.killed}: {telling.problems}"
        if not telling.killed:
            break  # behind the last one
    assert point > 40


@pytest.mark.clause("C3", "C5", "C8", "C12", backend="runs")
@settings(max_examples=120)
@given(crash_points.stories())
def test_any_conversation_killed_anywhere_again_and_again(story: Story) -> None:
    """Parallel tools, handoffs with and without filters, nested runs, guardrails, approvals, up to four kills."""
    telling = tell(story)
    assert not telling.problems, f"killed {telling.killed}: {telling.problems}"


# --- teeth -----------------------------------------------------------------------------------------------------------


def fixed_stories() -> Iterator[tuple[Story, Any]]:
    """The same for every mutant: every third point of every conversation first, then the others."""
    for offset in range(3):
        for name, kind in EVERY:
            plans, guarded = CONVERSATIONS[name]
            for point in range(offset, point_count(plans, guarded, False, kind), 3):
                yield Story(plans, (point,), guarded, kind=kind, seed=point), calm(name, kind)


@pytest.mark.parametrize("mistake", proving("kills"), ids=lambda mistake: mistake.id)
def test_a_wrong_runtime_is_caught(mistake: Mistake) -> None:
    stories = list(fixed_stories())  # made, and told calmly, by the right one
    with planted(mistake):
        for story, expected in stories:
            try:
                found = tell(story, expected).problems
            except Exception as error:  # it hangs, goes round in circles, or refuses what it did itself
                found = [repr(error)]
            if found:
                return
    pytest.fail(f"no story noticed that {mistake.fault}")


def test_after_a_mistake_everything_is_as_it_was() -> None:
    """Mistakes are planted in place: what they leave behind must be nothing."""
    with planted(named("engine/begun-is-forgotten")):
        pass
    story, expected = next(fixed_stories())
    assert not tell(story, expected).problems


def test_the_kills_of_generated_stories_are_reached() -> None:
    """A property test whose kills come too late would prove nothing."""
    killed: list[int] = []

    @settings(
        max_examples=60,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(crash_points.stories())
    def collect(story: Story) -> None:
        killed.append(len(tell(story).killed))

    collect()
    assert sum(1 for count in killed if count) > 30
    assert sum(1 for count in killed if count > 1) > 10
