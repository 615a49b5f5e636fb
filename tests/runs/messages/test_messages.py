"""CONTRACT part F: what becomes of messages to a conversation, case by case, where the kit's checks do not go."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    Budget,
    EncryptedSession,
    GuardrailFunctionOutput,
    InputGuardrail,
    MaxTurnsExceeded,
    NotFoundError,
    OutcomeUnknownError,
    OutputGuardrail,
    Position,
    RunConfig,
    Runner,
    SealKeyError,
    SessionConflictError,
    SQLiteSession,
    UsageLimitExceeded,
    UsageLimits,
    copy_sessions,
    export_session,
    function_tool,
    import_session,
    open_store,
)
from standfast._src.sessions.client.stored_session import StoredSession
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

CALL = [function_call("work", {}, call_id="c1")]
DONE = [assistant_message("done")]
FAILS = ModelStep(error=RuntimeError("the model is away"))


def kinds(items: list[Any]) -> list[str]:
    return [str(one["content"]) if one.get("role") == "user" else str(one.get("role") or one["type"]) for one in items]


def agent_of(*steps: Any, work: Callable[[], Any] | None = None, **more: Any) -> Agent[Any]:
    async def act() -> str:
        """Work."""
        if work is not None:
            await work()
        return "worked"

    return Agent("A", model=ScriptedModel(list(steps)), tools=[function_tool(act, name_override="work")], **more)


def requests_of(agent: Agent[Any]) -> list[list[str]]:
    return [kinds(call.input) for call in agent.model.calls]  # type: ignore[union-attr]


@pytest.fixture
def talk(tmp_path: Path) -> Callable[..., SQLiteSession]:
    return lambda session_id="talk": SQLiteSession(session_id, tmp_path / "store.db")


Talk = Callable[..., SQLiteSession]

TURN = ["go", "function_call", "function_call_output"]


# --- Runner.send -----------------------------------------------------------------------------------------------------


async def test_send_runs_a_message_to_an_idle_conversation_and_tells_of_it_later(talk: Talk) -> None:
    """F2a, F1c."""
    agent = agent_of(DONE)
    receipt = await Runner.send(agent, "hello", session=talk(), message_id="m")
    assert (receipt.state, receipt.run_id, receipt.is_new) == ("done", "m", True)
    again = await Runner.send(agent, "hello", session=talk(), message_id="m")
    assert (again.state, again.run_id, again.is_new) == ("done", "m", False)
    assert kinds(await talk().get_items()) == ["hello", "assistant"]
    assert (await Runner.result(agent, "m", session=talk())).final_output == "done"


async def test_send_leaves_a_message_to_the_run_under_way(talk: Talk) -> None:
    """F2b: the sender returns at once, and the run under way hears the message."""
    found: list[Any] = []

    async def work() -> None:
        found.append(await Runner.send(agent_of(), "hurry", session=talk(), message_id="m"))

    agent = agent_of(CALL, DONE, work=work)
    result = await Runner.run(agent, "go", session=talk())
    assert found[0].state == "waiting"
    assert result.heard == ("m",)
    assert requests_of(agent)[-1] == [*TURN, "hurry"]


async def test_a_message_that_came_too_late_for_a_run_is_begun_by_the_sender_that_ran_it(talk: Talk) -> None:
    """F2f: no worker recovers runs here, and each of three people is answered."""

    async def send_late(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        if late:
            text = late.pop()
            await talk().send(text, agent="A", message_id=text)
        return GuardrailFunctionOutput(None, False)

    late = ["three", "two"]
    agent = agent_of(DONE, DONE, DONE, output_guardrails=[OutputGuardrail(send_late)])
    receipt = await Runner.send(agent, "one", session=talk(), message_id="one")
    assert receipt.state == "done"
    assert kinds(await talk().get_items()) == ["one", "assistant", "two", "assistant", "three", "assistant"]


async def test_a_run_is_interrupted_after_its_turn_and_the_message_is_next(talk: Talk) -> None:
    """F2e: the outputs of its calls are history, and it can be resumed; a run that refuses steering goes on."""

    async def work() -> None:
        await talk().send("before", agent="A", message_id="b", when_busy="queue")
        await talk().send("stop", agent="A", message_id="m", when_busy="interrupt")

    agent = agent_of(CALL, DONE, work=work)
    result = await Runner.run(agent, "go", session=talk(), run_config=RunConfig(run_id="r"))
    assert (result.interrupted_by, result.final_output, result.heard) == ("m", None, ())
    assert requests_of(agent) == [["go"]]
    assert (await Runner.list_runs(session=talk(), status="cancelled"))[0][0].run_id == "r"
    await Runner.recover(agent_of(DONE, DONE), sessions=talk)
    assert kinds(await talk().get_items())[:5] == [*TURN, "before", "assistant"]
    assert (await talk().receipt("m")).state == "done"
    assert (await Runner.resume(agent_of(DONE), "r", session=talk())).final_output == "done"

    async def again() -> None:
        await talk().send("stop", agent="A", message_id="n", when_busy="interrupt")

    steady = RunConfig(messages="queue")
    result = await Runner.run(agent_of(CALL, DONE, work=again), "go", session=talk(), run_config=steady)
    assert (result.interrupted_by, result.final_output) == (None, "done")


async def test_a_message_whose_run_failed_waits_and_is_begun_at_most_three_times(talk: Talk) -> None:
    """F1f."""
    await talk().send("hello", agent="A", message_id="m")
    for _ in range(2):
        report = await Runner.recover(agent_of(FAILS), sessions=talk)
        assert report.counts == {"failed": 1}
        assert (await talk().receipt("m")).state == "waiting"
    await Runner.recover(agent_of(FAILS), sessions=talk)
    assert (await talk().receipt("m")).state == "failed"
    assert [one.status for one in (await Runner.list_runs(session=talk()))[0]] == ["failed"]
    assert not (await Runner.recover(agent_of(DONE), sessions=talk)).runs
    result = await Runner.run(agent_of(DONE), "own", session=talk())
    assert result.heard == ("m",)
    assert kinds(await talk().get_items()) == ["hello", "own", "assistant"]


async def test_a_message_whose_sender_was_cancelled_waits_for_a_worker(talk: Talk) -> None:
    """F1f: the client that sent it may go away at any time."""
    asked = asyncio.Event()

    async def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    agent = agent_of(input_guardrails=[InputGuardrail(judge)])
    sending = asyncio.ensure_future(Runner.send(agent, "hello", session=talk(), message_id="m"))
    await asked.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert (await talk().receipt("m")).state == "waiting"
    await Runner.recover(agent_of(DONE), sessions=talk)
    assert (await talk().receipt("m")).state == "done"


# --- who hears, and when ---------------------------------------------------------------------------------------------


async def test_a_nested_run_leaves_messages_to_the_run_around_it(talk: Talk) -> None:
    """F2b."""

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    session = talk()
    inner = agent_of(CALL, DONE, work=work)
    helper = inner.as_tool("helper", "Help.", session=session)
    model = ScriptedModel([[function_call("helper", {"input": "x"}, call_id="o1")], DONE])
    result = await Runner.run(Agent("outer", model=model, tools=[helper]), "go", session=session)
    assert requests_of(inner)[-1] == ["x", "function_call", "function_call_output"]
    assert kinds(model.calls[-1].input)[-1] == "hurry"
    assert result.heard == ("m",)


async def test_what_no_further_request_comes_for_is_heard_by_the_next_run(talk: Talk) -> None:
    """F2c: also where the run has no turn left."""

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(agent_of(CALL, work=work), "go", session=talk(), max_turns=1)
    assert (await talk().receipt("m")).state == "waiting"
    result = await Runner.run(agent_of(DONE), "next", session=talk())
    assert result.heard == ("m",)
    assert kinds(await talk().get_items()) == [*TURN, "hurry", "next", "assistant"]


@pytest.mark.parametrize(
    "full",
    [RunConfig(limits=UsageLimits(requests=1)), RunConfig(budgets=[Budget("acme", requests=1)])],
    ids=["limit", "budget"],
)
async def test_a_run_without_room_for_a_request_leaves_the_message_to_the_next_run(talk: Talk, full: RunConfig) -> None:
    """F2c: heard by a run that stops before its next request, it would be history that nobody answers."""

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    with pytest.raises(UsageLimitExceeded):
        await Runner.run(agent_of(CALL, work=work), "go", session=talk(), run_config=full)
    assert (await talk().receipt("m")).state == "waiting"
    await Runner.recover(agent_of(DONE), sessions=talk)
    assert (await talk().receipt("m")).state == "done"
    assert kinds(await talk().get_items()) == [*TURN, "hurry", "assistant"]


async def test_a_first_request_without_room_leaves_what_was_sent_before_the_run(talk: Talk) -> None:
    """F2d: a run that can send nothing hears nothing."""
    await talk().send("before", agent="A", message_id="b")
    with pytest.raises(UsageLimitExceeded):
        await Runner.run(agent_of(), "go", session=talk(), run_config=RunConfig(limits=UsageLimits(requests=0)))
    assert (await talk().receipt("b")).state == "waiting"


async def test_a_run_may_refuse_to_be_steered(talk: Talk) -> None:
    """F2e: what was sent before it began it hears all the same."""

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    await talk().send("before", agent="A", message_id="b")
    agent = agent_of(CALL, DONE, work=work)
    result = await Runner.run(agent, "go", session=talk(), run_config=RunConfig(messages="queue"))
    assert result.heard == ("b",)
    assert requests_of(agent)[-1] == ["before", *TURN]


async def test_a_paused_run_that_goes_on_hears_what_was_sent_meanwhile(talk: Talk) -> None:
    """F2b: its result, and that of a run that was resumed, tell of all that it has heard."""

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    def agent(*steps: Any) -> Agent[Any]:
        return Agent("A", model=ScriptedModel(list(steps)), tools=[pay])

    await talk().send("before", agent="A", message_id="b")
    await Runner.run(
        agent([function_call("pay", {}, call_id="c1")]), "go", session=talk(), run_config=RunConfig(run_id="r")
    )
    await talk().send("hurry", agent="A", message_id="m")
    state = await Runner.load(agent(), "r", session=talk())
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(agent(DONE), state, session=talk())
    assert result.heard == ("b", "m")
    assert kinds(await talk().get_items()) == ["before", *TURN, "hurry", "assistant"]


async def test_watchers_are_told_what_a_run_has_heard(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    """F2: the stream has an event for it, `Runner.watch` an item, the log a line without its text."""

    async def work() -> None:
        await talk().send("secret words", agent="A", message_id="m")

    with caplog.at_level(logging.INFO, "standfast"):
        result = Runner.run_streamed(agent_of(CALL, DONE, work=work), "go", session=talk())
        events = [event async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert [event.name for event in events] == ["tool_called", "tool_output", "input_heard", "message_output_created"]
    assert events[2].item.to_input_item()["content"] == "secret words"
    seen = [update async for update in Runner.watch(result.run_id, session=talk())]
    assert [one.kind for one in seen if hasattr(one, "item")].count("input_item") == 1
    assert f"run {result.run_id} has heard message m" in caplog.text
    assert "secret words" not in caplog.text


# --- guardrails ------------------------------------------------------------------------------------------------------


def polite(fails: bool = False, parallel: bool = True) -> list[InputGuardrail[Any]]:
    def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        if fails and "hurry" in str(given):
            raise RuntimeError("the guardrail is away")
        return GuardrailFunctionOutput(None, "bad" in str(given))

    return [InputGuardrail(judge, name="polite", run_in_parallel=parallel)]


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_message_that_is_refused_as_a_run_of_its_own_is_nowhere(talk: Talk, parallel: bool) -> None:
    """F4b: parallel guardrails too judge it before any request leaves."""
    agent = agent_of(DONE, input_guardrails=polite(parallel=parallel))
    receipt = await Runner.send(agent, "bad", session=talk(), message_id="m")
    assert (receipt.state, receipt.refused_by) == ("refused", "polite")
    assert not requests_of(agent)
    assert not await talk().get_items()
    assert not await talk().waiting_messages()
    result = await Runner.run(agent_of(DONE), "own", session=talk())
    assert result.heard == ()


async def test_a_guardrail_that_raises_leaves_the_message_waiting_and_the_run_goes_on(talk: Talk) -> None:
    """F4c, F3: and no later message overtakes it."""

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")
        await talk().send("later", agent="A", message_id="n")

    agent = agent_of(CALL, DONE, work=work, input_guardrails=polite(fails=True))
    result = await Runner.run(agent, "go", session=talk())
    assert result.final_output == "done"
    assert result.heard == ()
    assert [one.message_id for one in await talk().waiting_messages()] == ["m", "n"]


# --- the store of it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_message_is_heard_once_where_the_answer_to_that_step_was_lost(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """F1b: the run fails, and the worker that resumes it neither drops nor repeats the message."""
    real, left = StoredSession.record, [1]

    def losing(self: Any, **given: Any) -> Any:
        if not given.get("heard") or not left:
            return real(self, **given)
        left.clear()

        async def lost() -> None:
            if is_done:
                await real(self, **given)
            raise OutcomeUnknownError("the answer was lost", "Ask again.")

        return lost()

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    monkeypatch.setattr(StoredSession, "record", losing)
    with pytest.raises(OutcomeUnknownError):
        await Runner.run(agent_of(CALL, work=work), "go", session=talk(), run_config=RunConfig(run_id="r"))
    result = await Runner.resume(agent_of(DONE, DONE), "r", session=talk())
    assert kinds(await talk().get_items()).count("hurry") == 1
    assert result.heard == ("m",)
    receipt = await talk().receipt("m")
    assert (receipt.state, receipt.run_id) == ("heard", "r")


async def test_a_run_that_was_cut_before_its_message_was_stored_does_not_keep_it(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F1b: the session's count is the truth; another run has heard the message since."""
    real, is_away = StoredSession.record, [True]

    def failing(self: Any, **given: Any) -> Any:
        if not given.get("heard") or not is_away:
            return real(self, **given)

        async def refuse() -> None:
            raise OutcomeUnknownError("the store is away", "Ask again.")

        return refuse()

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    monkeypatch.setattr(StoredSession, "record", failing)
    with pytest.raises(OutcomeUnknownError) as failed:
        await Runner.run(agent_of(CALL, work=work), "go", session=talk(), run_config=RunConfig(run_id="r"))
    is_away.clear()
    state = failed.value.run_state  # type: ignore[attr-defined]  # every error of a run has it
    other = await Runner.run(agent_of(DONE), "other", session=talk(), run_config=RunConfig(unfinished="ignore"))
    assert kinds(await talk().get_items()).count("hurry") == 1
    assert other.heard == ("m",)
    await Runner.run(agent_of(DONE), state, session=talk())
    assert kinds(await talk().get_items()).count("hurry") == 1


