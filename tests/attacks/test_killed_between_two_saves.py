"""A kill between the save of a run and that of the run inside its call: who comes to the inner conversation knows both.

The run around is saved first, so the inner one's own record may be a step behind. Here the store is copied after each
commit: a copy is what a kill right there leaves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from standfast import Agent, RunConfig, Runner, SQLiteSession, UnfinishedRunError, open_store
from standfast._src.runs.engine.codec import decode_saved, has_ended
from standfast.testing import ScriptedModel, function_call
from tests.runs.saved_runs.payment_app import Desk, asks, look, outputs, pay, says

PARENT, INNER = "r1", "r1/o1"
NOT_RUN, WAITS, UNKNOWN = "did not run", "waits for a person", "not known"


@contextmanager
def copied_after_each_commit(folder: Path) -> Iterator[list[Path]]:
    """The copies, in the order of the commits."""
    connect, made = sqlite3.connect, list[Path]()

    class Copying(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            found = super().execute(sql, *args)
            if sql == "COMMIT":
                made.append(folder / f"copy{len(made)}.db")
                with closing(connect(made[-1])) as target:
                    self.backup(target)
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *args, **given: connect(*args, **{**given, "factory": Copying}))
        yield made


def agents(own: Any, inner_steps: list[Any], outer_steps: list[Any]) -> tuple[Desk, Agent[Any]]:
    """An agent that looks, and pays if a person agrees, on a conversation of its own, and one that has it as a tool."""
    inner = Desk(inner_steps)
    tool = inner.agent.as_tool("helper", "Help.", **own)
    return inner, Agent(name="outer", tools=[tool], model=ScriptedModel(outer_steps))


class Behind(NamedTuple):
    """How far the calls of the inner run are."""

    known: tuple[str, ...]
    own: tuple[str, ...]

    def told(self, returned: tuple[str, str]) -> Iterator[str]:
        """What whoever comes next is told of each: what is known around it; a call has begun when both say so."""
        for state, own, output in zip(self.known, self.own or ("asked", "asked"), returned, strict=True):
            unknown = UNKNOWN if own == "begun" else NOT_RUN
            yield {"returned": output, "waiting": WAITS}.get(state, unknown)


class Copy:
    """The store as a kill after one commit left it."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.session = path, SQLiteSession("a", path)
        self.own: dict[str, Any] = {"session": SQLiteSession("b", path)} if kind == "session" else {}
        self.own = self.own or {"conversation_id": "conv_1"}

    async def is_behind(self) -> Behind | None:
        """What the run around knows of the two calls inside, and the inner run's record; None if that is the same."""
        store = self.session.run_store()
        outer, own = [await store.load_run(run_id) for run_id in (PARENT, INNER)]
        if outer is None or own is None or has_ended(outer) or has_ended(own):
            return None
        known = next((call.child for call in decode_saved(outer).calls if call.child is not None), None)
        if known is None or not known.calls:
            return None
        states = [tuple(call.state for call in run.calls) for run in (known, decode_saved(own))]
        return Behind(*states) if states[0] != states[1] else None

    async def ask(self) -> tuple[dict[str, Any], Any]:
        """What a model is told that is asked something there next, by call id; and the result."""
        async with open_store(self.path) as store:
            for name in ("a", "b"):
                await store.unlock(name)
        model = ScriptedModel([says("noted")])
        config = RunConfig(run_store=self.session.run_store())
        result = await Runner.run(Agent(name="n", model=model), "well?", run_config=config, **self.own)
        assert model.first_call is not None
        seen: Any = model.first_call.input
        return outputs(seen), result

    def close(self) -> None:
        for one in (self.session, self.own.get("session")):
            if one is not None:
                one.close()


async def copies_behind(folder: Path, kind: str, inner_steps: list[Any]) -> dict[Behind, Copy]:
    """One copy for each thing that only the run around knew of."""
    with copied_after_each_commit(folder) as made:
        story = Copy(folder / "story.db", kind)
        calls = asks(function_call("helper", {"input": "go"}, call_id="o1"))
        _, outer = agents(story.own, inner_steps, [calls, says("ok")])
        await Runner.run(outer, "start", session=story.session, run_config=RunConfig(run_id=PARENT, lease_ttl_s=2.0))
        story.close()
    found: dict[Behind, Copy] = {}
    for path in made:
        copy = Copy(path, kind)
        what = await copy.is_behind()
        if what is not None and what not in found:
            found[what] = copy
        else:
            copy.close()
    return found


ASKS = [asks(look("b", "i1"), pay(7, "i2"))]
LOOKS = [asks(look("b", "i1"), look("c", "i2")), says("in")]


@pytest.mark.parametrize(
    ("kind", "steps"), [("session", ASKS), ("session", LOOKS), ("conversation", LOOKS)], ids=["asks", "looks", "server"]
)
async def test_who_comes_next_is_told_what_the_run_around_knew(kind: str, steps: list[Any], tmp_path: Path) -> None:
    """What had returned was said to be of unknown outcome, and what a server had asked for was not answered."""
    copies = await copies_behind(tmp_path, kind, steps)
    assert any("returned" in what.known for what in copies)
    for what, copy in copies.items():
        told, result = await copy.ask()
        assert [one.run_id for one in result.unfinished] == [INNER], what
        for call_id, expected in zip(("i1", "i2"), what.told(("saw b", "saw c")), strict=True):
            assert expected in told[call_id], (what, told)
        copy.close()


async def test_on_a_servers_conversation_whoever_comes_is_refused_while_it_waits(tmp_path: Path) -> None:
    """The question was closed as one that did not run, and sent to the server so."""
    copies = await copies_behind(tmp_path, "conversation", ASKS)
    assert any("waiting" in what.known for what in copies)
    for what, copy in copies.items():
        if "waiting" in what.known:
            with pytest.raises(UnfinishedRunError, match=INNER):
                await copy.ask()
        copy.close()


@pytest.mark.parametrize("decided", ["before the message", "behind the message"])
async def test_what_came_to_wait_can_still_be_decided(decided: str, tmp_path: Path) -> None:
    """Whoever comes to its session then leaves it as it is."""
    copies = await copies_behind(tmp_path, "session", ASKS)
    copy = copies.pop(next(what for what in copies if what.known == ("returned", "waiting")))
    for other in copies.values():
        other.close()
    if decided == "behind the message":
        await copy.ask()
    async with open_store(copy.path) as store:
        await store.unlock("a")
        await store.unlock("b")
        await store.decide(PARENT, "i2", True, by="ada")
    if decided == "before the message":
        told, _ = await copy.ask()
        assert WAITS in told["i2"]
    inner, outer = agents(copy.own, [says("in")], [says("ok")])
    result = await Runner.resume(outer, PARENT, session=copy.session)
    assert result.final_output == "ok"
    assert inner.done == [("pay", 7)]
    assert outputs(await copy.own["session"].get_items()) == {"i1": "saw b", "i2": "paid 7"}
    copy.close()
