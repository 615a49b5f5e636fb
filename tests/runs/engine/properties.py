"""What must be true of every telling of a script: the properties that the tests and the mutants share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from runs.engine.schedule import Action, Engine, Play, Saves
from runs.engine.schedule_world import Script, assert_provider_valid, call_ids, counted, user

from standfast._src.items.texts_for_models import DEFAULT_TEXTS
from standfast._src.runs.engine.request import ordinals_to_send


def assert_what_ran_is_known(play: Play) -> None:
    """A begun call is in the history, and is not repeated unless it is declared repeatable or a person said so."""
    world = play.world
    for (path, call_id), times in world.ran.items():
        call = world.call_of(world.script_at(path), call_id)
        if call.kind == "handoff":
            continue
        if call.doubt != "rerun" and (path, call_id) not in world.allowed_again:
            assert times == 1, f"{call_id} ran {times} times"
    known = set(call_ids(entry.item for entry in play.run.ledger))
    for path, call_id in world.ran_ids:
        if world.call_of(world.script_at(path), call_id).kind != "handoff":
            # However the run ended, what it did is in its history, or in that of the call that did it (C8).
            assert (path[0] if path else call_id) in known, f"{call_id} ran unrecorded"


def assert_stored_well(play: Play) -> None:
    """The session holds this run's settled items, once each, in order, and nothing a provider would refuse."""
    run, world = play.run, play.world
    if run.spec.owner.kind == "session":
        own = [item for writer, item in world.session(()).rows if writer == "run"]
        whole = [entry.item for entry in run.ledger]
        assert own == whole[: run.marks.stored]
        assert len(own) == max(run.marks.ready, len(own))
        assert_provider_valid(own)
        if run.finished and run.progress.stop is None:
            assert own == whole, "the run has ended and something of it is not stored"
    for session in world.sessions.values():
        assert_provider_valid(session.items)


def assert_staged_input_admitted(play: Play) -> None:
    """What a person added while the run waited is in the history once, or still waits."""
    run = play.run
    admitted = [entry.item for entry in run.ledger if entry.kind == "input_item"]
    if play.world.staged and not play.stopped:
        assert [*admitted, *run.progress.staged] == [user(text) for text in play.script.staged]
    if not play.world.staged:
        assert not admitted


def assert_guardrails_kept(play: Play) -> None:
    """After an input trip exactly the input is stored; after an output trip the message is not (C6)."""
    script, run, world = play.script, play.run, play.world
    if script.owner != "session" or not run.finished:
        return
    own = [item for writer, item in world.session(()).rows if writer == "run"]
    if script.trips != "no" and run.tripped:
        assert own == [user(text) for text in script.input]
    # A run that was stopped at once and resumed may end in another turn than its script says.
    if run.progress.ended and script.output_trips and not play.stopped:
        last = script.turn(run.progress.turns) if run.progress.turns else None
        if last is not None and last.calls and last.final:
            calls = set(call_ids(own)[-len(last.calls) :])
            outputs = [item["output"] for item in own if item.get("call_id") in calls and "output" in item]
            assert len(outputs) == sum(call.kind != "hosted" for call in last.calls), "a call that ran is gone"
            assert all(output == DEFAULT_TEXTS.output_withheld for output in outputs)
        else:
            used_up = last is None or not last.final  # the withheld message is a handler's, behind all turns
            earlier = [script.turn(number) for number in range(1, run.progress.turns + used_up)]
            messages = [item for item in own if item.get("type") == "message"]
            assert len(messages) == sum(not turn.calls for turn in earlier), "the rejected message is stored"


def assert_server_agrees(play: Play) -> None:
    """The server has exactly one copy of what the run says it has; the rest is still offered (D2, D11)."""
    run = play.run
    if not run.spec.owner.is_server or play.script.trips != "no" or play.script.output_trips or play.run.tripped:
        return
    has = play.world.server(()).context(run.marks.response_id)
    offers = [run.ledger[ordinal].item for ordinal in ordinals_to_send(run)]
    if run.progress.outgoing is None:
        assert counted(has) + counted(offers) == counted(entry.item for entry in run.ledger)


def told(script: Script) -> Iterator[Script]:
    """The script and those of its nested runs."""
    yield script
    for call in (call for turn in script.turns for call in turn.calls):
        if call.child is not None:
            yield from told(call.child)


def assert_same_history(play: Play, calm: Play) -> None:
    """Nothing that happened on the way shows: the histories, the charges and the end are those of the calm run."""
    unknown = play.world.unknown
    for path in {*play.world.sessions, *calm.world.sessions}:
        assert play.world.retold(path, unknown) == calm.world.retold(path, unknown)
    ours, theirs = play.run.progress, calm.run.progress
    assert play.raised == calm.raised
    for name in ("agent", "ended", "verdict", "output"):
        assert getattr(ours, name) == getattr(theirs, name)
    # A reply that a tripwire cut is charged only if it had arrived (C11): the clock decides.
    if play.script.trips != "parallel":
        assert ours.turns == theirs.turns
    if not any(script.trips == "parallel" for script in told(play.script)):
        assert len(play.run.responses) == len(calm.run.responses)
    assert len(play.run.ledger) == len(calm.run.ledger)


def check(
    script: Script,
    schedule: Sequence[Action],
    saves: Saves = "every",
    engine: Engine | None = None,
    calmly: Callable[[], Play] | None = None,
) -> Play:
    """Play a script along a schedule and assert everything that must hold of it.

    What it is compared with is always told by the engine itself, also where a mutant tells the other.
    """
    play = Play(script, saves=saves, engine=engine).play(schedule)
    assert_what_ran_is_known(play)
    assert_stored_well(play)
    assert_staged_input_admitted(play)
    assert_guardrails_kept(play)
    assert_server_agrees(play)
    if not play.stopped and not any(kind == "other" for kind, _ in schedule):
        assert_same_history(play, calmly() if calmly is not None else Play(script).play(()))
        assert not any(output == DEFAULT_TEXTS.not_completed for output in _outputs(play))
    return play


def _outputs(play: Play) -> list[object]:
    return [item.get("output") for session in play.world.sessions.values() for item in session.items]
