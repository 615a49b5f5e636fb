"""Voice calls that go with their session: copied when they have ended, moved and imported while a question waits."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from standfast import SQLiteSession, copy_sessions, export_session, function_tool, import_session, open_store
from standfast._src.base.errors import RunStateError
from standfast.realtime import RealtimeAgent
from standfast.testing import LoopbackRealtimeServer
from standfast.testing.loopback import call
from tests.operators.forged import forged
from tests.realtime.session.helpers import Reader, at, runner


class Booking:
    """An agent that books when a person has approved it, and what it has booked."""

    def __init__(self) -> None:
        self.booked: list[int] = []

        @function_tool(needs_approval=True)
        def book(places: int) -> str:
            """Book."""
            self.booked.append(places)
            return f"booked {places}"

        self.runner = runner(RealtimeAgent(name="clerk", tools=[book]))


def answer(*_: Any) -> Any:
    return call("book", {"places": 2})


async def hung_up(path: Path, *, is_answered: bool = False) -> None:
    """A call on session `caller`, hung up while a question waits, or behind its reply."""
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(None if is_answered else answer) as server:
        session = await Booking().runner.run(session=store, run_id="call-7", model_config=at(server))
        async with session:
            reader = Reader(session)
            await session.send_message("please book")
            await reader.until("audio_end" if is_answered else "tool_approval_required")
        await reader.task
    await store.close()


async def status_in(path: Path) -> str:
    async with open_store(path, read_only=True) as store:
        return (await store.run("call-7")).status


async def approved_in(path: Path) -> list[int]:
    """What is booked when the question is approved in that store."""
    booking, store = Booking(), SQLiteSession("caller", path)
    session = await booking.runner.resume("call-7", session=store)
    await session.enter(connect=False)
    (asked,) = session.pending_approvals
    await session.approve_tool_call(asked.call_id)
    await session.settled()
    await session.close()
    await store.close()
    return booking.booked


async def test_a_voice_call_that_ended_is_copied_and_imported_with_its_session(tmp_path: Path) -> None:
    """B16: what is `ended` in a call was taken for the id of another run, and the session was refused."""
    source, file = tmp_path / "source.db", tmp_path / "caller.jsonl"
    await hung_up(source, is_answered=True)
    report = await copy_sessions(source, tmp_path / "copy.db")
    assert ([one.runs for one in report.copied], report.refused) == ([1], [])
    await export_session(source, "caller", file)
    assert (await import_session(tmp_path / "imported.db", file)).runs == 1
    assert [await status_in(tmp_path / name) for name in ("copy.db", "imported.db")] == ["done", "done"]


async def test_a_voice_call_with_a_question_is_moved_and_decided_at_the_target(tmp_path: Path) -> None:
    source, copy, file, target = (tmp_path / name for name in ("source.db", "copy.db", "caller.jsonl", "target.db"))
    await hung_up(source)
    report = await copy_sessions(source, copy, move=True)
    assert ([one.moved for one in report.copied], report.refused) == ([("call-7",)], [])
    await export_session(copy, "caller", file, move=True)
    assert (await import_session(target, file)).left == ("call-7",)
    assert (await import_session(target, file, accept_runs=True)).moved == ("call-7",)
    assert await status_in(target) == "paused"
    assert await approved_in(target) == [2]


def of_another(values: dict[str, Any]) -> None:
    values["head"]["session_id"] = "two"


def of_none(values: dict[str, Any]) -> None:
    values["head"]["session_id"] = None


def with_a_run_inside(values: dict[str, Any]) -> None:
    spec = {"run_id": "inner", "agent": "clerk", "owner": {"kind": "session", "id": "two"}}
    inner = {"spec": spec, "progress": {"agent": "clerk"}, "views": [{"base": None, "tail": 0}]}
    values["head"]["calls"][0]["call"]["child"] = inner


@pytest.mark.parametrize("change", [of_another, of_none, with_a_run_inside])
async def test_a_voice_call_of_another_session_is_refused(tmp_path: Path, change: Any) -> None:
    source, file, target = tmp_path / "source.db", tmp_path / "caller.jsonl", tmp_path / "target.db"
    await hung_up(source)
    await export_session(source, "caller", file, move=True)
    data = forged(file.read_bytes(), "run", change)
    with pytest.raises(RunStateError, match=r"belongs to another one|with a run inside it; nothing was imported"):
        await import_session(target, io.BytesIO(data), accept_runs=True)
    assert not target.exists()
