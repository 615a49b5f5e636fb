"""Stopped and resumed, a run sends what it would have sent without stopping: every owner, every way to resume.

The eight ways are those of the specification: streamed or not before the pause, streamed or not after it, the state
kept in memory or carried as text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import InMemorySession, ModelRetryAdvice, RunState, SessionABC, SQLiteSession
from standfast.testing import ModelStep, assistant_message, reasoning

from .payment_app import Desk, asks, kinds, look, outputs, pay, says

HISTORY = [{"role": "user", "content": "yes"}, {"role": "assistant", "content": "yes"}]


class Owner:
    """One owner of the conversation: what a first run and a resumed one are given."""

    def __init__(self, name: str, start: dict[str, Any], again: dict[str, Any] | None = None) -> None:
        self.name, self.start, self.again = name, start, start if again is None else again

    @property
    def session(self) -> Any:
        return self.start.get("session")


def replay(folder: Path) -> Owner:
    return Owner("replay", {})


def memory(folder: Path) -> Owner:
    return Owner("memory", {"session": InMemorySession("s")})


def sqlite(folder: Path) -> Owner:
    folder.mkdir(exist_ok=True)
    return Owner("sqlite", {"session": SQLiteSession("s", folder / "conversation.db")})


class Plain(SessionABC):
    """Somebody's own session: a list."""

    def __init__(self) -> None:
        self.session_id, self.items = "s", list[Any]()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items if limit is None else self.items[-limit:] if limit else [])

    async def add_items(self, items: list[Any]) -> None:
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


def plain(folder: Path) -> Owner:
    return Owner("plain", {"session": Plain()})


def conversation(folder: Path) -> Owner:
    return Owner("conversation", {"conversation_id": "conv"})


def conversation_remembered(folder: Path) -> Owner:
    return Owner("conversation", {"conversation_id": "conv"}, {})


def chain_given(folder: Path) -> Owner:
    return Owner("chain", {"previous_response_id": "r0"}, {})


def chain_given_again(folder: Path) -> Owner:
    return Owner("chain", {"previous_response_id": "r0"})


def chain_automatic(folder: Path) -> Owner:
    return Owner("chain", {"auto_previous_response_id": True}, {})


def chain_automatic_again(folder: Path) -> Owner:
    return Owner("chain", {"auto_previous_response_id": True})


OWNERS: list[Callable[[Path], Owner]] = [
    replay,
    memory,
    sqlite,
    plain,
    conversation,
    conversation_remembered,
    chain_given,
    chain_given_again,
    chain_automatic,
    chain_automatic_again,
]
WAYS = list(itertools.product((False, True), (False, True), (False, True)))


def conversation_of_many_turns(**agent: Any) -> Desk:
    """Several turns: one call, two calls of which one waits, two that wait, thoughts before them, an answer."""
    return Desk(
        [
            asks(look("sea", "c1"), response_id="r1"),
            ModelStep(output=[reasoning("hm", item_id="t1"), pay(5, "c2"), look("sky", "c3")], response_id="r2"),
            asks(pay(6, "c4"), pay(6, "c5"), response_id="r3"),
            ModelStep(output=[assistant_message("done")], response_id="r4"),
        ],
        **agent,
    )


def requests(desk: Desk) -> list[Any]:
    return [(list(call.input), call.previous_response_id, call.conversation_id) for call in desk.model.calls]


def seen(result: Any) -> list[Any]:
    return [(item.type, item.agent.name, item.to_input_item()) for item in result.new_items]


@pytest.mark.clause("D7", "C5", backend="runs")
@pytest.mark.parametrize("make", OWNERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join("01"[one] for one in way))
async def test_a_resumed_run_sends_what_an_uninterrupted_one_sends(
    make: Callable[[Path], Owner], way: tuple[bool, bool, bool], tmp_path: Path
):
    before, after, as_text = way
    calm_owner, owner = make(tmp_path / "calm"), make(tmp_path / "paused")
    calm = conversation_of_many_turns(needs_approval=False)
    desk = conversation_of_many_turns()
    for one in (calm_owner, owner):
        if one.session is not None:
            await one.session.add_items(HISTORY)
    expected = await calm.once("hi", before, calm_owner.start)

    result = await desk.once("hi", before, owner.start)
    pauses = 0
    while result.interruptions:
        pauses += 1
        state = result.to_state()
        if as_text:
            state = await RunState.from_string(desk.agent, state.to_string())
        for item in state.get_interruptions():
            state.approve(item)
        result = await desk.once(state, after, owner.again)

    assert pauses == 2
    assert requests(desk) == requests(calm)
    assert seen(result) == seen(expected)
    assert result.final_output == expected.final_output == "done"
    assert result.context_wrapper.usage.to_json() == expected.context_wrapper.usage.to_json()
    assert sorted(desk.done) == sorted(calm.done)
    assert result.to_input_list() == expected.to_input_list()
    assert result.last_response_id == expected.last_response_id == "r4"
    assert len(result.raw_responses) == len(expected.raw_responses) == 4
    if owner.session is not None:
        assert await owner.session.get_items() == await calm_owner.session.get_items()
        await owner.session.close()
        await calm_owner.session.close()