async def test_a_message_can_be_taken_back_until_a_run_hears_it(talk: Talk, tmp_path: Path) -> None:
    """F1e."""
    await talk().send("hello", agent="A", message_id="m")
    async with open_store(tmp_path / "store.db") as store:
        await store.cancel("m", by="ann")
        assert (await store.receipt("talk", "m")).state == "cancelled"
        assert await store.list_messages("talk") == []
        with pytest.raises(NotFoundError):
            await store.receipt("talk", "n")
    result = await Runner.run(agent_of(DONE), "own", session=talk())
    assert result.heard == ()


async def test_a_run_id_is_no_message_id(talk: Talk) -> None:
    """F1d: and a message that was heard is not begun again as a run."""
    await Runner.run(agent_of(DONE), "own", session=talk(), run_config=RunConfig(run_id="r"))
    with pytest.raises(SessionConflictError, match="was not sent as a message"):
        await talk().send("own", agent="A", message_id="r")

    async def work() -> None:
        await talk().send("hello", agent="A", message_id="m")

    await Runner.run(agent_of(CALL, DONE, work=work), "next", session=talk())
    assert (await talk().receipt("m")).state == "heard"
    await Runner.prune_runs(session=talk(), keep=0)
    with pytest.raises(SessionConflictError):
        await Runner.run(agent_of(DONE), "hello", session=talk(), run_config=RunConfig(run_id="m"))


