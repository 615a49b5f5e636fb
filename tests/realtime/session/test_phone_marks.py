"""What a caller on the telephone has heard is known by marks, however late they come, and not by those of `clear`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

DEMO = Path(__file__).resolve().parents[3] / "examples" / "voice"


class Ear:
    """What the session is told was played, by item."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}

    def on_play_ms(self, item_id: str, content_index: int, ms: float) -> None:
        self.heard[item_id] = self.heard.get(item_id, 0) + ms


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Any]]:
    monkeypatch.syspath_prepend(str(DEMO))
    from phone_line import Played  # type: ignore[import-not-found]

    yield Played
    sys.modules.pop("phone_line", None)


def test_a_mark_that_comes_late_counts_and_one_that_was_lost_is_made_up_for(played: type[Any]) -> None:
    ear = Ear()
    line = played(ear)
    marks = [line.send("greeting", b"\xff" * 160) for _ in range(3)]
    assert ear.heard == {}
    line.returned(marks[1])  # the first one never came: what stands before the second was played all the same
    assert ear.heard == {"greeting": 40}
    line.returned(marks[0])  # late: it is counted already
    line.returned(marks[2])
    assert ear.heard == {"greeting": 60}


def test_marks_that_come_back_because_of_clear_say_nothing_was_heard(played: type[Any]) -> None:
    ear = Ear()
    line = played(ear)
    first, *rest = [line.send("story", b"\xff" * 160) for _ in range(5)]
    line.returned(first)
    line.cleared()
    after = line.send("answer", b"\xff" * 160)
    for mark in rest:  # all at once, as carriers send them, and behind audio that is newer
        line.returned(mark)
    assert ear.heard == {"story": 20}
    line.returned(after)
    assert ear.heard == {"story": 20, "answer": 20}


steps = st.lists(st.sampled_from(["send", "return", "late", "clear"]), max_size=40)


@given(steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_in_any_order_each_piece_is_heard_once_or_was_cleared(played: type[Any], order: list[str]) -> None:
    ear = Ear()
    line = played(ear)
    waiting: list[str] = []
    gone: list[str] = []
    expected = 0.0
    for step in order:
        if step == "send":
            waiting.append(line.send("item", b"\xff" * 80))
        elif step == "return" and waiting:
            mark = waiting.pop(0)
            gone.append(mark)
            expected += 10
            line.returned(mark)
        elif step == "late" and gone:
            line.returned(gone[0])
        elif step == "clear":
            line.cleared()
            gone += waiting
            waiting.clear()
        assert ear.heard.get("item", 0) == expected
