"""Session files that a stranger has written: they touch their own session, decide nothing, and fail in one way."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    AdvancedSQLiteSession,
    Agent,
    ExportFileError,
    RunConfig,
    Runner,
    SQLiteSession,
    StandfastError,
    copy_sessions,
    export_session,
    import_session,
    open_store,
)
from standfast._src.base.errors import InvalidSettingError, NotFoundError, RunStateError
from standfast.testing import ScriptedModel, function_call
from tests.operators.forged import forged, with_line
from tests.runs.saved_runs.payment_app import Desk, asks, pay, says

KEY = b"sixteen random bytes, or more of them"


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def filled(path: Path, *ids: str) -> None:
    for session_id in ids:
        session = SQLiteSession(session_id, path)
        await session.append([message(f"of {session_id}")], writer="w", start=0)
        await session.close()


async def exported_with_a_run(path: Path, *, decided: bool = True, key: bytes | None = None) -> bytes:
    """The file of session `one`, with a run that waits for a decision about a payment, or was approved at home."""
    session = SQLiteSession("one", path)
    desk = Desk([asks(pay(1_000_000, "call-1")), says("Paid.")])
    await desk.run("Please pay.", session=session, run_config=RunConfig(run_id="run-7"))
    await session.close()
    if decided:
        async with open_store(path) as store:
            await store.decide("run-7", "call-1", True, by="the chief accountant")
    await export_session(path, "one", file := path.with_suffix(".jsonl"), move=True, key=key)
    return file.read_bytes()


async def recovered(path: Path) -> list[Any]:
    """What a worker of the target pays when it recovers all runs that it finds."""
    desk = Desk([says("Paid.")])
    await Runner.recover(desk.agent, sessions=lambda session_id: SQLiteSession(session_id, path))
    return desk.done


async def snapshot(path: Path, session_id: str) -> Any:
    async with open_store(path, read_only=True) as store:
        runs = [(one.run_id, one.status) for one in (await store.runs()).runs if one.session_id == session_id]
        session = store.session(session_id)
        try:
            return await session.get_items(), runs
        finally:
            await session.close()


# --- runs ------------------------------------------------------------------------------------------------------------


def of_another(values: dict[str, Any]) -> None:
    values["labels"]["session"] = "two"
    values["head"]["spec"]["owner"]["id"] = "two"
    values["head"]["marks"]["stored"] = 0


def labelled_otherwise(values: dict[str, Any]) -> None:
    values["labels"]["session"] = "two"


def owned_otherwise(values: dict[str, Any]) -> None:
    values["head"]["spec"]["owner"]["id"] = "two"


def owned_by_a_server(values: dict[str, Any]) -> None:
    values["head"]["spec"]["owner"] = {"kind": "conversation", "id": "conv_1"}


@pytest.mark.parametrize("change", [of_another, labelled_otherwise, owned_otherwise, owned_by_a_server])
@pytest.mark.parametrize("accept_runs", [False, True])
async def test_a_run_of_another_session_is_refused(tmp_path: Path, change: Any, accept_runs: bool) -> None:
    data = forged(await exported_with_a_run(tmp_path / "home.db"), "run", change)
    target = tmp_path / "target.db"
    await filled(target, "two")
    before = await snapshot(target, "two")
    with pytest.raises(RunStateError, match="belongs to another one; nothing was changed"):
        await import_session(target, io.BytesIO(data), accept_runs=accept_runs)
    assert await snapshot(target, "two") == before
    assert await recovered(target) == []
    async with open_store(target, read_only=True) as store:
        assert [one.session_id for one in (await store.sessions()).sessions] == ["two"]


async def test_a_run_that_can_act_comes_in_when_it_is_asked_for_and_its_call_is_asked_about_again(
    tmp_path: Path,
) -> None:
    data, target = await exported_with_a_run(tmp_path / "home.db"), tmp_path / "target.db"
    done = await import_session(target, io.BytesIO(data))
    assert (done.outcome, done.moved, done.left) == ("copied", (), ("run-7",))
    assert await recovered(target) == []
    done = await import_session(target, io.BytesIO(data), accept_runs=True)
    assert (done.outcome, done.moved, done.left) == ("equal", ("run-7",), ())
    assert await recovered(target) == []
    async with open_store(target) as store:
        view = await store.run("run-7")
        assert (view.status, [call.decision for call in view.waiting]) == ("paused", [None])
        assert (await store.runs(status="ready")).runs == []
        await store.decide("run-7", "call-1", True, by="ada")
        view = await store.run("run-7")
        assert [call.decision.by for call in view.calls if call.decision is not None] == ["ada"]
    assert await recovered(target) == [("pay", 1_000_000)]


@pytest.mark.parametrize("amount", [10_000, -10_000], ids=["filled", "refilled"])
async def test_a_run_of_a_file_neither_fills_nor_refills_a_budget(tmp_path: Path, amount: int) -> None:
    """B16d, F10: budgets belong to the target; so does the count under a limit that is given there."""

    def spends(values: dict[str, Any]) -> None:
        budget = {"id": "total/tokens/acme", "limit": 50_000, "spent": amount}
        values["head"]["spec"]["context"] = {"budgets": [budget], "tally": {"requests": amount}}

    data, target = forged(await exported_with_a_run(tmp_path / "home.db"), "run", spends), tmp_path / "target.db"
    await filled(target, "two")
    async with open_store(target) as store:
        await store.set_budget("total/tokens/acme", 1_000)
        await import_session(target, io.BytesIO(data), accept_runs=True)
        await store.decide("run-7", "call-1", True, by="somebody here")
        assert len(await recovered(target)) == 1
        assert (await store.budget("total/tokens/acme")).used == 0


async def test_a_run_that_can_act_is_known_by_its_head_and_not_by_what_the_file_calls_it(tmp_path: Path) -> None:
    """A run without the mark of a move was stored as one that has ended, and `recover` went on with it."""

    def unmarked(values: dict[str, Any]) -> None:
        del values["moved"]

    def called_done(values: dict[str, Any]) -> None:
        values["labels"]["status"] = "done"

    data, target = await exported_with_a_run(tmp_path / "home.db"), tmp_path / "target.db"
    with pytest.raises(ExportFileError, match="was not moved into the file"):
        await import_session(target, io.BytesIO(forged(data, "run", unmarked)))
    assert (await import_session(target, io.BytesIO(forged(data, "run", called_done)))).left == ("run-7",)
    assert await recovered(target) == []


async def test_a_signed_file_keeps_what_was_decided(tmp_path: Path) -> None:
    data, target = await exported_with_a_run(tmp_path / "home.db", key=KEY), tmp_path / "target.db"
    done = await import_session(target, io.BytesIO(data), key=KEY, accept_runs=True)
    assert done.moved == ("run-7",)
    async with open_store(target) as store:
        (call,) = (await store.run("run-7")).calls
        assert call.decision is not None
        assert call.decision.by == "the chief accountant"
    assert await recovered(target) == [("pay", 1_000_000)]


async def test_only_the_key_that_signed_a_file_opens_its_decisions(tmp_path: Path) -> None:
    signed = await exported_with_a_run(tmp_path / "home.db", key=KEY)
    lines = signed.splitlines(keepends=True)
    cut = json.loads(lines[-1])
    del cut["hmac"]
    unsigned = b"".join([*lines[:-1], json.dumps(cut).encode() + b"\n"])
    changed = forged(signed, "run", lambda values: values["labels"].update(agent="another"))
    as_signed = b"".join([*changed.splitlines(keepends=True)[:-1], changed.splitlines()[-1][:-1]])
    as_signed += b', "hmac": "' + json.loads(lines[-1])["hmac"].encode() + b'"}\n'
    target = tmp_path / "target.db"
    for data, key, why in [
        (unsigned, KEY, "is not signed"),
        (changed, KEY, "is not signed"),
        (as_signed, KEY, "signed with another key, or was changed since"),
        (signed, KEY[::-1], "signed with another key, or was changed since"),
    ]:
        with pytest.raises(ExportFileError, match=why):
            await import_session(target, io.BytesIO(data), key=key, accept_runs=True)
    assert not target.exists()
    for key in ("short", b""):
        with pytest.raises(InvalidSettingError, match="can be guessed"):
            await import_session(target, io.BytesIO(signed), key=key)
    assert (await import_session(target, io.BytesIO(signed), accept_runs=True)).moved == ("run-7",)
    assert await recovered(target) == []  # without the key it is a file like any other


async def test_a_call_that_pretends_to_have_a_run_inside_it_is_not_approved_by_that(tmp_path: Path) -> None:
    """C16: a call whose own run waits inside was let run before; a stranger's file alone says that it was."""

    def begun(values: dict[str, Any]) -> None:
        inner = {"spec": {"run_id": "inner", "agent": "clerk"}, "progress": {"agent": "clerk", "ended": True}}
        inside = {**inner, "views": [{"base": [], "tail": 0}]}
        values["head"]["turn"]["calls"][0].update(state="asked", reason=None, kind="agent", child=inside)

    data, target = await exported_with_a_run(tmp_path / "home.db", decided=False), tmp_path / "target.db"
    with pytest.raises(RunStateError, match="with a run inside it"):
        await import_session(target, io.BytesIO(forged(data, "run", begun)), accept_runs=True)
    assert not target.exists()


