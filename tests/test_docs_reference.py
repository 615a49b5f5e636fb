"""The reference of runs names everything there is, so that what is looked up is found."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from standfast import RunConfig, Runner, RunResult, RunResultStreaming
from standfast._src.agents import error_handlers as run_error_handlers
from standfast._src.base import errors
from standfast._src.items import stream_events
from standfast._src.sessions.foreign.adapter import PlainSession

PAGES = Path(__file__).resolve().parent.parent / "docs"
PAGE = (PAGES / "reference" / "runs.md").read_text(encoding="utf-8")


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


NAMES = {
    "fields of RunConfig": [field.name for field in dataclasses.fields(RunConfig)],
    "methods of Runner": public(Runner),
    "results": public(RunResult),
    "streamed results": public(RunResultStreaming),
    "events": list(get_args(stream_events.RunItemEventName)),
    "kinds of error handlers": list(run_error_handlers.HANDLED_KINDS),
    # The reference of sessions has the errors of stores; these are about runs.
    "errors": [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type)
        and issubclass(kind, errors.ModelError | errors.UserError | errors.GuardrailTripped | errors.RunClaimedError)
        and kind not in (errors.ModelError, errors.GuardrailTripped)
    ],
}


@pytest.mark.parametrize("what", NAMES)
def test_the_reference_of_runs_names_all(what: str):
    missing = [name for name in NAMES[what] if f"`{name}" not in PAGE and f"Runner.{name}" not in PAGE]
    assert not missing, f"docs/reference/runs.md does not name {missing}"


def test_the_reference_tells_the_real_defaults():
    """A default that has changed and is told as it was is worse than none."""
    defaults = {field.name: getattr(RunConfig(), field.name) for field in dataclasses.fields(RunConfig)}
    wrong = []
    for line in PAGE.split("## RunConfig")[1].split("## Results")[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3 or not cells[0].startswith("`") or not cells[1]:
            continue
        names = [name.strip("` ") for name in cells[0].split(",")]
        told = [value.strip("` ") for value in cells[1].split(",")]
        told = told * len(names) if len(told) == 1 else told
        wrong += [
            f"{name} is told to be {value}, and is {defaults[name]!r}"
            for name, value in zip(names, told, strict=True)
            if value.replace('"', "'") != repr(defaults[name])
        ]
    assert not wrong


def test_the_page_on_foreign_sessions_lists_what_the_adapter_cannot_promise():
    page = (PAGES / "how-to" / "bring-your-own-session.md").read_text(encoding="utf-8")
    words = " ".join(re.sub(r"\[([A-Z]\d+)\]\([^)]*\)", r"\1", page).split())
    assert [promise for promise in PlainSession.cannot if promise not in words] == []


def test_pages_for_users_import_public_names_only():
    """`_src` and `_kits` may change in any release; a page that imports from them teaches what will break."""
    about_the_inside = {"write-a-backend.md": "the port of stores has no public path yet"}
    guilty = [
        page.name
        for folder in ("tutorial", "how-to")
        for page in sorted((PAGES / folder).glob("*.md"))
        if page.name not in about_the_inside
        if re.search(r"^\s*(?:from|import) standfast\._", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not guilty
