"""Runs that were saved by a release are read by all later ones, and want what they wanted then (D9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import decode_run, encode_run
from standfast._src.runs.engine.events import Claimed
from standfast._src.runs.engine.run import Run
from standfast._src.runs.engine.upgrades import OLDEST, STEPS, VERSION
from tests.golden.write import FOLDER, SCRIPTS, wants
from tests.helpers.tables import for_each

FILES = sorted(FOLDER.glob("v*/*.json"))


@for_each("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_golden_run_is_read_and_wants_what_it_wanted(file: Path):
    golden = json.loads(file.read_text(encoding="utf-8"))
    run = decode_run(golden["run"])
    assert (run.status, wants(run)) == (golden["status"], golden["wants"])
    if golden["wants_when_claimed"] is None:
        assert run.is_closed
    else:
        assert wants(advance(run, Claimed("golden"))) == golden["wants_when_claimed"]
    assert decode_run(encode_run(run)) == run
    assert list(said_in(run)) == list(said_in_payload(golden["run"]))


def said_in(run: Run) -> Iterator[tuple[int, int]]:
    """Yield how much people decided and guardrails said in a run and in the runs inside its calls."""
    yield len(run.decided), len(run.results)
    for call in run.calls:
        if call.child is not None:
            yield from said_in(call.child)


def said_in_payload(payload: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the same of a saved run."""
    yield len(payload.get("decided", ())), len(payload.get("results", ()))
    for call in (payload.get("turn") or {}).get("calls", ()):
        if call.get("child"):
            yield from said_in_payload(call["child"])


@for_each("file", [file for file in FILES if file.parent.name == f"v{VERSION}"], ids=lambda file: file.stem)
def test_a_golden_run_of_this_version_is_written_as_it_was(file: Path):
    """A change of the layout that nobody gave a number would be found by the next release's users."""
    golden = json.loads(file.read_text(encoding="utf-8"))
    written = json.loads(json.dumps(encode_run(decode_run(golden["run"]))))
    assert missing(golden["run"], written) == []


def missing(old: object, new: object, path: str = "run") -> list[str]:
    """Where `new` lacks something of `old` or says it differently; what was added since may be there."""
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [f"{path}.{key} is gone" for key in old.keys() - new.keys()]
        return gone + [
            found for key in old.keys() & new.keys() for found in missing(old[key], new[key], f"{path}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [found for place, one in enumerate(old) for found in missing(one, new[place], f"{path}[{place}]")]
    return [] if old == new else [f"{path} was {old!r} and is {new!r}"]


def test_the_corpus_covers_every_version_and_every_story():
    assert {file.parent.name for file in FILES} == {f"v{version}" for version in range(OLDEST, VERSION + 1)}
    assert set(STEPS) == set(range(OLDEST, VERSION))
    stories = {file.stem.rsplit("-", 2)[0] for file in FILES}
    assert stories == set(SCRIPTS)
    statuses = {json.loads(file.read_text(encoding="utf-8"))["status"] for file in FILES}
    assert {"running", "paused", "done", "failed"} <= statuses