async def test_a_fork_knows_the_messages_that_its_history_has(talk: Talk) -> None:
    """F1g: heard before its end, heard between turns behind it, waiting."""

    async def work() -> None:
        await talk().send("hurry", agent="A", message_id="m")

    await talk().send("before", agent="A", message_id="b")
    await Runner.run(agent_of(CALL, DONE, work=work), "go", session=talk())
    await talk().send("waits", agent="A", message_id="w")
    early = await talk().fork("early", at=Position(2))
    late = await talk().fork("late")
    assert (await early.receipt("b")).state == "heard"
    assert await early.receipt("m") is None
    assert await early.accepted("m") == 0
    assert (await late.receipt("m")).state == "heard"
    for fork in (early, late):
        assert await fork.receipt("w") is None
        assert await fork.waiting_messages() == []


async def test_a_move_brings_the_messages_that_wait_in_their_order(talk: Talk, tmp_path: Path) -> None:
    """F1g: and what is known of those that were heard."""
    await talk().send("heard", agent="A", message_id="h")
    await Runner.run(agent_of(DONE), "own", session=talk())
    for number in range(3):
        await talk().send(f"m{number}", agent="A", message_id=f"m{number}")
    target = lambda session_id: SQLiteSession(session_id, tmp_path / "target.db")  # noqa: E731
    await copy_sessions(tmp_path / "store.db", tmp_path / "target.db", move=True)
    assert (await talk().receipt("m1")).state == "moved"
    assert await talk().waiting_messages() == []
    moved = target("talk")
    assert [one.message_id for one in await moved.waiting_messages()] == ["m0", "m1", "m2"]
    assert (await moved.send("heard", agent="A", message_id="h")).state == "heard"
    assert (await moved.send("m1", agent="A", message_id="m1")).state == "waiting"
    await Runner.recover(agent_of(DONE, DONE, DONE), sessions=target)
    assert [one for one in kinds(await moved.get_items()) if one.startswith("m")] == ["m0", "m1", "m2"]


