"""What stores do alike when they answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast import NotFoundError, StoreUnavailableError
from standfast._src.sessions.backends.memory.memory_storage import MemoryStore
from standfast._src.sessions.storage import (
    NOBODY,
    Arrange,
    Ask,
    Count,
    Done,
    KeyUpdate,
    Listing,
    Load,
    Name,
    NewRows,
    Range,
    ReadAnswer,
    ReadRequest,
    Row,
    Tag,
    ask,
)
from standfast._src.sessions.storage_helpers import (
    Answering,
    Description,
    asked_alone,
    conditions,
    in_range,
    read_cursor,
    refusal,
)

NAME = Name("session", "c")
values = st.sampled_from([None, b"", b"1", b"2"])


@given(
    put=st.dictionaries(st.sampled_from("abc"), values),
    wanted=st.dictionaries(st.sampled_from("abc"), values),
    rows=st.integers(0, 3),
    mark=st.sampled_from([None, "now", "before", "", "nonsense"]),
    prefix=st.sampled_from([None, "now", "before", "", "nonsense"]),
)
def test_a_step_is_refused_where_the_store_that_holds_it_all_refuses_it(
    put: dict[str, bytes | None], wanted: dict[str, bytes | None], rows: int, mark: str | None, prefix: str | None
) -> None:
    store = MemoryStore()
    store.commit([KeyUpdate(NAME, push=[(b"{}", NOBODY)], touch=True)])
    marks = {"before": store.look(ReadRequest(NAME)).mark, None: None, "": "", "nonsense": "nonsense"}
    store.commit([KeyUpdate(NAME, put=put, push=[(b"{}", NOBODY)] * rows, touch=True)])
    marks["now"] = store.look(ReadRequest(NAME)).mark
    change = KeyUpdate(NAME, cells=wanted, mark=marks[mark], prefix=marks[prefix])
    seen = refusal(0, change, store.look(conditions(change)))
    done = store.commit([change])
    assert seen == (None if isinstance(done, Done) else done)


@given(
    refs=st.sets(st.integers(1, 9)),
    after=st.none() | st.integers(0, 9),
    upto=st.none() | st.integers(0, 9),
    replaces=st.none() | st.integers(0, 2),
)
def test_a_range_is_what_lies_between_its_bounds(
    refs: set[int], after: int | None, upto: int | None, replaces: int | None
) -> None:
    rows = [Row(ref, b"{}", Tag("w", ref, 1) if ref % 2 else None) for ref in sorted(refs)]
    found = in_range(rows, Range(0, after, upto, replaces))
    assert [row.ref for row in found] == [r for r in sorted(refs) if (after or 0) < r <= (9 if upto is None else upto)]
    for row in found:
        kept = rows[[one.ref for one in rows].index(row.ref)]
        assert row == (
            kept if replaces is None else kept._replace(tag=(kept.tag or NOBODY)._replace(replaces=replaces))
        )


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "١", "9" * 30, None, 7])
def test_what_no_listing_gave_is_no_cursor(text: Any) -> None:
    with pytest.raises(NotFoundError):
        read_cursor(text)
    assert read_cursor("12") == 12


def test_an_error_of_one_question_is_its_answer() -> None:
    class Away(Answering):
        loses_answers = True

        def answer(self, question: Ask) -> Any:
            if isinstance(question, Count):
                raise StoreUnavailableError("away", "Wait.")
            return ask(MemoryStore(), question)

    store = Away()
    assert isinstance(asked_alone(store, Count("run")), StoreUnavailableError)
    assert isinstance(asked_alone(store, ReadRequest(NAME)), ReadAnswer)
    assert isinstance(asked_alone(store, [KeyUpdate(NAME, touch=True)]), Done)
    assert asked_alone(store, Listing("session", None, 5, {})) == []


def test_a_step_in_numbers_holds_no_text_of_the_conversation() -> None:
    """What a program on a server decodes could come out as something else; so it is given numbers only."""
    arguments: list[bytes] = []

    class Numbers(Description):
        def argument(self, value: bytes) -> int:
            arguments.append(value)
            return len(arguments)

        def rows(self, rows: Sequence[tuple[bytes, Tag]]) -> tuple[int, int]:
            numbers = [self.argument(data) for data, _ in rows] or [1, 0]
            return numbers[0], numbers[-1]

        def put_back(self, row: Row) -> int:
            return self.argument(row.data)

        def of(self, name: Name) -> int:
            return self.text(name.id)

        def loaded(self, load: Load) -> dict[str, Any]:
            return {"live": self.rows(load.live)}

    new = [(b"secret", Tag("secret", 3))]
    change = KeyUpdate(
        NAME,
        mark="secret",
        prefix="secret",
        cells={"secret": b"secret", "none": None},
        wipe=("secret",),
        drop=[4],
        arrange=Arrange([Range(0, 1, 2, 3, Name("session", "secret")), new], 2, [Range(0)], [1]),
        back=[Row(4, b"secret", None)],
        push=new,
        load=Load(new, [None]),
        sweep=("secret",),
        put={"secret": None, "other": b"secret"},
        touch=True,
        labels={"secret": "secret"},
    )
    made = Numbers(change).made()
    assert "secret" not in json.dumps(made)
    assert sorted(made) == sorted(
        [
            "id",
            "want",
            "put",
            "mark",
            "prefix",
            "wipe",
            "sweep",
            "touch",
            "labels",
            "drop",
            "arrange",
            "back",
            "push",
            "load",
        ]
    )
    assert made["arrange"]["live"][0] == {
        "box": 0,
        "after": 1,
        "upto": 2,
        "of": made["arrange"]["live"][0]["of"],
        "replaces": 3,
    }
    assert made["want"][1][1] == 0
    assert made["put"][0][1] == 0
    assert arguments[made["put"][1][1] - 1] == b"secret"
    assert "remove" in Numbers(KeyUpdate(NAME, remove=True)).made()


def test_new_rows_are_a_sequence_of_rows_with_their_tags() -> None:
    data = [b"1", b"2", b"3"]
    for rows, expected in (
        (NewRows(data), [(one, NOBODY) for one in data]),
        (NewRows(data, "w", 5), [(b"1", Tag("w", 5)), (b"2", Tag("w", 6)), (b"3", Tag("w", 7))]),
    ):
        assert (list(rows), len(rows), rows[-1], rows[1:]) == (expected, 3, expected[-1], expected[1:])
        assert all(isinstance(tag, Tag) for _, tag in rows)
