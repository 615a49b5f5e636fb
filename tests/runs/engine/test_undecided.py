"""Dropping decisions: whatever a saved run holds, afterwards nobody has decided about any of its calls (C16)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from standfast._src.runs.engine.codec import decode_run, encode_run
from standfast._src.runs.engine.decisions import strip_decisions
from tests.golden.states import FOLDER

FILES = sorted(FOLDER.rglob("*.json"))


def values_of(value: Any, name: str) -> Iterator[Any]:
    """Every value under this name, wherever it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name:
                yield inner
            yield from values_of(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from values_of(inner, name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_decision_is_left_and_the_run_can_still_be_read(file: Path) -> None:
    run = decode_run(json.loads(file.read_text(encoding="utf-8"))["payload"])
    plain = encode_run(strip_decisions(run))
    assert not any(values_of(plain, "decision"))
    assert not any(values_of(plain, "decided"))
    assert not any(values_of(plain, "decisions"))
    again = decode_run(plain)
    assert again.status != "ready"
    assert [call.id for call in again.calls] == [call.id for call in run.calls]


def test_the_states_that_are_kept_hold_decisions() -> None:
    """Else the test above would show nothing."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in FILES]
    assert any(any(values_of(one, "decision")) for one in found)
    assert any(any(values_of(one, "decided")) for one in found)