async def test_a_file_brings_messages_as_waiting_whoever_wrote_it(talk: Talk, tmp_path: Path) -> None:
    """F1g: they are listed and can be taken back, though the file has no signature and no decision of it counts."""
    for number in range(2):
        await talk().send(f"m{number}", agent="A", message_id=f"m{number}", when_busy="queue")
    await export_session(tmp_path / "store.db", "talk", tmp_path / "talk.jsonl", move=True)
    await import_session(tmp_path / "target.db", tmp_path / "talk.jsonl", accept_runs=True)
    there = SQLiteSession("talk", tmp_path / "target.db")
    assert [one.message_id for one in await there.waiting_messages()] == ["m0", "m1"]
    assert (await there.receipt("m0")).state == "waiting"


async def test_a_file_brings_what_is_known_of_messages(talk: Talk, tmp_path: Path) -> None:
    """F1g: those that wait stay behind, unless they are moved."""
    await talk().send("heard", agent="A", message_id="h")
    await Runner.run(agent_of(DONE), "own", session=talk())
    await talk().send("waits", agent="A", message_id="w")
    file = io.BytesIO()
    await export_session(tmp_path / "store.db", "talk", file)
    file.seek(0)
    await import_session(tmp_path / "target.db", file)
    there = SQLiteSession("talk", tmp_path / "target.db")
    assert (await there.send("heard", agent="A", message_id="h")).state == "heard"
    assert await there.receipt("w") is None


async def test_a_sealed_conversation_takes_messages_with_its_key_only(tmp_path: Path) -> None:
    """F1h: also where a sealed message is all that the conversation has."""
    path = tmp_path / "sealed.db"
    plain = lambda: SQLiteSession("talk", path)  # noqa: E731
    sealed = lambda: EncryptedSession("talk", plain(), encryption_key="a long secret")  # noqa: E731
    await sealed().send("secret words", agent="A", message_id="m")
    with pytest.raises(SealKeyError):
        await plain().send("plain", agent="A", message_id="n")
    agent = agent_of(DONE)
    await Runner.recover(agent, sessions=lambda session_id: sealed())
    assert requests_of(agent) == [["secret words"]]
    with pytest.raises(SealKeyError):
        await plain().send("plain", agent="A", message_id="n")
    assert b"secret words" not in path.read_bytes()
    assert (await sealed().send("secret words", agent="A", message_id="m")).state == "done"
