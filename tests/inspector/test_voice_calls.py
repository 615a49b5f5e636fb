"""A voice call is shown with what was heard of it and what was not: in a program, in the terminal, to the page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from standfast import open_store
from standfast._kits.cli.entry import main
from tests.inspector.serving import inspector_here
from tests.inspector.voice_call import HEARD, UNHEARD, fill_with_a_call


async def test_a_call_shows_what_was_heard_and_what_was_not(tmp_path: Path) -> None:
    store = tmp_path / "calls.db"
    run_id = await fill_with_a_call(store)
    async with open_store(store, read_only=True) as opened:
        view = await opened.run(run_id)
    assert view.kind == "voice call"
    assert view.agent == "Desk"
    cut, whole = view.spoken
    assert (cut.number, cut.heard, cut.unheard, cut.heard_ms) == (1, HEARD, UNHEARD, 400)
    assert cut.total_ms > 400
    assert (whole.number, whole.heard, whole.unheard) == (3, "You said the menu", "")
    assert whole.heard_ms == whole.total_ms


async def test_the_page_is_told_of_both_on_the_run_and_in_the_conversation(tmp_path: Path) -> None:
    store = tmp_path / "calls.db"
    run_id = await fill_with_a_call(store)
    with inspector_here(store, "ada") as served:
        run = served.ask(f"/api/run?run={run_id}").json()
        session = served.ask("/api/session?session=table-12").json()
    rows = [(one["kind"], one["title"], one["text"]) for one in run["timeline"]]
    seconds = next(one["title"] for one in run["timeline"] if one["kind"] == "heard").split()[4]
    assert rows[:4] == [
        ("input", "The caller", "a story"),
        ("heard", f"The agent: 0.4 of {seconds} s heard", HEARD),
        ("input", "The caller", "the menu"),
        ("heard", rows[3][1], "You said the menu"),
    ]
    assert rows[3][1].startswith("The agent: heard, ")
    assert [one.get("unheard") for one in run["timeline"][:4]] == [None, UNHEARD, None, ""]
    assert session["spoken"][run_id]["1"] == {"heard": f"0.4 of {seconds} s heard", "unheard": UNHEARD}
    assert session["spoken"][run_id]["3"]["unheard"] == ""


async def test_the_terminal_shows_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calls.db"
    run_id = await fill_with_a_call(store)
    assert await asyncio.to_thread(main, ["runs", "show", str(store), run_id]) == 0
    shown = capsys.readouterr().out
    assert f"s: {HEARD}\n" in shown
    assert f"not heard: {UNHEARD}" in shown
