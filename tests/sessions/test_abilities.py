"""Part B's rule on overridden history methods: no ability goes around one, unless its author says so."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import agents
import pytest

from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.client.session_wrapper import SessionWrapper
from standfast._src.sessions.conversation_identity import conversation_key
from standfast._src.sessions.protocol import abilities, ended_abilities

ALL = abilities(InMemorySession("a"))


class Redacts(InMemorySession):
    async def add_items(self, items: list[Any]) -> None:
        await super().add_items([{**item, "content": "***"} for item in items])


class Filters(InMemorySession):
    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [item for item in await super().get_items(limit) if item.get("role") == "user"]


class Keeps(InMemorySession):
    async def pop_item(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        (InMemorySession, {}),
        (Redacts, dict.fromkeys(("append", "record", "replace", "runs", "send"), "add_items")),
        (
            Filters,
            dict.fromkeys(("written", "page", "corrupt", "replace", "records", "watch", "search"), "get_items"),
        ),
        (Keeps, {"rewind": "pop_item"}),
    ],
)
def test_an_overridden_history_method_ends_the_abilities_that_go_around_it(kind: Any, ended: dict[str, str]) -> None:
    assert ended_abilities(kind("a")) == ended
    assert abilities(kind("a")) == ALL - ended.keys()


def test_a_class_that_defines_the_ability_too_keeps_it() -> None:
    class Both(Redacts):
        async def append(self, items: Any, **options: Any) -> Any:
            return await super().append([{**item, "content": "***"} for item in items], **options)

    assert "append" in abilities(Both("a"))
    assert {"replace", "runs", "record"} & abilities(Both("a")) == set()


def test_what_is_defined_above_the_override_does_not_count() -> None:
    class Appends(InMemorySession):
        async def append(self, items: Any, **options: Any) -> Any:
            return await super().append(items, **options)

    class Below(Appends):
        async def add_items(self, items: list[Any]) -> None:
            await super().add_items(items)

    assert "append" not in abilities(Below("a"))


def test_a_class_that_declares_its_abilities_in_its_own_body_is_believed() -> None:
    class Sure(Redacts):
        declared_abilities: ClassVar[frozenset[str]] = ALL

    class BelowSure(Sure):
        async def add_items(self, items: list[Any]) -> None:
            await super().add_items(items)

    assert abilities(Sure("a")) == ALL
    assert "append" not in abilities(BelowSure("a"))


def test_a_value_on_the_instance_is_below_all_classes() -> None:
    session = InMemorySession("a")
    session.add_items = session.add_items  # type: ignore[method-assign]
    assert "append" not in abilities(session)
    session.append = session.append  # type: ignore[method-assign]
    assert "append" in abilities(session)


def test_a_wrapper_has_what_the_wrapped_session_has_left() -> None:
    assert "append" not in abilities(SessionWrapper(Redacts("a")))
    assert "append" in abilities(SessionWrapper(Keeps("a")))

    class Shouts(SessionWrapper):
        async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
            await super().add_items(items, wrapper=wrapper)

    assert {"append", "runs", "replace"} & abilities(Shouts(InMemorySession("a"))) == set()


# --- which conversation ----------------------------------------------------------------------------------------------


def test_second_objects_and_wrappers_are_the_same_conversation() -> None:
    store = InMemoryStore()
    one, two = InMemorySession("a", store=store), InMemorySession("a", store=store)
    assert conversation_key(one) == conversation_key(two) == conversation_key(SessionWrapper(SessionWrapper(two)))
    assert conversation_key(one) != conversation_key(InMemorySession("b", store=store))
    assert conversation_key(one) != conversation_key(InMemorySession("a"))


def test_a_path_in_any_spelling_is_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spelled = ["x.db", Path("x.db"), tmp_path / "x.db", f"{tmp_path}/../{tmp_path.name}/x.db"]
    keys = {_key_of_the_sdks("a", path) for path in spelled}
    assert len(keys) == 1
    assert _key_of_the_sdks("a", "y.db") not in keys
    assert _key_of_the_sdks("b", "x.db") not in keys


def _key_of_the_sdks(session_id: str, path: str | Path) -> Any:
    with closing(agents.SQLiteSession(session_id, path)) as session:  # it opens its file when it is made
        return conversation_key(session)


def test_a_plain_session_that_names_no_store_is_itself_and_nobody_else() -> None:
    class Plain:
        session_id = "a"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    one, two = Plain(), Plain()
    assert conversation_key(one) == conversation_key(one)
    assert conversation_key(one) != conversation_key(two)
    with closing(agents.SQLiteSession("a")) as one_of_theirs, closing(agents.SQLiteSession("a")) as another:
        assert conversation_key(one_of_theirs) != conversation_key(another)
