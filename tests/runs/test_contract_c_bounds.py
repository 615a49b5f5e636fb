"""CONTRACT part C, C7 to C14: what a run may not do to a session, and what it promises at its edges."""

from __future__ import annotations

import ast
import asyncio
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import (
    Agent,
    InMemorySession,
    PartialBatchError,
    RunConfig,
    Runner,
    RunState,
    SessionBusyError,
    SessionClosedError,
    SessionSettings,
    SQLiteSession,
    function_tool,
)
from standfast._src.base.errors import LeaseLostError
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call, reasoning

from . import mortal_program
from .observing import SESSIONS, SeedSession
from .whole_runs import KINDS, RecordingPlain, Taking, add, adding, go, kinds, outputs, said, user

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_session = pytest.mark.parametrize("kind", KINDS)


# --- C7: the guarded pop ---------------------------------------------------------------------------------------------


@pytest.mark.clause("C7", backend="runs")
def test_the_runtime_pops_in_one_place() -> None:
    """Sessions and wrappers hand `pop_item` on; of what runs agents only the adapter for plain sessions calls it."""
    root = Path(standfast.__file__).parent
    # Kits run nothing, and moving a conversation is no run: it takes back its own copy, and says so itself. In a chat a
    # person asks for it.
    others = ("_kits/conformance/", "_kits/testing/", "_src/sessions/client/", "_src/sessions/backends/")
    others += ("_src/sessions/wrappers/", "_src/sessions/rules/", "_src/sessions/protocol.py")
    movers = ("_src/runs/api/move_conversation.py", "_kits/cli/chat.py")
    callers = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if not (name := str(file.relative_to(root))).startswith(others) and name not in movers
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "pop_item"
    }
    assert callers == {"_src/sessions/foreign/adapter.py"}


@pytest.mark.clause("C7", backend="runs")
@both_modes
async def test_a_torn_batch_is_taken_back_and_similar_older_items_stay(streamed: bool) -> None:
    session = RecordingPlain(fail={2: "partly"})
    older = [user("go"), adding(1, "c1"), {"type": "function_call_output", "call_id": "c1", "output": "2"}]
    await session.add_items(older)
    # The model is asked while the turn is being stored; that reply is dropped with the failure.
    agent = Agent(name="A", model=ScriptedModel([[adding(1, "c2")], said("2"), said("2")]), tools=[add])
    with pytest.raises(OSError, match="partly") as caught:
        await go(agent, "go", streamed=streamed, session=session)
    assert await session.get_items() == older
    assert session.pops > 0
    state: RunState = caught.value.run_state  # type: ignore[attr-defined]
    await go(agent, state, streamed=streamed, session=session)
    assert (await session.get_items())[:3] == older
    assert kinds(await session.get_items())[3:] == ["user", "function_call", "function_call_output", "assistant"]


@pytest.mark.clause("C7", backend="runs")
async def test_a_part_that_stays_ends_the_run_saying_so_and_hides_no_first_error() -> None:
    class Sticky(RecordingPlain):
        async def pop_item(self) -> Any:
            raise OSError("nothing can be popped")

    session = Sticky(fail={1: "partly"})
    agent = Agent(name="A", model=ScriptedModel([[adding(1, "c1")], said("2")]), tools=[add])
    with pytest.raises(PartialBatchError) as caught:
        await go(agent, "go", session=session)
    assert isinstance(caught.value.__cause__, OSError)
    assert "partly" in str(caught.value.__cause__)


# --- C8: always valid ------------------------------------------------------------------------------------------------


@pytest.mark.clause("C8", backend="runs")
@every_session
@both_modes
async def test_a_run_that_fails_after_a_tool_ran_stores_its_turn_whole(
    streamed: bool, kind: str, tmp_path: Path
) -> None:
    session, ready = SESSIONS[kind](tmp_path), asyncio.Event()

    @function_tool
    async def quick() -> str:
        """Return at once."""
        ready.set()
        return "quick"

    @function_tool(failure_error_function=None)
    async def breaks() -> str:
        """End the run."""
        await ready.wait()
        await asyncio.sleep(0.05)
        raise ValueError("no luck")

    @function_tool
    async def endless() -> str:
        """Never return."""
        await asyncio.sleep(3600)
        return "never"

    calls = [function_call(name, {}, call_id=name) for name in ("endless", "quick", "breaks")]
    agent = Agent(name="A", model=ScriptedModel([calls]), tools=[quick, breaks, endless])
    with pytest.raises(standfast.UserError, match="no luck"):
        await go(agent, "go", streamed=streamed, session=session)
    stored = await session.get_items()
    assert kinds(stored) == ["user", *["function_call"] * 3, *["function_call_output"] * 3]
    assert [item["call_id"] for item in stored[4:]] == ["endless", "quick", "breaks"]
    assert outputs(stored)[1] == "quick"
    assert all("not completed" in outputs(stored)[place] for place in (0, 2))


