"""Operators can see it: one log line and one event on a span for each thing worth knowing, without what was said."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from standfast import (
    Agent,
    InMemorySession,
    LeaseLostError,
    RedisSession,
    RunConfig,
    Runner,
    SessionBusyError,
    function_tool,
)
from standfast._src.base.operational_events import EVENTS, MEASURES
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from tests.helpers import servers
from tests.helpers.children import program

SECRET = "my-secret-word"
PAGE = Path(__file__).parents[2] / "docs/how-to/trace-runs.md"


class Seen:
    """What the log and the spans told."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._log, self._exporter, self.provider = caplog, InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def config(self, **more: Any) -> RunConfig:
        return RunConfig(tracing={"tracer_provider": self.provider}, **more)

    def lines(self, name: str) -> list[str]:
        level, line = EVENTS[name]
        return [one.getMessage() for one in self._log.records if one.msg == line and one.levelno == level]

    def events(self, name: str) -> list[dict[str, Any]]:
        spans = self._exporter.get_finished_spans()
        return [dict(event.attributes or {}) for span in spans for event in span.events if event.name.endswith(name)]

    def check_one(self, name: str, *words: str) -> None:
        """Exactly one line and one event, which say this and nothing of what was said."""
        (line,), (event,) = self.lines(name), self.events(name)
        for word in words:
            assert word in line
            assert any(word in str(value) for value in event.values())
        assert SECRET not in line
        assert SECRET not in str(event)


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Seen:
    caplog.set_level(logging.INFO, "standfast")
    return Seen(caplog)


def speaker() -> Agent[Any]:
    return Agent(name="A", model=ScriptedModel([final(SECRET)]))


def payer(*replies: Any, **tool: Any) -> Agent[Any]:
    @function_tool(**tool)
    async def pay(why: str) -> str:
        """Pay."""
        return SECRET

    return Agent(name="A", tools=[pay], model=ScriptedModel(list(replies)))


ASKED = [function_call("pay", {"why": SECRET}, call_id="c1")]


async def test_waiting_for_a_lease_and_how_long(seen: Seen) -> None:
    session = InMemorySession("s")
    lease = await session.lease(ttl_s=60, wait_s=0)
    running = asyncio.create_task(Runner.run(speaker(), SECRET, session=session, run_config=seen.config(run_id="r1")))
    await asyncio.sleep(0.7)
    await lease.release()
    await running
    seen.check_one("lease_waited", "r1", "s")
    (event,) = seen.events("lease_waited")
    assert event["standfast.seconds"] >= 0.5


async def test_taking_a_session_over(seen: Seen) -> None:
    session = InMemorySession("s")
    await session.lease(ttl_s=0.1, wait_s=0, holder="run r0", renewed=False)
    await asyncio.sleep(0.2)
    await Runner.run(speaker(), SECRET, session=session, run_config=seen.config(run_id="r1"))
    seen.check_one("lease_taken_over", "r1", "session 's'", "run r0")


async def test_nobody_is_told_of_a_session_that_was_given_back(seen: Seen) -> None:
    session = InMemorySession("s")
    for _ in range(2):
        await Runner.run(speaker(), SECRET, session=session, run_config=seen.config())
    assert not any(seen.lines(name) or seen.events(name) for name in EVENTS)


async def test_resuming(seen: Seen) -> None:
    session, config = InMemorySession("s"), seen.config(run_id="r1")
    paused = await Runner.run(payer(ASKED, needs_approval=True), SECRET, session=session, run_config=config)
    assert not seen.lines("run_resumed")
    state = paused.to_state()
    state.approve(state.get_interruptions()[0])
    agent = payer(final(SECRET), needs_approval=True)
    await Runner.run(agent, state, session=session, run_config=seen.config())
    seen.check_one("run_resumed", "r1")


async def test_settling(seen: Seen) -> None:
    session = InMemorySession("s")
    agent = payer(ASKED, ModelStep(error=OSError("down")))
    with pytest.raises(OSError, match="down"):
        await Runner.run(agent, SECRET, session=session, run_config=seen.config(run_id="r1"))
    await Runner.run(speaker(), SECRET, session=session, run_config=seen.config())
    seen.check_one("run_unfinished", "r1", "gone", "settled")


async def test_a_message_that_is_sent_and_heard(seen: Seen) -> None:
    session = InMemorySession("s")

    @function_tool
    async def look() -> str:
        """Look, while a message arrives."""
        await session.send(SECRET, agent="A", message_id="m1")
        return SECRET

    model = ScriptedModel([[function_call("look", {}, call_id="c1")], final(SECRET)])
    agent: Agent[Any] = Agent(name="A", tools=[look], model=model)
    await Runner.run(agent, SECRET, session=session, run_config=seen.config(run_id="r1"))
    seen.check_one("message_sent", "m1", "s")
    seen.check_one("message_heard", "m1", "r1")