SENT_AFTER = {
    "replay": ["user", "call c1", "call c2", "output c1", "output c2"],
    "memory": ["user", "assistant", "user", "call c1", "call c2", "output c1", "output c2"],
    "sqlite": ["user", "assistant", "user", "call c1", "call c2", "output c1", "output c2"],
    "plain": ["user", "assistant", "user", "call c1", "call c2", "output c1", "output c2"],
    "conversation": ["output c1", "output c2"],
    "chain": ["output c1", "output c2"],
}


@pytest.mark.clause("D7", backend="runs")
@pytest.mark.parametrize("make", OWNERS, ids=lambda make: make.__name__)
async def test_the_table_of_the_specification(make: Callable[[Path], Owner], tmp_path: Path):
    """The model asked for c1, which waits, and c2, which does not. Outputs come in call order, whenever they came."""
    owner = make(tmp_path / "run")
    desk = Desk([asks(pay(5, "c1"), look("sky", "c2"), response_id="r1"), says("done")])
    if owner.session is not None:
        await owner.session.add_items(HISTORY)
    result = await desk.run("hi", **owner.start)
    if owner.session is not None:
        assert kinds(await owner.session.get_items()) == ["user", "assistant", "user"]  # the turn is open: not stored
    state = await desk.reloaded(result.to_state())
    state.reject(state.get_interruptions()[0], rejection_message="no")
    await desk.run(state, **owner.again)
    last = desk.model.calls[-1]
    assert kinds(last.input) == SENT_AFTER[owner.name]
    assert outputs(last.input) == {"c1": "no", "c2": "saw sky"}
    assert last.conversation_id == ("conv" if owner.name == "conversation" else None)
    assert last.previous_response_id == ("r1" if owner.name == "chain" else None)
    if owner.session is not None:
        stored = await owner.session.get_items()
        assert kinds(stored) == [*SENT_AFTER[owner.name], "assistant"]
        await owner.session.close()


@pytest.mark.clause("D7", backend="runs")
@pytest.mark.parametrize("make", [memory, sqlite], ids=lambda make: make.__name__)
async def test_resuming_reads_the_session_again_and_the_open_turn_comes_last(
    make: Callable[[Path], Owner], tmp_path: Path
):
    owner = make(tmp_path / "run")
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = (await desk.run("hi", **owner.start)).to_state()
    await owner.session.add_items([{"role": "user", "content": "meanwhile"}, {"role": "assistant", "content": "yes?"}])
    state = await desk.reloaded(state)
    state.approve(state.get_interruptions()[0])
    result = await desk.run(state, **owner.again)
    assert kinds(desk.sent[-1]) == ["user", "user", "assistant", "call c1", "output c1"]
    assert desk.sent[-1][1]["content"] == "meanwhile"
    assert kinds(await owner.session.get_items()) == ["user", "user", "assistant", "call c1", "output c1", "assistant"]
    assert result.to_input_list()[:-1] == desk.sent[-1]
    owner.session.close()


@pytest.mark.clause("D7", backend="runs")
async def test_an_output_that_was_not_sent_yet_is_not_lost_with_its_request():
    """The server's conversation failed after the approved tool had run: resumed again, the output is sent, once."""
    refused = ModelStep.raise_error(ValueError("refused"), retry_advice=ModelRetryAdvice(replay_safety="safe"))
    desk = Desk([asks(pay(5, "c1"), response_id="r1"), refused, says("done")])
    state = (await desk.run("hi", previous_response_id="r0")).to_state()
    state.approve(state.get_interruptions()[0])
    text = state.to_string()
    with pytest.raises(ValueError, match="refused") as caught:
        await desk.run(await RunState.from_string(desk.agent, text))
    later = caught.value.run_state  # type: ignore[attr-defined]  # any error carries it
    assert later.current_turn == 1  # no turn is charged for a request that brought no reply
    assert (await desk.run(await desk.reloaded(later))).final_output == "done"
    assert [kinds(sent) for sent in desk.sent] == [["user"], ["output c1"], ["output c1"]]
    assert desk.done == [("pay", 5)]