@pytest.mark.clause("C8", backend="runs")
@every_session
@both_modes
async def test_what_another_program_broke_is_left_out_of_the_request_reported_and_not_deleted(
    streamed: bool, kind: str, tmp_path: Path
) -> None:
    session, model = SESSIONS[kind](tmp_path), ScriptedModel([said("ok")])
    broken = [
        {"type": "function_call_output", "call_id": "gone", "output": "an orphan"},
        user("before"),
        {"type": "reasoning", "id": "rs_1", "summary": []},
        adding(1, "unanswered"),
    ]
    await session.add_items(broken)
    result = await go(Agent(name="A", model=model), "go", streamed=streamed, session=session)
    assert model.calls[0].input == [user("before"), user("go")]
    assert (await session.get_items())[:4] == broken
    assert len(result.left_out) >= 2


@pytest.mark.clause("C8", backend="runs")
@every_session
async def test_a_limit_that_cuts_a_turn_in_two_sends_none_of_it(kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    await go(
        Agent(name="A", model=ScriptedModel([[adding(1, "c1")], said("2")]), tools=[add]), "first", session=session
    )
    model = ScriptedModel([said("ok")])
    config = RunConfig(session_settings=SessionSettings(limit=2))  # the output and the answer, without the call
    await go(Agent(name="A", model=model), "second", session=session, run_config=config)
    assert kinds(model.calls[0].input) == ["assistant", "user"]
    assert len(await session.get_items()) == 6


@pytest.mark.clause("C8", backend="runs")
@every_session
async def test_whatever_a_limit_cuts_no_call_or_message_is_sent_without_its_reasoning(
    kind: str, tmp_path: Path
) -> None:
    """A provider refuses a call whose reasoning is not there, and the conversation could not go on."""
    session = SESSIONS[kind](tmp_path)
    thinking = [reasoning("hm", item_id="r1"), adding(1, "c1"), adding(2, "c2")]
    ending = [reasoning("so", item_id="r2"), assistant_message("3")]
    await go(Agent(name="A", model=ScriptedModel([thinking, ending]), tools=[add]), "first", session=session)
    whole = ["user", "reasoning", "function_call", "function_call"] + ["function_call_output"] * 2
    whole += ["reasoning", "assistant"]
    turns = [whole, whole[1:], whole[6:]]  # all of it, without the question, the last reply
    model = ScriptedModel([said("ok")] * 8)
    for limit in range(1, 9):
        config = RunConfig(session_settings=SessionSettings(limit=limit), save="never")
        result = await go(Agent(name="A", model=model), "next", session=session, run_config=config)
        seen = kinds(model.calls[-1].input)
        # What fits of the latest whole replies; a reply of which a part fits is not there, and reported.
        assert seen[:-1] == next((turn for turn in turns if len(turn) <= limit), [])
        assert len(seen) - 1 + len(result.left_out) == limit
        await session.pop_item()
        await session.pop_item()  # as it was, for the next limit


@pytest.mark.clause("C8", backend="runs")
@every_session
async def test_a_reply_of_reasoning_alone_does_not_end_the_conversation(kind: str, tmp_path: Path) -> None:
    """A model that ran out of tokens while it thought: its provider refuses every request that shows the thought."""
    session = SESSIONS[kind](tmp_path)
    await go(Agent(name="A", model=ScriptedModel([[reasoning("hm", item_id="r1")]])), "first", session=session)
    assert kinds(await session.get_items()) == ["user", "reasoning"]
    model = ScriptedModel([said("ok")])
    result = await go(Agent(name="A", model=model), "second", session=session)
    assert model.calls[0].input == [user("first"), user("second")]
    assert [one.item["type"] for one in result.left_out] == ["reasoning"]
    assert [item.get("role") for item in result.to_input_list()] == ["user", "user", "assistant"]


@pytest.mark.clause("C8", backend="runs")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_abandoning_a_paused_run_rejects_what_is_open_and_stores_the_turn_whole(
    kind: str, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    calls = [adding(1, "c1"), function_call("pay", {}, call_id="p1")]
    agent = Agent(name="A", model=ScriptedModel([calls]), tools=[add, pay])
    result = await go(agent, "go", session=session)
    assert kinds(await session.get_items()) == ["user"], "an open turn is kept in the run, never in the history"
    await Runner.cancel_run(agent, result.run_id, session=session)
    stored = await session.get_items()
    assert kinds(stored) == ["user", *["function_call"] * 2, *["function_call_output"] * 2]
    assert outputs(stored)[0] == "2"


# --- C10: no live objects --------------------------------------------------------------------------------------------


@pytest.mark.clause("C10", backend="runs")
@both_modes
async def test_a_session_gets_the_run_context_only_if_all_four_methods_take_it(streamed: bool) -> None:
    class AlmostTaking(Taking):
        async def clear_session(self) -> None:  # type: ignore[override]
            self.items.clear()

    for session, wanted in ((Taking(), True), (AlmostTaking(), False)):
        context = {"who": "me"}
        await go(
            Agent(name="A", model=ScriptedModel([said("ok")])),
            "hi",
            streamed=streamed,
            session=session,
            context=context,
        )
        assert session.wrappers
        if wanted:
            assert all(wrapper.context is context for wrapper in session.wrappers)
        else:
            assert all(wrapper is None for wrapper in session.wrappers)


@pytest.mark.clause("C10", backend="runs")
@both_modes
async def test_a_compaction_gets_the_run_context_only_if_it_takes_it(streamed: bool) -> None:
    asked: list[Any] = []

    class TakesNone(InMemorySession):
        async def run_compaction(self, args: Any = None) -> None:
            asked.append(None)

    class TakesIt(InMemorySession):
        async def run_compaction(self, args: Any = None, *, wrapper: Any = None) -> None:
            asked.append(wrapper.context)

    context = {"who": "me"}
    for session in (TakesNone("s"), TakesIt("s")):
        agent = Agent(name="A", model=ScriptedModel([said("ok")]))
        await go(agent, "hi", streamed=streamed, session=session, context=context)
    assert asked == [None, context]


@pytest.mark.clause("C10", backend="runs")
@every_session
@both_modes
async def test_what_is_stored_is_json_whatever_tools_and_context_are(streamed: bool, kind: str, tmp_path: Path) -> None:
    @dataclass
    class Weird:
        file: Any = field(default_factory=lambda: open(__file__))  # noqa: SIM115 — something that is no JSON

    session, context = SESSIONS[kind](tmp_path), Weird()

    @function_tool
    async def strange() -> object:
        """Return something that is no JSON."""
        return object()

    agent = Agent(
        name="A", model=ScriptedModel([[function_call("strange", {}, call_id="c1")], said("ok")]), tools=[strange]
    )
    await go(agent, "hi", streamed=streamed, session=session, context=context)
    context.file.close()
    stored = await session.get_items()
    assert isinstance(outputs(stored)[0], str)
    assert "Weird" not in str(stored)


# --- C12: after a kill -----------------------------------------------------------------------------------------------


WHOLE = ["user", *["function_call", "function_call_output"] * 2, "assistant"]
LEFT = {
    "none": ([], ["first", "second", "first", "second"]),
    "plain": (WHOLE[:3], None),
    "adopted": (WHOLE[:3], ["first", "second", "second"]),
    "saved": (WHOLE[:3], ["first", "second"]),
}
"""By what keeps the conversation: what is stored after the kill, and which tools have acted once the run has ended."""


@pytest.mark.clause("C12", backend="runs")
@pytest.mark.parametrize("keeps", LEFT)
def test_what_survives_a_kill_is_what_is_stated(keeps: str, tmp_path: Path) -> None:
    """No session: nothing. A plain one: acknowledged turns. With exactly-once append and a run id: only the torn turn's
    tools run again. With a run store: a begun call is settled, not repeated."""

    def life(word: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, mortal_program.__file__, keeps, str(tmp_path), word]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    stored, acted = LEFT[keeps]
    assert life("dies").returncode == -signal.SIGKILL

    async def left() -> list[Any]:
        session = mortal_program.session_of(keeps, tmp_path)
        items = await session.get_items() if session is not None else []
        if session is not None:
            await session.close()
        return list(items)

    assert kinds(asyncio.run(left())) == stored
    if acted is None:
        return  # a plain session cannot tell what is its own: a new run is the application's to decide about
    again = life("lives")
    assert again.stdout.strip() == "finished", again.stderr
    assert (tmp_path / "effects").read_text().split() == acted
    history = asyncio.run(left())
    if keeps != "none":
        assert kinds(history) == WHOLE
    if keeps == "saved":
        assert "not known" in outputs(history)[1]


# --- C13: two runs on one session ------------------------------------------------------------------------------------


class Pair:
    """Two runs of two turns each, which meet in their first tool unless one of them has to wait."""

    def __init__(self, *, meet: bool) -> None:
        self._meet, self._inside = meet, 0
        self._both = asyncio.Event()
        self.most = 0

    def agent(self, name: str) -> Agent[Any]:
        @function_tool
        async def work() -> str:
            """Be in the middle of a run for a while."""
            self._inside += 1
            self.most = max(self.most, self._inside)
            if self._inside == 2:
                self._both.set()
            if self._meet:
                await self._both.wait()
            else:
                await asyncio.sleep(0.02)
            self._inside -= 1
            return f"worked for {name}"

        steps = [[function_call("work", {}, call_id=f"{name}-1")], said(f"answer {name}")]
        return Agent(name=name, model=ScriptedModel(steps), tools=[work])


def blocks(items: list[Any]) -> list[str]:
    """Whose each item is, with repetitions next to each other taken as one."""
    owners = ["A" if "A" in str(item) else "B" for item in items]
    return [owner for place, owner in enumerate(owners) if place == 0 or owners[place - 1] != owner]


@pytest.mark.clause("C13", backend="runs")
@every_session
@both_modes
async def test_by_default_the_second_run_waits_and_sees_all_of_the_first(
    streamed: bool, kind: str, tmp_path: Path
) -> None:
    session, pair = SESSIONS[kind](tmp_path), Pair(meet=False)
    agents = {name: pair.agent(name) for name in "AB"}
    await asyncio.gather(
        *(go(agent, f"question {name}", streamed=streamed, session=session) for name, agent in agents.items())
    )
    items = await session.get_items()
    assert pair.most == 1
    assert len(items) == 8
    assert len(blocks(items)) == 2, "two conversations were interleaved"
    second = agents[blocks(items)[1]]
    assert len(second.model.calls[0].input) == 5, "the second did not see the first"  # type: ignore[union-attr]


@pytest.mark.clause("C13", backend="runs")
@every_session
@both_modes
async def test_reject_is_told_at_once_and_writes_nothing(streamed: bool, kind: str, tmp_path: Path) -> None:
    session, inside, free = SESSIONS[kind](tmp_path), asyncio.Event(), asyncio.Event()

    @function_tool
    async def work() -> str:
        """Hold the session."""
        inside.set()
        await free.wait()
        return "done for A"

    holder = Agent(name="A", model=ScriptedModel([[function_call("work", {}, call_id="A-1")], said("A")]), tools=[work])
    first = asyncio.create_task(go(holder, "question A", session=session))
    await inside.wait()
    model = ScriptedModel([said("B")])
    config = RunConfig(concurrency="reject")
    with pytest.raises(SessionBusyError):
        await go(Agent(name="B", model=model), "question B", streamed=streamed, session=session, run_config=config)
    assert not model.calls
    free.set()
    await first
    assert blocks(await session.get_items()) == ["A"]


@pytest.mark.clause("C13", backend="runs")
@every_session
@both_modes
async def test_allow_lets_them_meet_and_every_turn_is_still_whole(streamed: bool, kind: str, tmp_path: Path) -> None:
    session, pair = SESSIONS[kind](tmp_path), Pair(meet=True)
    config = RunConfig(concurrency="allow")
    await asyncio.gather(
        *(
            go(pair.agent(name), f"question {name}", streamed=streamed, session=session, run_config=config)
            for name in "AB"
        )
    )
    items = await session.get_items()
    assert pair.most == 2
    for name in "AB":
        first = [place for place, item in enumerate(items) if f"'{name}-1'" in str(item)]
        assert first == [first[0], first[0] + 1], "a turn was torn apart"
        assert items[first[0] - 1] == user(f"question {name}"), "an input was parted from its turn"


@pytest.mark.clause("C13", backend="runs")
async def test_a_run_gives_up_waiting_after_its_deadline() -> None:
    session, inside, free = InMemorySession("s"), asyncio.Event(), asyncio.Event()

    @function_tool
    async def work() -> str:
        """Hold the session."""
        inside.set()
        await free.wait()
        return "done"

    holder = Agent(name="A", model=ScriptedModel([[function_call("work", {}, call_id="c1")], said("A")]), tools=[work])
    first = asyncio.create_task(go(holder, "question A", session=session))
    await inside.wait()
    with pytest.raises(SessionBusyError):
        await go(
            Agent(name="B", model=ScriptedModel([said("B")])),
            "question B",
            session=session,
            run_config=RunConfig(lease_wait_s=0.05),
        )
    free.set()
    await first


@pytest.mark.clause("C13", backend="runs")
@every_session
async def test_a_pause_gives_the_session_up(kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        name="A", model=ScriptedModel([[function_call("pay", {}, call_id="p1")], said("done A")]), tools=[pay]
    )
    result = await go(agent, "question A", session=session)
    await go(
        Agent(name="B", model=ScriptedModel([said("answer B")])),
        "question B",
        session=session,
        run_config=RunConfig(concurrency="reject"),
    )
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    await go(agent, state, session=session)
    assert [name for name in blocks(await session.get_items()) if name] == ["A", "B", "A"]


@pytest.mark.clause("C13", backend="runs")
@every_session
async def test_a_nested_run_on_its_parents_session_does_not_wait_for_its_parent(kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    inner = Agent(name="Inner", model=ScriptedModel([said("inner answer")]))
    tool = inner.as_tool("ask", "Ask.", session=session)
    outer = Agent(
        name="Outer",
        model=ScriptedModel([[function_call("ask", {"input": "?"}, call_id="o1")], said("done")]),
        tools=[tool],
    )
    result = await asyncio.wait_for(go(outer, "go", session=session, run_config=RunConfig(lease_wait_s=60)), 30)
    assert result.final_output == "done"
    assert "inner answer" in str(await session.get_items())


@pytest.mark.clause("C13", backend="runs")
async def test_a_plain_session_says_that_its_lock_is_in_process() -> None:
    from standfast._src.sessions.foreign.adapter import PlainSession

    assert any(
        promise.startswith("C13") and "in-process" in promise for promise in PlainSession(SeedSession("s")).cannot
    )


@pytest.mark.clause("C13", backend="runs")
@both_modes
async def test_a_run_that_lost_its_lease_sends_no_request(streamed: bool) -> None:
    class Unrenewed(InMemorySession):
        async def lease(self, **named: Any) -> Any:
            self.taken = await super().lease(**{**named, "renewed": False})
            return self.taken

    session = Unrenewed("s")

    async def instructions(context: Any, agent: Any) -> str:
        while session.taken.is_held:
            await asyncio.sleep(0.01)
        await InMemorySession("s", store=session.store).lease(ttl_s=60, wait_s=30)
        return "Be brief."

    model = ScriptedModel([said("ok")])
    agent = Agent(name="A", model=model, instructions=instructions)
    with pytest.raises(LeaseLostError):
        await go(agent, "hi", streamed=streamed, session=session, run_config=RunConfig(lease_ttl_s=0.2))
    assert model.calls == ()
    assert await session.get_items() == []


# --- C14: giving back ------------------------------------------------------------------------------------------------


@pytest.mark.clause("C14", backend="runs")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("end", ["well", "in an error", "by being cancelled"])
@both_modes
async def test_at_the_end_of_every_run_the_session_is_free_and_open(
    streamed: bool, end: str, kind: str, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    step: Any = {"well": said("ok"), "in an error": RuntimeError("out"), "by being cancelled": ModelStep.hang()}[end]
    model = ScriptedModel([step])
    task = asyncio.create_task(go(Agent(name="A", model=model), "hi", streamed=streamed, session=session))
    if end == "by being cancelled":
        await model.wait_for_call()
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
    for _ in range(1000):  # a cancelled watcher does not wait for the run it watched; the run lets go soon after
        try:
            lease = await session.lease(ttl_s=60, wait_s=0)
            break
        except SessionBusyError:
            await asyncio.sleep(0.01)
    await lease.release()
    await session.get_items()


@pytest.mark.clause("C14", backend="runs")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_session_is_closed_only_if_that_was_asked_for(fails: bool, tmp_path: Path) -> None:
    for close in (False, True):
        session = SQLiteSession("s", tmp_path / f"{close}.db")
        model = ScriptedModel([RuntimeError("out") if fails else said("ok")])
        try:
            await go(Agent(name="A", model=model), "hi", session=session, run_config=RunConfig(close_session=close))
        except RuntimeError:
            assert fails
        if close:
            with pytest.raises(SessionClosedError):
                await session.get_items()
        else:
            await session.get_items()
            session.close()