async def test_an_outcome_that_stays_unknown(seen: Seen) -> None:
    session, began = InMemorySession("s"), asyncio.Event()

    @function_tool
    async def pay(why: str) -> str:
        """Pay."""
        began.set()
        await asyncio.sleep(60)
        return SECRET

    agent: Agent[Any] = Agent(name="A", tools=[pay], model=ScriptedModel([ASKED]))
    running = asyncio.create_task(Runner.run(agent, SECRET, session=session, run_config=seen.config(run_id="r1")))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    seen.check_one("outcome_unknown", "r1", "call c1")


async def test_a_repair_of_records(seen: Seen) -> None:
    session = InMemorySession("s")
    await session.add_items([{"role": "user", "content": SECRET}])
    session.store.inject_record("s", SECRET.encode())
    await Runner.run(speaker(), SECRET, run_config=seen.config())  # now tracing is loaded
    with seen.provider.get_tracer("mine").start_as_current_span("housekeeping"):
        assert len(await session.repair()) == 1
    seen.check_one("session_repaired", "s")


@pytest.mark.redis
async def test_a_retry_of_a_store(seen: Seen) -> None:
    url, prefix = servers.redis_url(), f"seen-{uuid.uuid4().hex}"
    session = RedisSession.from_url("s", url=url, key_prefix=prefix)

    @function_tool
    async def pay(why: str) -> str:
        """Pay, while the store loses every connection."""
        with redis.Redis.from_url(url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        return SECRET

    agent: Agent[Any] = Agent(name="A", tools=[pay], model=ScriptedModel([ASKED, final(SECRET)]))
    await Runner.run(agent, SECRET, session=session, run_config=seen.config())
    await session.close()
    (line,) = seen.lines("store_retried")  # one for each store and minute, however many had to ask again
    assert seen.events("store_retried")
    assert f"prefix '{prefix}'" in line
    assert "session 's'" in line
    assert "Redis did not answer" in line
    assert SECRET not in line


@pytest.mark.redis
async def test_a_server_that_is_away_is_told_of_once_for_all_who_ask(caplog: pytest.LogCaptureFixture) -> None:
    """It was a line for each operation: hundreds in some seconds, which named neither store nor session."""
    level, line = EVENTS["store_retried"]
    url, prefix = servers.redis_url(), f"seen-{uuid.uuid4().hex}"
    sessions = [RedisSession.from_url(f"s{number}", url=url, key_prefix=prefix) for number in range(8)]
    for _ in range(3):
        await asyncio.gather(*(session.add_items([{"role": "user", "content": SECRET}]) for session in sessions))
        with redis.Redis.from_url(url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
    await asyncio.gather(*(session.get_items() for session in sessions))
    for session in sessions:
        await session.close()
    assert len([one for one in caplog.records if one.msg == line and one.levelno == level]) == 1


@pytest.mark.redis
async def test_a_retry_behind_the_back_of_the_run(seen: Seen) -> None:
    """A lease is renewed by a thread: what that one has to repeat is told, too, as the run's that has the lease."""
    url = servers.redis_url()
    session = RedisSession.from_url("s", url=url, key_prefix=f"seen-{uuid.uuid4().hex}")
    told_in_the_tool: list[str] = []

    @function_tool
    async def pay(why: str) -> str:
        """Wait, while the store loses every connection, until a renewal has met that."""
        async with asyncio.timeout(60):
            while not told_in_the_tool:
                with redis.Redis.from_url(url) as client:
                    client.client_kill_filter(_type="normal", skipme=True)
                await asyncio.sleep(0.3)
                told_in_the_tool.extend(seen.lines("store_retried"))
        return SECRET

    agent: Agent[Any] = Agent(name="A", tools=[pay], model=ScriptedModel([ASKED, final(SECRET)]))
    await Runner.run(agent, SECRET, session=session, run_config=seen.config(lease_ttl_s=3.0))
    await session.close()
    assert told_in_the_tool
    assert seen.events("store_retried")


async def test_a_run_that_lost_its_session(seen: Seen) -> None:
    session = InMemorySession("s")

    @function_tool
    async def pay(why: str) -> str:
        """Stand still while an operator takes the session away."""
        await session.revoke_lease()
        return SECRET

    agent: Agent[Any] = Agent(name="A", tools=[pay], model=ScriptedModel([ASKED, final(SECRET)]))
    with pytest.raises(LeaseLostError):
        await Runner.run(agent, SECRET, session=session, run_config=seen.config(run_id="r1"))
    seen.check_one("lease_lost", "r1", "LeaseLostError")


async def crashed(session: InMemorySession) -> None:
    """Leave a run as a worker leaves it that dies in its tool: by the store, not by the run."""
    begun = asyncio.Event()

    @function_tool
    async def pay(why: str) -> str:
        """Pay."""
        begun.set()
        await asyncio.Event().wait()
        return SECRET

    agent: Agent[Any] = Agent(name="A", tools=[pay], model=ScriptedModel([ASKED]))
    config = RunConfig(run_id="gone")
    running = asyncio.create_task(Runner.run(agent, SECRET, session=session, run_config=config))
    await begun.wait()
    await session.revoke_lease()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_run_of_a_crashed_worker_that_is_settled(seen: Seen) -> None:
    session = InMemorySession("s")
    await crashed(session)
    await Runner.run(speaker(), SECRET, session=session, run_config=seen.config(run_id="r2", unfinished="settle"))
    seen.check_one("run_settled", "gone", "r2")


async def test_a_message_that_is_refused(seen: Seen) -> None:
    session = InMemorySession("s")
    lease = await session.lease(ttl_s=60, wait_s=0, holder="the other worker")
    with pytest.raises(SessionBusyError):
        await Runner.run(speaker(), SECRET, session=session, run_config=seen.config(lease_wait_s=0.0))
    (line,) = seen.lines("message_refused")
    assert "'s'" in line
    assert "the other worker" in line
    await lease.release()


async def test_a_run_that_is_recovered(seen: Seen) -> None:
    session = InMemorySession("s")
    await crashed(session)
    report = await Runner.recover([payer(final(SECRET))], sessions=lambda name: session)
    assert [one.outcome for one in report.runs] == ["continued"]
    (line,) = seen.lines("run_recovered")
    assert line == "run gone was recovered: continued"


METRICS = """
    import asyncio, sys
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))

    from standfast import Agent, InMemorySession, RunConfig, Runner, SessionBusyError, SQLiteSession, function_tool
    from standfast import open_store
    from standfast._src.base.operational_events import EVENTS, emit
    from standfast.testing import ScriptedModel, function_call

    @function_tool(needs_approval=True)
    async def pay(why: str) -> str:
        "Pay."
        return why

    async def main():
        for run_id in ("waits", "decided"):
            script = [[function_call("pay", {"why": "x"}, call_id="c")]]
            agent = Agent(name="A", tools=[pay], model=ScriptedModel(script))
            config = RunConfig(run_id=run_id)
            await Runner.run(agent, "Pay.", session=SQLiteSession(run_id, sys.argv[1]), run_config=config)
        async with open_store(sys.argv[1]) as store:
            await store.decide("decided", "c", True, by="Ada")
            await store.backlog()
            await store.set_budget("total/tokens/acme", 5)
            await store.budgets()
        for event in EVENTS:
            facts = "holder seconds session what before run status found done count store reason by outcome".split()
            emit(event, **dict.fromkeys(facts, 1))

    asyncio.run(main())
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    for metric in scope.metrics:
        for point in metric.data.data_points:
            if metric.name.startswith("standfast."):
                age = metric.name.endswith("age")
                value = "some" if age and point.value > 0 else point.value
                print(metric.name, metric.unit, value, point.attributes.get("standfast.event", ""))
"""


def test_every_metric_is_seen_with_its_value(tmp_path: Path) -> None:
    child = program(METRICS, tmp_path / "talks.db")
    said, _ = child.communicate(timeout=300)
    assert child.returncode == 0
    lines = {line.strip() for line in said.splitlines()}
    assert {
        "standfast.runs.waiting {run} 1",
        "standfast.runs.waiting.age s some",
        "standfast.approvals.waiting {call} 1",
        "standfast.budget.left 1 5",
        "standfast.budget.used 1 0",
    } <= lines
    counted = {line.split()[-1] for line in lines if line.startswith("standfast.events {event} 1 ")}
    assert counted == set(EVENTS)
    table = (PAGE.parent / "log-and-alert.md").read_text("utf-8")
    assert all(f"`{name}`" in table for name in (*MEASURES, "standfast.events"))


def test_every_event_has_a_test_that_sees_it_fire() -> None:
    here = Path(__file__).read_text("utf-8")
    assert [name for name in EVENTS if f'("{name}"' not in here] == []


def test_the_page_on_tracing_lists_every_event() -> None:
    """The table of the page is the table of the code: name, level, line."""
    rows = re.findall(r"^\| `standfast\.(\w+)` \| (\w+) \| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    wanted = [
        (name, logging.getLevelName(level).lower(), re.sub(r"%\((\w+)\)[.\d]*\w", r"<\1>", line))
        for name, (level, line) in EVENTS.items()
    ]
    assert rows == wanted


# --- who holds it ----------------------------------------------------------------------------------------------------


async def test_a_busy_session_says_who_holds_it_and_since_when(session: Any) -> None:
    """Since when it is held, not since when it was last renewed."""
    lease = await session.lease(ttl_s=60, wait_s=0, holder="run the-holder")
    taken_at = (await refused(session)).since
    assert isinstance(taken_at, datetime)
    await asyncio.sleep(0.05)
    await lease.renew()
    error = await refused(session)
    assert error.since == taken_at
    assert "run the-holder" in str(error.holder)
    assert "run the-holder" in str(error)
    assert taken_at.isoformat(timespec="seconds") in str(error)
    await lease.release()


async def refused(session: Any) -> SessionBusyError:
    with pytest.raises(SessionBusyError) as busy:
        await Runner.run(speaker(), "me", session=session, run_config=RunConfig(concurrency="reject"))
    return busy.value