@pytest.mark.parametrize("own", ["a session of its own", "its parent's"])
@pytest.mark.parametrize("needs_approval", [True, False])
async def test_a_run_inside_a_call_comes_from_a_signed_file_only(
    tmp_path: Path, own: str, needs_approval: bool
) -> None:
    """C16: with `needs_approval=True` its inner run went on, though nobody of the target's had let its call run."""
    source, file, target = tmp_path / "home.db", tmp_path / "one.jsonl", tmp_path / "target.db"
    inner = Desk([asks(pay(1_000_000, "inner-1")), says("Paid.")])
    own_session = SQLiteSession("two", source) if own == "a session of its own" else None
    tool = inner.agent.as_tool("clerk", "Let the clerk do it.", session=own_session, needs_approval=needs_approval)
    call = function_call("clerk", {"input": "Pay."}, call_id="c1")
    outer: Any = Agent(name="boss", tools=[tool], model=ScriptedModel([asks(call)]))
    session = SQLiteSession("one", source)
    result = await Runner.run(outer, "Please.", session=session, run_config=RunConfig(run_id="run-7"))
    if needs_approval:
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(outer, state, session=session)
    assert [item.call_id for item in result.interruptions] == ["inner-1"]
    await export_session(source, "one", file, move=True, key=KEY)
    with pytest.raises(RunStateError, match="with a run inside it"):
        await import_session(target, file, accept_runs=True)
    assert (await import_session(target, file)).left == ("run-7",)  # as the error says: without its runs
    assert (await import_session(target, file, accept_runs=True, key=KEY)).moved == ("run-7",)
    await session.close()
    if own_session is not None:
        await own_session.close()


