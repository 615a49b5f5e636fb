"""Checks of an engine's adapter, each for a sentence of G1.

A check gets a `Trial` without workers and stages a fault. All end with the same judgement: every effect once or
said to be unknown, every message answered, every job ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from standfast._kits.conformance.engines.engine import LOG_BYTES_MAX
from standfast._kits.conformance.engines.fated_agent import AGENT, Message
from standfast._kits.conformance.engines.trial import Trial
from standfast._kits.workers.jobs import RunJob
from standfast._src.base.errors import StandfastError

Body = Callable[[Trial], Awaitable[None]]

ROUNDS_MAX = 6
# Each round visits most of the places.


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """Check of a sentence of G1; `needs` is an optional method of the description."""

    sentence: str
    name: str
    body: Body
    needs: str = ""


CHECKS: dict[str, EngineCheck] = {}
"""Every check by name, in order."""


def proves(sentence: str, needs: str = "") -> Callable[[Body], Body]:
    """Register a function as a check of a sentence."""

    def register(body: Body) -> Body:
        name = getattr(body, "__name__", "")
        CHECKS[name] = EngineCheck(sentence, name, body, needs)
        return body

    return register


async def _end_well(trial: Trial) -> None:
    await trial.until_answered()
    unmet = trial.book.unmet()
    trial.expect(not unmet, f"the check staged nothing: no worker came to {unmet[:3]}")
    await trial.judge()


# --- the log ---------------------------------------------------------------------------------------------------------


@proves("G1a")
async def the_log_of_a_job_does_not_grow_with_the_conversation(trial: Trial) -> None:
    """A short conversation, and one of 40 calls with outputs of 5 KB, a decision and a long input."""
    small = trial.message("small", "pay")
    large = trial.message("large", *["pay/5"] * 40, "ask", "pay")
    trial.staff.open()
    await trial.put(small, large)
    await _end_well(trial)
    sizes = [await trial.engine.log_bytes(trial.client, one.run_id) for one in (small, large)]
    trial.expect(
        max(sizes) <= LOG_BYTES_MAX,
        f"the engine keeps {sizes[0]:,} bytes of a job of 1 call and {sizes[1]:,} of one of 42 calls, "
        f"{LOG_BYTES_MAX:,} at most are wanted",
    )


# --- deliveries ------------------------------------------------------------------------------------------------------


@proves("G1b")
async def a_job_delivered_several_times_at_once_runs_once(trial: Trial) -> None:
    """The web process repeats itself, and the engine delivers the job under three further names."""
    twice = trial.message("twice", "pay", "ask", "pay")
    alone = trial.message("alone", "pay", "pay", session=None)
    await trial.put(twice, alone)
    await trial.put(twice, alone)
    for number in range(3):
        await trial.deliver(twice, f"again{number}")
        await trial.deliver(alone, f"again{number}")
    trial.staff.open()
    await _end_well(trial)


@proves("G1b")
async def a_job_delivered_after_its_end_changes_nothing(trial: Trial) -> None:
    """A late delivery, and a late repeat of the web process."""
    late = trial.message("late", "pay", "pay")
    trial.staff.open()
    await trial.put(late)
    await _end_well(trial)
    before = await trial.history(late)
    await trial.deliver(late, "late")
    await trial.put(late)

    async def has_ended() -> bool:
        return await trial.engine.is_over(trial.client, f"{late.run_id}-late")

    await trial.until("the late delivery never ended", has_ended)
    trial.expect(await trial.history(late) == before, "the late delivery changed the history")
    await _end_well(trial)


@proves("G1b")
async def a_job_whose_acknowledgement_is_lost_ends_once(trial: Trial) -> None:
    """SIGKILL of the worker between the end of the run and the acknowledgement."""
    lost = trial.message("lost", "pay", "pay")
    trial.book.order(f"{lost.run_id}.end", "kill")
    trial.staff.open()
    await trial.put(lost)
    await _end_well(trial)


# --- order -----------------------------------------------------------------------------------------------------------


@proves("G1c")
async def messages_delivered_in_another_order_are_heard_in_their_own(trial: Trial) -> None:
    """Three messages of one session, delivered last to first."""
    said = [trial.message(f"said{number}", "pay", session="talk") for number in range(3)]
    for one in said:
        await trial.save(one)
    for one in reversed(said):
        await trial.deliver(one, "reordered")
    trial.staff.open()
    await _end_well(trial)
    heard = [item["content"] for item in await trial.history(said[0]) if item.get("role") == "user"]
    trial.expect(heard == [one.text for one in said], f"they were heard as {heard}")


# --- workers that end ------------------------------------------------------------------------------------------------


@proves("G1d")
async def a_worker_killed_at_every_effect_doubles_nothing(trial: Trial) -> None:
    """SIGKILL around each request and each effect, and after the end, in a run for each place."""
    calls = ("pay", "ask")
    places = Message("", None, calls).places
    await _meet(trial, "kill", {f"killed{number}": (calls, number) for number, _ in enumerate(places)})


@proves("G1d")
async def a_worker_stopped_past_its_lease_doubles_nothing(trial: Trial) -> None:
    """SIGSTOP around an effect and before a request; SIGCONT after two leases."""
    calls = ("pay", "pay")
    places = [Message("", None, calls).places.index(place) for place in (".0.before", ".0.after", ".1.model")]
    await _meet(trial, "stop", {f"stopped{number}": (calls, number) for number in places})


async def _meet(trial: Trial, kind: str, wanted: dict[str, tuple[tuple[str, ...], int]]) -> None:
    """Let a worker meet a fate at each place, in a run for each.

    The death of a worker also interrupts its further runs, at places of their own. A place without a visitor is tried
    again with a new run.
    """
    trial.staff.open()
    left = dict(wanted)
    for attempt in range(ROUNDS_MAX):
        ordered: dict[str, str] = {}
        for name, (calls, number) in left.items():
            session = None if number % 4 == 3 else ""
            message = trial.message(f"{name}-{attempt}", *calls, session=session)
            ordered[name] = message.places[number]
            trial.book.order(ordered[name], kind)
            await trial.put(message)
        await trial.until_answered()
        await trial.judge()
        left = {name: left[name] for name, place in ordered.items() if place in trial.book.unmet()}
        if not left:
            return
    trial.broken(f"the check staged nothing: no worker came to {sorted(left)}")


@proves("G1d")
async def a_worker_told_to_stop_hands_its_runs_over(trial: Trial) -> None:
    """SIGTERM during a short call: the effect happens once, and the output is known."""
    deployed = [trial.message(f"deployed{number}", "pay", "pay", "pay") for number in range(3)]
    for one in deployed:
        trial.book.order(f"{one.run_id}.1.before", "term")
        await trial.put(one)
    trial.staff.open()
    await _end_well(trial)
    lines = trial.book.lines()
    lost = [call_id for one in deployed for call_id in one.call_ids if call_id not in lines]
    trial.expect(not lost, f"a call that a worker had begun and could end was cut: {lost}")


# --- people ----------------------------------------------------------------------------------------------------------


@proves("G1f")
async def a_decision_counts_once_at_any_moment(trial: Trial) -> None:
    """Decisions before the end of the paused job, after the end, twice, and without notice to the engine."""
    early = trial.message("early", "ask", "pay")
    unheard = trial.message("unheard", "ask", "pay")
    twice = trial.message("twice", "ask", "pay")
    trial.not_decided |= {early.run_id, unheard.run_id, twice.run_id}
    trial.book.order(f"{early.run_id}.end", "stop")  # its job is still open while the decision is made
    trial.staff.open()
    await trial.put(early, unheard, twice)
    for one in (early, unheard, twice):
        await trial.until_waiting(one)
    await trial.approve(early, early.call_ids[0])
    await trial.store.decide(unheard.run_id, unheard.call_ids[0], True, by="ann")
    both = await asyncio.gather(*(trial.approve(twice, twice.call_ids[0]) for _ in range(2)), return_exceptions=True)
    trial.expect(not all(isinstance(one, BaseException) for one in both), f"both decisions were refused: {both}")
    await _end_well(trial)


@proves("G1f")
async def a_cancelled_run_ends_wherever_it_is(trial: Trial) -> None:
    """Cancellations in the queue and while the run waits for a person."""
    queued = trial.message("queued", "pay")
    await trial.put(queued)
    await _until_cancelled(trial, queued)
    waiting = trial.message("waiting", "pay", "ask")
    other = trial.message("other", "pay", "ask", "pay")
    trial.not_decided.add(waiting.run_id)
    trial.staff.open()
    await trial.put(waiting, other)
    await trial.until_waiting(waiting)
    await _until_cancelled(trial, waiting)
    await trial.until_answered()
    trial.expect(not [line for line in trial.book.lines() if line in queued.call_ids], "a run that was taken back ran")
    for one in (queued, waiting):
        end = await trial.jobs.end_of(RunJob(one.run_id, AGENT, one.session_id))
        trial.expect(end is not None and end.status == "cancelled", f"{one.run_id} was cancelled and ended as {end}")
    await trial.judge([other])


async def _until_cancelled(trial: Trial, message: Message) -> None:
    async def cancel() -> bool:
        return await trial.client.cancel(message.run_id, by="ann")

    await trial.until(f"{message.run_id} was never cancelled", cancel)


# --- processes and servers -------------------------------------------------------------------------------------------


@proves("G1e")
async def a_message_whose_process_died_before_the_engine_heard_is_answered(trial: Trial) -> None:
    """Runs in the store without a job."""
    await trial.save(trial.message("saved", "pay", "ask"))
    await trial.save(trial.message("alone", "pay", session=None))
    trial.staff.open()
    await _end_well(trial)


@proves("G1e")
async def no_worker_for_a_while_loses_nothing(trial: Trial) -> None:
    """SIGKILL of all workers; new workers start after the end of the leases."""
    left = [trial.message(f"left{number}", *["pay"] * 20) for number in range(3)]
    await trial.put(*left)
    trial.staff.open()

    async def look() -> bool:
        return len(trial.book.lines()) >= 5

    await trial.until("no effect ever happened", look)
    trial.staff.kill_all()
    await asyncio.sleep(trial.engine.lease_ttl_s)
    trial.staff.open()
    await _end_well(trial)


@proves("G1e", needs="restart_server")
async def a_restart_of_the_engines_server_loses_nothing(trial: Trial) -> None:
    """SIGKILL of the server while runs are under way, wait for a person, and wait for a worker."""
    await _restart(trial, trial.engine.restart_server)


@proves("G1e", needs="restart_store")
async def a_restart_of_the_stores_server_loses_nothing(trial: Trial) -> None:
    """SIGKILL of the server while runs are under way, wait for a person, and wait for a worker."""
    await _restart(trial, trial.engine.restart_store)


async def _restart(trial: Trial, restart: Callable[[], Any]) -> None:
    waiting = trial.message("waiting", "ask", "pay")
    trial.not_decided.add(waiting.run_id)
    trial.staff.open()
    await trial.put(waiting)
    await trial.until_waiting(waiting)
    busy = [trial.message(f"busy{number}", *["pay"] * 20) for number in range(3)]
    await trial.put(*busy)
    count = len(trial.book.lines())

    async def look() -> bool:
        return len(trial.book.lines()) >= count + 5

    await trial.until("no effect ever happened", look)
    await asyncio.to_thread(restart)

    async def decide() -> bool:
        try:
            await trial.approve(waiting, waiting.call_ids[0])
        except StandfastError:
            raise
        except Exception as error:  # the engine's own client, whose server is being started
            raise OSError(str(error)) from error
        return True

    await trial.until("the decision was never taken", decide)
    await _end_well(trial)
