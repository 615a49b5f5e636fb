"""`add_items`, `get_items`, `pop_item` and `clear_session` overridden are what is used (part B, attack 10).

Redaction by subclass is what people do. The proof is by bytes: the secret is in no file beside the database. An
ability goes around a history method; it ends where that method is overridden, unless it is defined there as well.
"""

from __future__ import annotations

import json
import logging
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import short

from standfast import (
    Agent,
    InMemorySession,
    OpenAIResponsesCompactionSession,
    RunConfig,
    Runner,
    SQLiteSession,
    SummarisingSession,
    abilities,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call

SECRET = "4111-1111"
Item = dict[str, Any]


def clean(items: list[Any]) -> list[Any]:
    """Without the secret, wherever it stands."""
    cleaned: list[Any] = json.loads(json.dumps(items).replace(SECRET, "****"))
    return cleaned


class Redacting(SQLiteSession):
    async def add_items(self, items: Any) -> None:
        await super().add_items(clean(list(items)))


class Reading(SQLiteSession):
    async def get_items(self, limit: int | None = None) -> Any:
        return [item for item in await super().get_items(limit) if "hidden" not in str(item)]


class Popping(SQLiteSession):
    async def pop_item(self) -> Any:
        return await super().pop_item()


class Clearing(SQLiteSession):
    async def clear_session(self) -> None:
        await super().clear_session()


class Wrapped:
    """As programs wrap: attribute delegation for everything but the four methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_items(self, limit: int | None = None) -> Any:
        return await self._inner.get_items(limit)

    async def add_items(self, items: Any) -> None:
        await self._inner.add_items(clean(list(items)))

    async def pop_item(self) -> Any:
        return await self._inner.pop_item()

    async def clear_session(self) -> None:
        await self._inner.clear_session()


def on_the_instance(path: Path) -> Any:
    session = SQLiteSession("s", path)
    plain = session.add_items

    async def add_items(self: Any, items: Any) -> None:
        await plain(clean(list(items)))

    session.add_items = types.MethodType(add_items, session)  # type: ignore[method-assign]
    return session


REDACTING: dict[str, Callable[[Path], Any]] = {
    "a subclass": lambda path: Redacting("s", path),
    "a wrapper": lambda path: Wrapped(SQLiteSession("s", path)),
    "an instance": on_the_instance,
    "a compaction session over a subclass": lambda path: SummarisingSession(Redacting("s", path), ScriptedModel()),
}


def agent_of(*, asks: bool) -> Agent[Any]:
    @function_tool(needs_approval=asks)
    async def charge(card: str) -> str:
        """Charge."""
        return f"charged {card}"

    replies = [[function_call("charge", {"card": SECRET}, call_id="c1")], final(f"{SECRET} was charged")]
    return Agent(name="A", model=ScriptedModel(replies), tools=[charge])


def files_with_the_secret(path: Path) -> list[str]:
    files = sorted(file for file in path.parent.iterdir() if file.is_file())
    return [file.name for file in files if SECRET.encode() in file.read_bytes()]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("asks", [False, True], ids=["to the end", "paused and approved"])
@pytest.mark.parametrize("kind", REDACTING)
async def test_what_add_items_removes_is_in_no_file(kind: str, asks: bool, streamed: bool, tmp_path: Path) -> None:
    """Part B: not in the history, not in a saved run, not in the log; looked for after every step, open and closed."""
    path = tmp_path / "a.db"
    session, agent = REDACTING[kind](path), agent_of(asks=asks)

    async def run(given: Any) -> Any:
        if not streamed:
            return await Runner.run(agent, given, session=session)
        result = Runner.run_streamed(agent, given, session=session)
        async for _ in result.stream_events():
            assert files_with_the_secret(path) == []
        return result

    result = await run(f"my card is {SECRET}")
    assert files_with_the_secret(path) == []
    if asks:
        state = result.to_state()
        for item in state.get_interruptions():
            state.approve(item)
        await run(state)
    assert files_with_the_secret(path) == []
    history = short(await session.get_items())
    assert history == ["U(my card is ****)", "C(c1)", "O(c1: charged ****)", "A(**** was charged)"]
    await session.close()
    assert files_with_the_secret(path) == []


async def test_what_get_items_hides_the_model_does_not_see(tmp_path: Path) -> None:
    """Part B: reading goes through the method that was overridden."""
    session = Reading("s", tmp_path / "a.db")
    await session.add_items([{"role": "user", "content": "hidden"}, {"role": "user", "content": "seen"}])
    model = ScriptedModel([final("ok")])
    await Runner.run(Agent(name="A", model=model), "hi", session=session)
    assert model.first_call is not None
    seen: Any = model.first_call.input
    assert short(seen) == ["U(seen)", "U(hi)"]
    session.close()


STAY = {"lease", "head", "list", "times"}


@pytest.mark.parametrize(
    ("kind", "ended", "kept"),
    [
        (Redacting, {"append", "replace", "runs"}, {"rewind", "page", *STAY}),
        (Reading, {"page", "replace"}, {"append", "runs", *STAY}),
        (Popping, {"rewind"}, {"append", "replace", "page", "runs", *STAY}),
        (Clearing, set(), {"append", "replace", "page", "rewind", "runs", *STAY}),
    ],
    ids=["add_items", "get_items", "pop_item", "clear_session"],
)
def test_an_overridden_method_ends_the_abilities_that_go_around_it(
    kind: type[SQLiteSession], ended: set[str], kept: set[str], tmp_path: Path
) -> None:
    """Part B, per method; lease, head, times and listing stay."""
    has = abilities(kind("s", tmp_path / "a.db"))
    assert not has & ended
    assert has >= kept


class RedactingBoth(Redacting):
    """The ability's method is defined below the history method it goes around: it counts."""

    async def append(self, items: Any, **named: Any) -> Any:
        return await super().append(clean(list(items)), **named)


class Declares(SQLiteSession):
    """Its author says in its own body what it has."""

    declared_abilities = SQLiteSession.declared_abilities

    async def add_items(self, items: Any) -> None:
        await super().add_items(items)


class Below(Declares):
    """Overridden once more, below the declaration: that ends it again."""

    async def add_items(self, items: Any) -> None:
        await super().add_items(clean(list(items)))


class AppendAbove(SQLiteSession):
    async def append(self, items: Any, **named: Any) -> Any:
        return await super().append(items, **named)


class AddBelow(AppendAbove):
    async def add_items(self, items: Any) -> None:
        await super().add_items(clean(list(items)))


def test_the_order_of_classes_decides_which_abilities_are_kept(tmp_path: Path) -> None:
    """Part B: an ability method counts only at or below every history method that it goes around."""
    path = tmp_path / "a.db"
    assert "append" in abilities(RedactingBoth("s", path))
    assert "runs" not in abilities(RedactingBoth("s", path)), "a run's record would hold the items"
    assert abilities(Declares("s", path)) == abilities(SQLiteSession("s", path))
    assert "append" not in abilities(Below("s", path))
    assert "append" in abilities(AppendAbove("s", path))
    assert "append" not in abilities(AddBelow("s", path))
    assert "append" not in abilities(on_the_instance(path))


@pytest.mark.parametrize("inner", [SQLiteSession, Redacting, Popping])
def test_a_wrapper_asks_what_it_wraps_by_the_same_rule(inner: type[SQLiteSession], tmp_path: Path) -> None:
    """Part B: our compaction sessions keep the abilities of what they wrap, not by their names."""
    wrapped = inner("s", tmp_path / "a.db")
    assert abilities(SummarisingSession(wrapped, ScriptedModel())) == abilities(wrapped)
    assert abilities(OpenAIResponsesCompactionSession("s", wrapped)) == abilities(wrapped)


class RedactingSummaries(SummarisingSession):
    async def add_items(self, items: Any, **named: Any) -> None:
        await super().add_items(clean(list(items)), **named)


def test_a_subclass_of_a_wrapper_is_judged_like_any_other(tmp_path: Path) -> None:
    """Part B: the wrapper's own `add_items` ends nothing, one below it does."""
    has = abilities(RedactingSummaries(SQLiteSession("s", tmp_path / "a.db"), ScriptedModel()))
    assert not has & {"append", "replace", "runs"}
    assert "lease" in has


async def test_the_first_run_says_once_which_abilities_ended_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Part B: by which method, and how to keep them; without content, and not at every run."""

    class Fresh(SQLiteSession):
        async def add_items(self, items: Any) -> None:
            await super().add_items(items)

    session = Fresh("s", tmp_path / "a.db")
    with caplog.at_level(logging.INFO, logger="standfast"):
        for words in ("secret words", "more"):
            await Runner.run(Agent(name="A", model=ScriptedModel([final("ok")])), words, session=session)
    session.close()
    told = [record.getMessage() for record in caplog.records if "append" in record.getMessage()]
    assert len(told) == 1
    assert "add_items" in told[0]
    assert "declared_abilities" in told[0]
    assert "secret words" not in caplog.text


async def test_two_runs_on_a_redacting_session_still_wait_for_each_other(tmp_path: Path) -> None:
    """Part B: the lease is not an ability that goes around `add_items`."""
    session = Redacting("s", tmp_path / "a.db")
    lease = await session.lease(ttl_s=60.0, wait_s=0)
    with pytest.raises(Exception, match="held"):
        await Runner.run(
            Agent(name="A", model=ScriptedModel([final("ok")])),
            "hi",
            session=session,
            run_config=RunConfig(lease_wait_s=0),
        )
    await lease.release()
    session.close()


async def test_an_instance_in_memory_is_judged_the_same_way() -> None:
    """Part B on the other backend."""
    session = InMemorySession("s")
    stored: list[Any] = []

    async def add_items(items: Any) -> None:
        stored.extend(clean(list(items)))

    session.add_items = add_items  # type: ignore[method-assign]
    assert not abilities(session) & {"append", "replace", "runs"}
    await Runner.run(Agent(name="A", model=ScriptedModel([final("ok")])), SECRET, session=session)
    assert short(stored) == ["U(****)", "A(ok)"]