async def test_what_is_left_of_a_run_that_another_session_has_moved_away_is_not_written_over(tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    session = SQLiteSession("two", target)
    await Desk([asks(pay(5, "call-9"))]).run("Pay.", session=session, run_config=RunConfig(run_id="run-7"))
    await session.close()
    await copy_sessions(target, tmp_path / "elsewhere.db", ["two"], move=True)
    data = await exported_with_a_run(tmp_path / "home.db")
    with pytest.raises(RunStateError, match="the target has another run 'run-7'"):
        await import_session(target, io.BytesIO(data), accept_runs=True)
    async with open_store(target, read_only=True) as store:
        view = await store.run("run-7")
        assert (view.session_id, view.doing[:12]) == ("two", "was moved to")


# --- branches and cells ----------------------------------------------------------------------------------------------


async def test_a_branch_of_a_file_never_is_a_session_that_the_target_has(tmp_path: Path) -> None:
    home, target = tmp_path / "home.db", tmp_path / "target.db"
    session = AdvancedSQLiteSession(session_id="one", db_path=home, create_tables=True)
    await session.add_items([message("a"), message("b")])
    await session.create_branch_from_turn(2, "side")
    await session.switch_to_branch("main")
    session.close()
    await export_session(home, "one", file := tmp_path / "one.jsonl")
    await filled(target, "two")

    def another(values: dict[str, Any]) -> None:
        values["value"]["made"]["side"]["id"] = "two"

    for _ in range(2):
        done = await import_session(target, io.BytesIO(forged(file.read_bytes(), "cell", another)))
    assert done.outcome == "equal"
    there = AdvancedSQLiteSession(session_id="one", db_path=target, create_tables=True)
    await there.switch_to_branch("side")
    assert await there.get_items() == []
    await there.add_items([message("on the branch")])
    there.close()
    assert (await snapshot(target, "two"))[0] == [message("of two")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease", {"number": 9, "ttl_s": 1e9}),
        ("r/run-1", ["running", 0]),
        ("gens", [[1, 0.0, 1]]),
        ("w/w", {}),
        ("d/0/w", {}),
        ("imported", ["", "", ""]),
        ("b/run-1", "t"),
        ("m/run-1", {}),
        ("l/x", "t"),
        ("x/1", "1"),
        ("u/0/run-1", [0, []]),
        ("anything", {}),
        ("branches", {"made": {"side": {"id": "x", "made": 1e308}}}),
        ("branches", {"made": {"side": "two"}}),
        ("branches", {"made": {"": {"id": "x", "made": 1}}}),
        ("branches", {"current": "not there"}),
        ("branches", {"clears": -1}),
        ("branches", ["two"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_cell_that_is_not_a_list_of_branches_is_refused_and_nothing_is_stored(
    tmp_path: Path, name: str, value: Any
) -> None:
    await filled(tmp_path / "home.db", "one")
    await export_session(tmp_path / "home.db", "one", file := tmp_path / "one.jsonl")
    target = tmp_path / "target.db"
    with pytest.raises(ExportFileError, match="nothing was imported"):
        await import_session(
            target, io.BytesIO(with_line(file.read_bytes(), {"kind": "cell", "name": name, "value": value}))
        )
    assert not target.exists()


# --- what cannot be read ---------------------------------------------------------------------------------------------

DEEP = b"[" * 100_000
ODD_LINES = {
    "nested": b'{"kind":"usage","run":"r","number":0,"at":1,"requests":' + DEEP,
    "nested item": b'{"kind":"record","item":' + DEEP,
    "an item that is a number": b'{"kind":"record","item":5}',
    "an item that is not UTF-8": b'{"kind":"record","item":{"a":"\xff"}}',
    "half a surrogate pair": b'{"kind":"record","item":"\\ud800"}',
    "a zero": b'{"kind":"record","item":"\\u0000"}',
    "odd digits": b'{"kind":"writer","name":"v","items":1,"known_from":0,"digests":"abc"}',
    "no digits": b'{"kind":"writer","name":"v","items":1,"known_from":0,"digests":"zz"}',
    "too few digests": b'{"kind":"writer","name":"v","items":2,"known_from":0,"digests":"' + b"ab" * 16 + b'"}',
    "a negative count": b'{"kind":"writer","name":"v","items":-1,"known_from":0,"digests":""}',
    "a huge count": b'{"kind":"writer","name":"v","items":' + b"9" * 5000 + b',"known_from":0,"digests":""}',
    "a huge number": b'{"kind":"record","item":{},"writer":"v","number":9223372036854775808}',
    "a time before time": b'{"kind":"record","item":{},"at":-1e300}',
    "a time behind time": b'{"kind":"record","item":{},"at":1e308}',
    "no time": b'{"kind":"record","item":{},"at":NaN}',
    "an endless time": b'{"kind":"record","item":{},"at":1e999}',
    "a generation without end": b'{"kind":"generation","number":1,"created":1e308,"items":0}',
    "generation 0": b'{"kind":"generation","number":0,"created":1,"items":0}',
    "more items than records": b'{"kind":"generation","number":1,"created":1,"items":7}',
    "an origin of no time": b'{"kind":"origin","session":"s","index":0,"generation":null,"at":1e308}',
    "a usage of nothing": b'{"kind":"usage","run":"r","number":0,"at":1,"requests":[{}]}',
    "a usage of text": b'{"kind":"usage","run":"r","number":0,"at":1,"requests":[{"turn":1,"usage":"many"}]}',
    "an endless usage": b'{"kind":"usage","run":"r","number":0,"at":1,"requests":'
    b'[{"turn":1,"usage":{"requests":1e999}}]}',
    "a run without labels": b'{"kind":"run","id":"r","labels":{},"revision":1,"head":{},"logs":{}}',
    "a run of an odd status": b'{"kind":"run","id":"r","labels":{"session":"one","agent":"a","status":"x"},'
    b'"revision":1,"head":{},"logs":{}}',
    "an end of odd types": b'{"kind":"run","id":"r","labels":{"session":"one","agent":"a","status":"done"},'
    b'"revision":1,"head":{"schema":"standfast.run","version":1,"ended":"r","status":5,"agent":[]},"logs":{}}',
}


@pytest.mark.parametrize("line", ODD_LINES.values(), ids=ODD_LINES)
async def test_an_odd_line_is_one_error_with_a_remedy_and_nothing_is_stored(tmp_path: Path, line: bytes) -> None:
    await filled(tmp_path / "home.db", "one")
    await export_session(tmp_path / "home.db", "one", file := tmp_path / "one.jsonl")
    target = tmp_path / "target.db"
    with pytest.raises((ExportFileError, RunStateError)) as raised:
        await import_session(target, io.BytesIO(with_line(file.read_bytes(), line)))
    assert raised.value.remedy
    assert not target.exists()


@pytest.mark.parametrize(
    "first",
    [
        b"{" + b'"a":{' * 100_000,
        DEEP,
        b'{"schema":"standfast.session","version":true,"session":"one","created":1,"updated":1}',
        b'{"schema":"standfast.session","version":' + b"9" * 5000 + b"}",
        b'{"schema":"standfast.session","version":1,"session":"one","created":NaN,"updated":1}',
        b'{"schema":"standfast.session","version":1,"session":"one","created":1,"updated":1e999}',
        b'{"schema":"standfast.session","version":1,"session":"","created":1,"updated":1}',
        b'{"schema":"standfast.session","version":1,"session":"\\ud800","created":1,"updated":1}',
    ],
)
async def test_an_odd_first_line_is_one_error_with_a_remedy(tmp_path: Path, first: bytes) -> None:
    with pytest.raises(StandfastError) as raised:
        await import_session(tmp_path / "target.db", io.BytesIO(first + b"\n"))
    assert raised.value.remedy
    assert not (tmp_path / "target.db").exists()


# --- a source store that is not one's own ----------------------------------------------------------------------------


async def forged_store(path: Path, statement: str, *values: object) -> Path:
    session = AdvancedSQLiteSession(session_id="one", db_path=path, create_tables=True)
    await session.add_items([message("a"), message("b")])
    await session.create_branch_from_turn(2, "side")
    await session.switch_to_branch("main")
    await Desk([asks(pay(7, "call-1"))]).run("Pay.", session=session, run_config=RunConfig(run_id="run-7"))
    session.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, values).rowcount == 1
    return path


@pytest.mark.parametrize("move", [False, True])
async def test_a_copy_takes_no_branch_of_another_session(tmp_path: Path, move: bool) -> None:
    cell = b'{"made":{"side":{"id":"two","made":1}},"used":["side"]}'
    update = "UPDATE agent_messages_standfast_cells SET value = ? WHERE owner = 'sone' AND name = 'branches'"
    source, target = await forged_store(tmp_path / "a.db", update, cell), tmp_path / "target.db"
    await filled(target, "two")
    ((_, error),) = (await copy_sessions(source, target, ["one"], move=move)).refused
    assert "is kept in a session of another conversation" in error.what
    async with open_store(target, read_only=True) as store:
        assert [one.session_id for one in (await store.sessions()).sessions] == ["two"]
    async with open_store(source, read_only=True) as store:
        assert (await store.run("run-7")).status == "paused"  # it was not closed


async def test_a_copy_takes_no_run_of_another_session(tmp_path: Path) -> None:
    update = (
        'UPDATE agent_messages_standfast_cells SET value = replace(value, \'"id":"one"\', \'"id":"two"\') '
        "WHERE owner = 'rrun-7' AND name = 'head'"
    )
    source, target = await forged_store(tmp_path / "a.db", update), tmp_path / "target.db"
    await filled(target, "two")
    ((_, error),) = (await copy_sessions(source, target, ["one"], move=True)).refused
    assert "belongs to another one" in error.what
    async with open_store(target, read_only=True) as store:
        with pytest.raises(NotFoundError):
            await store.run("run-7")


# --- who can read them -----------------------------------------------------------------------------------------------


async def test_only_its_owner_can_read_an_export_and_one_that_is_written_over_keeps_its_mode(tmp_path: Path) -> None:
    await filled(tmp_path / "home.db", "one")
    file = tmp_path / "one.jsonl"
    before = os.umask(0o022)
    try:
        await export_session(tmp_path / "home.db", "one", file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o640)
        await export_session(tmp_path / "home.db", "one", file, overwrite=True)
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
    finally:
        os.umask(before)
