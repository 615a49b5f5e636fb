"""Moving sessions: repeated, refused, cut in half, under way with runs that could still act, and killed anywhere."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import agents
import pytest
from agents.extensions.memory import RedisSession as SDKRedisSession

from standfast import (
    EncryptedSession,
    ExportFileError,
    InMemorySession,
    InMemoryStore,
    RunConfig,
    Runner,
    SessionConflictError,
    SQLiteSession,
    Store,
    copy_sessions,
    export_session,
    import_session,
    open_store,
    store_of,
)
from standfast._kits.operators.copy_sessions import closed_runs, place_of
from standfast._kits.operators.export_session import write_atomically
from standfast._src.base.errors import (
    InvalidSettingError,
    NotFoundError,
    RunStateError,
    SchemaTooNewError,
    SealKeyError,
    SessionBusyError,
    StoreFullError,
    StoreUnavailableError,
)
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.rules.snapshot import Picture
from standfast._src.sessions.storage import KeyUpdate, Load, Name, Tag
from tests.helpers import servers
from tests.helpers.children import born
from tests.helpers.reading_everything import everything_of, times_of
from tests.operators.mover import move_and_die
from tests.runs.saved_runs.payment_app import Desk, asks, pay, says


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def talk(path: Path, session_id: str = "talk", count: int = 5) -> SQLiteSession:
    session = SQLiteSession(session_id, path)
    await session.append([message(f"number {n}") for n in range(count)], writer="w", start=0)
    return session


async def paused(session: StoredSession, run_id: str = "run-7") -> Desk:
    """A run on the session that waits for a decision about a payment."""
    desk = Desk([asks(pay(120, "call-1")), says("Paid.")])
    result = await desk.run("Please pay.", session=session, run_config=RunConfig(run_id=run_id))
    assert result.interruptions
    return desk


async def finished(store: Store, session_id: str = "talk", run_id: str = "run-7") -> Desk:
    """Approve the payment in a store and resume the run there."""
    await store.decide(run_id, "call-1", True, by="ada")
    desk = Desk([says("Paid.")])
    session = store.session(session_id)
    result = await Runner.resume(desk.agent, run_id, session=session)
    assert result.final_output == "Paid."
    await session.close()
    return desk


# --- repeating -------------------------------------------------------------------------------------------------------


async def test_repeating_a_copy_brings_what_has_come_since(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source)
    outcomes = []

    async def copied() -> None:
        report = await copy_sessions(source, target)
        assert not report.refused
        outcomes.append(report.copied[0].outcome)
        other = SQLiteSession("talk", target)
        assert await everything_of(other) == await everything_of(session)
        await other.close()

    await copied()
    await copied()
    await session.append([message("more")], writer="w", start=5)
    await copied()
    await session.replace([message("in short")], upto=await session.head())
    await copied()
    await session.clear_session()
    await session.add_items([message("again")])
    await copied()
    assert outcomes == ["copied", "equal", "updated", "updated", "updated"]
    await session.close()


async def test_a_target_that_has_gone_on_is_left_alone_and_two_that_both_have_are_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source)
    await copy_sessions(source, target)
    there = SQLiteSession("talk", target)
    await there.add_items([message("said there")])
    assert (await copy_sessions(source, target)).copied[0].outcome == "ahead"
    assert len(await there.get_items()) == 6
    await session.add_items([message("said here")])
    ((refused, error),) = (await copy_sessions(source, target)).refused
    assert (refused, type(error)) == ("talk", SessionConflictError)
    assert "has changed since" in str(error)
    assert len(await there.get_items()) == 6
    await session.close()
    await there.close()


async def test_a_session_of_the_same_id_is_never_written_over(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    await (await talk(source)).close()
    other = await talk(target, count=2)
    report = await copy_sessions(source, target)
    assert not report.copied
    await export_session(source, "talk", tmp_path / "talk.jsonl")
    with pytest.raises(SessionConflictError, match="is another one; nothing was changed"):
        await import_session(target, tmp_path / "talk.jsonl")
    assert len(await other.get_items()) == 2
    await other.close()


async def test_all_sessions_come_in_their_order_with_progress_and_one_refusal_ends_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    for number in range(5):
        await (await talk(source, f"talk-{number}")).close()
    await (await talk(target, "talk-2", count=1)).close()
    seen: list[tuple[int, int]] = []
    report = await copy_sessions(source, target, progress=lambda one: seen.append((one.done, one.total)))
    assert [one.session_id for one in report.copied] == ["talk-0", "talk-1", "talk-3", "talk-4"]
    assert [name for name, _ in report.refused] == ["talk-2"]
    assert seen == [(number, 5) for number in range(1, 6)]
    async with open_store(target, read_only=True) as store:
        listed = [one.session_id for one in (await store.sessions()).sessions]
    assert listed == ["talk-4", "talk-3", "talk-1", "talk-0", "talk-2"]
    (missing,) = (await copy_sessions(source, target, ["no such talk"])).refused
    assert isinstance(missing[1], NotFoundError)
    with pytest.raises(InvalidSettingError, match="one store"):
        await copy_sessions(source, tmp_path / "." / "a.db")


async def test_a_copy_is_of_one_instant_while_the_source_is_in_use(tmp_path: Path) -> None:
    """A turn of two items, appended over and over: no copy ever has half of one, and each goes on from the last."""
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source, count=2)
    stop = asyncio.Event()

    async def writing() -> None:
        start = 2
        while not stop.is_set():
            await session.append([message("question"), message("answer")], writer="w", start=start)
            start += 2
            if start % 20 == 0:
                await session.replace([message("in"), message("short")], upto=await session.head())

    writer = asyncio.create_task(writing())
    there = SQLiteSession("talk", target)
    for _ in range(10):
        report = await copy_sessions(source, target)
        assert not report.refused, report.refused
        assert len(await there.get_items()) % 2 == 0
    stop.set()
    await writer
    await copy_sessions(source, target)
    assert await everything_of(there) == await everything_of(session)
    await session.close()
    await there.close()


# --- runs that could still act ---------------------------------------------------------------------------------------


async def test_a_run_that_could_still_act_is_left_behind_and_named(tmp_path: Path) -> None:
    source, target, file = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "talk.jsonl"
    session = await talk(source)
    await paused(session)
    assert (await copy_sessions(source, target)).copied[0].left == ("run-7",)
    assert (await export_session(source, "talk", file)).left == ("run-7",)
    assert b"run-7" not in b"".join(line for line in file.read_bytes().splitlines() if b'"run"' in line[:20])
    async with open_store(target, read_only=True) as store:
        with pytest.raises(NotFoundError):
            await store.run("run-7")
    async with open_store(source) as store:
        desk = await finished(store)
    assert desk.done == [("pay", 120)]
    await session.close()


async def test_a_moved_run_goes_on_at_the_target_and_only_there(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source)
    await paused(session)
    await copy_sessions(source, target)  # without it first: the run is then brought behind what is there
    (done,) = (await copy_sessions(source, target, move=True)).copied
    assert (done.moved, done.left) == (("run-7",), ())
    for attempt in (
        lambda: Runner.resume(Desk([says("Paid.")]).agent, "run-7", session=session),
        lambda: paused(session),  # the same run id again, as a program does that was restarted
    ):
        with pytest.raises(RunStateError, match=r"was moved to sqlite:.*b\.db, and goes on there"):
            await attempt()
    async with open_store(source, read_only=True) as store:
        view = await store.run("run-7")
        assert view.status == "cancelled"
        assert view.doing.startswith("was moved to sqlite:")
    async with open_store(target) as store:
        desk = await finished(store)
        again = (await copy_sessions(source, target, move=True)).copied
        assert [(one.outcome, one.moved) for one in again] == [("ahead", ())]
        assert (await store.run("run-7")).status == "done"
    assert desk.done == [("pay", 120)]
    await session.close()


async def test_a_run_that_a_worker_is_at_is_not_moved(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source)
    await paused(session)
    async with await session.lease(ttl_s=30, wait_s=0, holder="a worker"):
        ((_, error),) = (await copy_sessions(source, target, move=True, wait_s=0.1)).refused
    assert isinstance(error, SessionBusyError)
    async with open_store(source) as store:
        assert (await finished(store)).done == [("pay", 120)]
    await session.close()


async def test_a_run_goes_to_a_file_and_from_there_to_another_store_once(tmp_path: Path) -> None:
    source, target, file = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "talk.jsonl"
    session = await talk(source)
    await paused(session)
    file.write_text("something else")
    with pytest.raises(ExportFileError, match="is there already"):
        await export_session(source, "talk", file, move=True)
    file.unlink()
    with pytest.raises(ExportFileError, match="not into a stream"):
        await export_session(source, "talk", io.BytesIO(), move=True)
    assert (await export_session(source, "talk", file, move=True)).moved == ("run-7",)
    assert (await import_session(target, file)).left == ("run-7",)
    assert (await import_session(target, file, accept_runs=True)).moved == ("run-7",)
    async with open_store(target) as store:
        assert (await finished(store)).done == [("pay", 120)]
        there = store.session("talk")
        await there.clear_session()
        assert (await import_session(store, file, accept_runs=True)).moved == ()  # it has acted already
        with pytest.raises(NotFoundError):
            await store.run("run-7")
        await there.close()
    await session.close()


async def test_a_run_whose_id_the_target_knows_otherwise_is_not_closed(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session, other = await talk(source), await talk(target, "other talk")
    await paused(session)
    await paused(other)
    ((_, error),) = (await copy_sessions(source, target, move=True)).refused
    assert isinstance(error, RunStateError)
    assert "another run 'run-7'" in str(error)
    async with open_store(source) as store:
        assert (await store.run("run-7")).status == "paused"
    await session.close()
    await other.close()


# --- killed anywhere -------------------------------------------------------------------------------------------------


async def resumable(url: str, run_id: str) -> bool:
    """Whether somebody who has the agents could make the run go on there."""
    if not url.startswith(("redis", "postgres")) and not Path(url).exists():
        return False
    async with open_store(url) as store:
        try:
            return (await store.run(run_id)).status in ("paused", "ready", "running")
        except NotFoundError:
            return False


@pytest.mark.parametrize("kind", ["files", pytest.param("servers", marks=[pytest.mark.redis, pytest.mark.postgres])])
def test_killed_between_any_two_steps_a_moved_run_exists_once(kind: str, tmp_path: Path) -> None:
    """kill -9 of a real process at every step: never two that can be resumed, never none; repeating finishes it."""
    name = f"k{uuid.uuid4().hex}"
    servers_urls = None
    if kind == "servers":
        servers_urls = (f"{servers.redis_url()}?key_prefix={name}", f"{servers.postgres_url()}?schema={name}")

    def scenario(step: int) -> bool:
        run_id, session_id = f"run-{step}", f"talk-{step}"
        source, target = servers_urls or (str(tmp_path / f"a{step}.db"), str(tmp_path / f"b{step}.db"))

        async def before() -> None:
            async with open_store(source, create=True) as store:
                session = store.session(session_id)
                await session.append([message("hello")], writer="w", start=0)
                await paused(session, run_id)
                await session.close()

        async def after() -> None:
            assert [await resumable(source, run_id), await resumable(target, run_id)] != [True, True]
            if kind == "servers":  # the lease of a dead process on another machine would be waited for
                async with open_store(source) as store:
                    await store.unlock(session_id)
            report = await copy_sessions(source, target, [session_id], move=True)
            assert not report.refused, report.refused
            assert [await resumable(source, run_id), await resumable(target, run_id)] == [False, True]
            async with open_store(target) as store:
                assert (await finished(store, session_id, run_id)).done == [("pay", 120)]
            await copy_sessions(source, target, [session_id], move=True)  # nothing is left to be brought a second time
            assert not await resumable(target, run_id)

        asyncio.run(before())
        child = born(move_and_die, source, target, session_id, step)
        child.join(300)
        was_killed = child.exitcode == -signal.SIGKILL
        assert was_killed or child.exitcode == 0, child.exitcode
        asyncio.run(after())
        return was_killed

    step = 0
    while scenario(step):
        step += 1
    assert step > 6, "a move has more steps than that: the child was not killed at each"


def test_killed_on_its_way_into_a_file_a_run_is_in_the_store_or_in_the_file(tmp_path: Path) -> None:
    def scenario(step: int) -> bool:
        source, file, target = (str(tmp_path / f"{step}{end}") for end in ("a.db", ".jsonl", "b.db"))

        async def before() -> None:
            session = await talk(Path(source))
            await paused(session)
            await session.close()

        async def after() -> None:
            assert not (await resumable(source, "run-7") and Path(file).exists())
            await export_session(source, "talk", file, move=True, overwrite=False) if not Path(file).exists() else None
            assert not await resumable(source, "run-7")
            assert (await import_session(target, file, accept_runs=True)).moved == ("run-7",)
            async with open_store(target) as store:
                assert (await finished(store)).done == [("pay", 120)]

        asyncio.run(before())
        child = born(move_and_die, source, file, "talk", step)
        child.join(300)
        was_killed = child.exitcode == -signal.SIGKILL
        assert was_killed or child.exitcode == 0, child.exitcode
        asyncio.run(after())
        return was_killed

    step = 0
    while scenario(step):
        step += 1
    assert step > 4
    assert not list(tmp_path.glob("*.part"))


async def test_a_move_that_broke_off_is_not_finished_at_another_target(tmp_path: Path) -> None:
    """It may have arrived at the first one already: then it would exist twice."""
    source, first, second = (tmp_path / name for name in ("a.db", "b.db", "c.db"))
    session = await talk(source)
    await paused(session)
    child = born(move_and_die, str(source), str(first), "talk", 8)
    await asyncio.to_thread(child.join, 300)
    assert child.exitcode == -signal.SIGKILL
    assert not await resumable(str(source), "run-7")
    ((_, error),) = (await copy_sessions(source, second, move=True)).refused
    assert isinstance(error, RunStateError)
    assert "on its way to sqlite:" in str(error)
    assert str(first) in str(error)
    first.unlink(missing_ok=True)
    (done,) = (await copy_sessions(source, second, move=True, elsewhere=True)).copied
    assert done.moved == ("run-7",)
    await session.close()


async def test_a_run_that_has_arrived_is_known_as_that_though_both_sides_have_gone_on(tmp_path: Path) -> None:
    """Killed before the source could forget it: the rest is refused, and the run is not on its way any more."""
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source)
    await paused(session)
    step = 8
    while not await resumable(str(target), "run-7"):
        child = born(move_and_die, str(source), str(target), "talk", step)
        await asyncio.to_thread(child.join, 300)
        assert child.exitcode == -signal.SIGKILL
        step += 1
    async with open_store(target) as store:
        await finished(store)
    await session.add_items([message("said here")])
    ((_, error),) = (await copy_sessions(source, target, move=True)).refused
    assert isinstance(error, SessionConflictError)
    (done,) = (await copy_sessions(source, tmp_path / "c.db", move=True)).copied
    assert done.moved == ()
    await session.close()


async def test_a_decision_that_comes_between_the_last_read_and_the_step_is_moved_too(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    session = await talk(source)
    await paused(session)
    seen = []

    async def decided(picture: Picture) -> None:
        seen.append(picture.unfinished[0].status)
        if len(seen) == 1:
            async with open_store(source) as store:
                await store.decide("run-7", "call-1", True, by="ada")

    await closed_runs(session, place_of(open_store(target, create=True)), 1.0, decided)
    assert seen == ["paused", "ready"]
    assert (await copy_sessions(source, target, move=True)).copied[0].moved == ("run-7",)
    async with open_store(target) as store:
        view = await store.run("run-7")
        assert view.status == "ready"
        assert view.calls[0].decision is not None
    await session.close()


# --- files -----------------------------------------------------------------------------------------------------------


async def exported(tmp_path: Path) -> bytes:
    session = await talk(tmp_path / "a.db", count=3)
    await session.replace([message("short\u2028")], upto=await session.head())
    await session.close()
    buffer = io.BytesIO()
    await export_session(tmp_path / "a.db", "talk", buffer)
    return buffer.getvalue()


async def test_every_way_to_cut_or_change_a_file_is_noticed_and_nothing_is_imported(tmp_path: Path) -> None:
    whole = await exported(tmp_path)
    lines = whole.splitlines(keepends=True)
    damaged = [whole[:size] for size in range(0, len(whole), 37)]
    damaged += [b"".join(lines[:place] + lines[place + 1 :]) for place in range(len(lines))]
    damaged += [b"".join([*lines, lines[1]]), whole.replace(b"number 1", b"number 9"), whole.replace(b"\n", b"\n\n", 1)]
    damaged += [b"".join([lines[0], b"\xff\xfe\n", *lines[1:]]), b"", b"\n", b"[]\n", b"SQLite format 3\0"]
    target = tmp_path / "b.db"
    for data in damaged:
        with pytest.raises(ExportFileError):
            await import_session(target, io.BytesIO(data))
    assert not target.exists()
    newer = whole.replace(b'"version":1', b'"version":2', 1)
    with pytest.raises(SchemaTooNewError, match="version 2, and this standfast reads up to 1"):
        await import_session(target, io.BytesIO(newer))
    with pytest.raises(ExportFileError, match="cannot be read"):
        await import_session(target, tmp_path / "no such file")
    assert (await import_session(target, io.BytesIO(whole))).items == 4


async def test_a_file_is_json_that_other_programs_can_read(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (await exported(tmp_path)).decode().split("\n")[:-1]]
    assert (lines[0]["schema"], lines[0]["version"], lines[0]["session"]) == ("standfast.session", 1, "talk")
    assert [line["kind"] for line in lines[1:]] == ["writer", "generation", *["record"] * 4, "end"]
    record = lines[4]
    assert (record["writer"], record["number"], record["generation"]) == ("w", 1, 1)
    assert record["item"] == message("number 1")
    assert lines[-1]["lines"] == len(lines) - 1


TIMES = (1081173106.5, 1081173106.5, None, 1500000000.25, 1400000000.125, 1700000000.0)


@pytest.mark.redis
@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
async def test_times_are_kept_as_exactly_as_the_target_can(kind: str, tmp_path: Path) -> None:
    """Of rows that were written years ago, at equal times, at an unknown one, and by a clock that went back."""
    memory = InMemoryStore()
    source = store_of(lambda session_id: InMemorySession(session_id, store=memory), "memory")
    session = source.session(f"t{uuid.uuid4().hex}")
    rows = [(json.dumps(message(str(at))).encode(), Tag()) for at in TIMES]
    earlier = Load(live=rows, times=TIMES, created=1081173106.5)
    memory.commit([KeyUpdate(Name("session", session.session_id), load=earlier, touch=True)])
    name = uuid.uuid4().hex
    url = {"redis": f"{servers.redis_url()}?key_prefix={name}", "postgres": f"{servers.postgres_url()}?schema=t{name}"}
    others = InMemoryStore()
    in_memory = store_of(lambda session_id: InMemorySession(session_id, store=others), "memory")
    target = in_memory if kind == "memory" else open_store(url.get(kind, str(tmp_path / "b.db")), create=True)
    async with target:
        (done,) = (await copy_sessions(source, target)).copied
        assert done.is_verified
        there = target.session(session.session_id)
        created, found = await times_of(there)
        assert created == 1081173106.5
        expected: list[Any] = list(TIMES)
        if kind in ("redis", "postgres"):  # rows stand in the order of their times, a microsecond apart
            expected = [TIMES[0], TIMES[0], TIMES[0], TIMES[3], TIMES[3], TIMES[5]]
        assert found == [None if at is None else pytest.approx(at, abs=1e-5) for at in expected]
        await there.close()


async def test_a_full_disk_and_an_interrupt_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        with write_atomically(str(tmp_path / "x.jsonl")) as part:
            part.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    session = await talk(tmp_path / "a.db", count=2000)
    await session.close()
    with monkeypatch.context() as patched:

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patched.setattr(os, "fsync", full)  # where a disk says last that it has no room
        with pytest.raises(StoreFullError, match="nothing is left of it"):
            await export_session(tmp_path / "a.db", "talk", tmp_path / "y.jsonl")
    with pytest.raises(StoreUnavailableError, match="could not be written"):
        await export_session(tmp_path / "a.db", "talk", tmp_path / "no folder" / "y.jsonl")
    assert {one.name for one in tmp_path.iterdir() if "jsonl" in one.name} == set()


async def test_a_target_that_is_down_breaks_the_copy_off_and_repeating_goes_on(tmp_path: Path) -> None:
    source = tmp_path / "a.db"
    for number in range(3):
        await (await talk(source, f"talk-{number}")).close()
    down = f"redis://127.0.0.1:{servers.free_port()}/0"
    with pytest.raises(StoreUnavailableError):
        await copy_sessions(source, open_store(down, timeout_s=0.5))
    with pytest.raises(StoreUnavailableError):
        await copy_sessions(tmp_path / "no such.db", source)

    def stop_at_two(one: Any) -> None:
        if one.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_sessions(source, tmp_path / "b.db", progress=stop_at_two)
    report = await copy_sessions(source, tmp_path / "b.db")
    assert [one.outcome for one in report.copied] == ["equal", "equal", "copied"]


# --- what is in it ---------------------------------------------------------------------------------------------------


async def test_a_sealed_session_is_moved_by_whoever_has_the_key(tmp_path: Path) -> None:
    def sealed(path: Path, secret: str, tenant: str) -> Store:
        def made(session_id: str) -> EncryptedSession:
            return EncryptedSession(session_id, SQLiteSession(session_id, path), secret, tenant=tenant)

        return store_of(made, f"sealed {path}")

    source, target = sealed(tmp_path / "a.db", "key one", "t1"), sealed(tmp_path / "b.db", "key two", "t2")
    session = source.session("talk")
    await session.append([message(f"secret {n}") for n in range(3)], writer="w", start=0)
    await session.rewind(writer="w", to=1)
    await session.append([message("secret again")], writer="w", start=1)
    await session.replace([message("secret in short")], upto=await session.head())
    await paused(session)
    ((_, error),) = (await copy_sessions(tmp_path / "a.db", tmp_path / "c.db")).refused
    assert isinstance(error, SealKeyError)
    assert "cannot be read without its key" in str(error)
    (done,) = (await copy_sessions(source, target, move=True)).copied
    assert (done.is_verified, done.moved) == (True, ("run-7",))
    there = target.session("talk")
    expected, found = await everything_of(session), await everything_of(there)
    assert expected.pop("runs") != found.pop("runs")
    assert expected.pop("saved") != found.pop("saved")
    assert found == expected
    assert (await finished(target)).done == [("pay", 120)]
    assert not any(b"secret" in one.read_bytes() for one in tmp_path.iterdir() if one.name.startswith(("a.db", "b.db")))
    clear = await copy_sessions(target, tmp_path / "d.db")  # also without a seal, by whoever may read it
    assert clear.copied[0].is_verified
    await session.close()
    await there.close()


async def test_a_database_of_the_sdk_is_taken_over_as_it_is(tmp_path: Path) -> None:
    theirs: Any = agents.SQLiteSession("talk", tmp_path / "sdk.db")
    await theirs.add_items([message("hello"), message("wörld")])
    (done,) = (await copy_sessions(tmp_path / "sdk.db", tmp_path / "b.db")).copied
    assert (done.items, done.is_verified) == (2, True)
    theirs.close()
    ours = SQLiteSession("talk", tmp_path / "b.db")
    assert await ours.get_items() == [message("hello"), message("wörld")]
    assert [one.at for one in (await ours.records()).records if one.at is None] == []
    await ours.close()


@pytest.mark.redis
async def test_what_the_sdk_keeps_on_a_server_is_taken_over_too(tmp_path: Path) -> None:
    prefix = f"s{uuid.uuid4().hex}"
    theirs: Any = SDKRedisSession.from_url("talk", url=servers.redis_url(), key_prefix=prefix)
    await theirs.add_items([message("hello"), message("wörld")])
    await theirs.close()
    (done,) = (await copy_sessions(f"{servers.redis_url()}?key_prefix={prefix}", tmp_path / "b.db")).copied
    assert (done.items, done.is_verified) == (2, True)
    ours = SQLiteSession("talk", tmp_path / "b.db")
    assert await ours.get_items() == [message("hello"), message("wörld")]
    await ours.close()


@pytest.mark.redis
async def test_a_session_of_the_sdk_goes_to_a_cluster_while_it_writes_and_takes_a_waiting_run_along() -> None:
    prefix = f"s{uuid.uuid4().hex}"
    source = f"{servers.redis_url()}?key_prefix={prefix}"
    target = f"{servers.cluster_url()}?cluster=1&key_prefix={prefix}"
    theirs: Any = SDKRedisSession.from_url("talk", url=servers.redis_url(), key_prefix=prefix)
    await theirs.add_items([message("hello")])
    assert [one.outcome for one in (await copy_sessions(source, target)).copied] == ["copied"]
    await theirs.add_items([message("wörld")])
    async with open_store(source) as old:
        session = old.session("talk")
        await paused(session)
        (done,) = (await copy_sessions(source, target, move=True)).copied
        assert (done.outcome, done.moved, done.is_verified) == ("updated", ("run-7",), True)
        with pytest.raises(RunStateError, match="was moved to"):
            await Runner.resume(Desk([says("Paid.")]).agent, "run-7", session=session)
        await session.close()
    await theirs.close()
    async with open_store(target) as new:
        assert (await finished(new)).done == [("pay", 120)]
        there = new.session("talk")
        assert [one.get("content") for one in (await there.get_items())[:3]] == ["hello", "wörld", "Please pay."]
        await there.close()


async def test_records_that_are_no_text_are_left_and_counted(tmp_path: Path) -> None:
    memory = InMemoryStore()
    source = store_of(lambda session_id: InMemorySession(session_id, store=memory), "memory")
    session = source.session("talk")
    await session.add_items([message("one")])
    memory.inject_record("talk", b"\xff\xfe")
    memory.inject_record("talk", b"{broken")
    (done,) = (await copy_sessions(source, tmp_path / "b.db")).copied
    assert (done.items, done.untold, done.is_verified) == (2, 1, True)
    there = SQLiteSession("talk", tmp_path / "b.db")
    assert [one.data for one in await there.corrupt_records()] == [b"{broken"]
    await there.close()
