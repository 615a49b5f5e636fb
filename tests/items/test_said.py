"""The words of an item, and the line that a search shows around them (B13)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import example, given, strategies as st

from standfast import InMemorySession, SQLiteSession
from standfast._src.items.item_text import excerpt

FOLDING = "aAsSkKfiß\u1e9e\u017f\u212a\ufb01\ufb06\u0130é \n"
"""Letters that case folding turns into others, some of them into ASCII or into several letters."""


@given(before=st.text("ß\ufb01 a", max_size=120), after=st.text("ß a", max_size=60))
@example(before="ß" * 100, after="")
def test_an_excerpt_shows_the_words_however_many_letters_fold_into_several(before: str, after: str) -> None:
    assert "here" in excerpt(f"{before}HERE{after}", "here").casefold()


@given(stored=st.text(FOLDING, max_size=12), words=st.text("sSkKfiaß\u017f", min_size=1, max_size=3))
async def test_a_search_finds_what_case_folding_finds(stored: str, words: str) -> None:
    """Letters beyond ASCII that fold into ASCII were skipped before they were compared."""
    session = InMemorySession("conversation")
    await session.add_items([{"role": "user", "content": stored}])
    is_there = words.casefold() in " ".join(stored.split()).casefold()
    assert len((await session.search(words)).hits) == is_there


async def test_a_search_finds_letters_that_another_program_wrote_as_escapes(tmp_path: Path) -> None:
    """The SDK writes JSON in ASCII: "ß" stands in its rows as an escape."""
    session = SQLiteSession("conversation", tmp_path / "history.db")
    await session.add_items([{"role": "user", "content": "first"}])
    with closing(sqlite3.connect(tmp_path / "history.db")) as db, db:
        data = json.dumps({"role": "user", "content": "Die Straße"})
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('conversation', ?)", (data,))
    assert [hit.excerpt for hit in (await session.search("STRASSE")).hits] == ["Die Straße"]
    session.close()
