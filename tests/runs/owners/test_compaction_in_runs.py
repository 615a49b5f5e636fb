"""Compaction after real runs (C9, D8): the history gets shorter, never wrong, and never at the cost of the run."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import (
    Agent,
    InMemorySession,
    ModelInputData,
    ModelSettings,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    SQLiteSession,
    handoff,
)
from standfast._src.items.items import CompactionItem
from standfast.testing.loopback import (
    Drop,
    Gate,
    LoopbackServer,
    Malformed,
    Received,
    Script,
    Status,
    call,
    unseal,
)
from tests.runs.owners.child import born, killed, loopback_client
from tests.runs.owners.world import World, both_modes, words

C9 = pytest.mark.clause("C9", backend="runs")
D8 = pytest.mark.clause("D8", backend="runs")

COMPACT = "/responses/compact"
TOOL_TURN = [call("look", call_id="c1"), "ok"]
WHOLE = ["U(hi)", "C1", "O1", "A"]
SHORT = ["U(hi)", "compaction"]


class Plain:
    """Somebody's session: the methods of the protocol over a list, and nothing else."""

    def __init__(self) -> None:
        self.session_id, self.session_settings, self.items = "s", None, list[Any]()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items if limit is None else self.items[-limit:] if limit else [])

    async def add_items(self, items: list[Any]) -> None:
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


@pytest.fixture(params=["SQLite", "memory", "plain"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "plain":
        yield Plain()
        return
    session: Any = SQLiteSession("s", str(tmp_path / "s.db")) if request.param == "SQLite" else InMemorySession("s")
    yield session
    session.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Any:
    session = SQLiteSession("s", str(tmp_path / "s.db"))
    yield session
    session.close()


def at_least(count: int) -> Any:
    return lambda context: len(context["compaction_candidate_items"]) >= count


def compacting(store: Any, client: AsyncOpenAI, *, mode: Any = "auto", due: Any = None) -> Any:
    return OpenAIResponsesCompactionSession(
        "s", store, client=client, compaction_mode=mode, should_trigger_compaction=due or at_least(3)
    )


def world_on(server: LoopbackServer, client: AsyncOpenAI, session: Any, streamed: bool = False, **agent: Any) -> World:
    world = World(server, client, "session", streamed, **agent)
    world.session = session
    server.rule = Script(TOOL_TURN)
    return world


def asked(server: LoopbackServer) -> list[Received]:
    """The requests to compact."""
    return [one for one in server.requests if one.path.endswith(COMPACT)]


# --- what is asked for, and what comes of it -------------------------------------------------------------------------

MODES = {
    # mode, store=: what the compaction is asked from
    "auto": ("auto", None, "chain"),
    "auto, not stored": ("auto", False, "items"),
    "input": ("input", None, "items"),
    "previous_response_id": ("previous_response_id", None, "chain"),
}


@C9
@D8
@both_modes
@pytest.mark.parametrize("how", MODES)
async def test_a_run_whose_history_is_long_enough_leaves_it_compacted(
    how: str, streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """What was made is an item of the run and of its state; the next request has it in place of what it stands for."""
    mode, stored, source = MODES[how]
    world = world_on(
        server, client, compacting(store, client, mode=mode), streamed, settings=ModelSettings(store=stored)
    )
    result = await world.say("hi")
    (request,) = asked(server)
    if source == "chain":
        assert request.body["previous_response_id"] == result.last_response_id
        assert "input" not in request.body
    else:
        assert words(request.body["input"]) == WHOLE
        assert "previous_response_id" not in request.body
    items = await world.session.get_items()
    assert words(items) == SHORT
    assert words(unseal(items[-1])) == ["C1", "O1", "A"]
    made = result.new_items[-1]
    assert isinstance(made, CompactionItem)
    assert made.to_input_item() == items[-1]
    again = await RunState.from_string(world.agent, result.to_state().to_string())
    assert "compaction_item" in again.to_string()
    server.rule = Script(["ok"])
    await world.say("next")
    last = server.model_calls[-1]
    assert words(last.input) == [*SHORT, "U(next)"]
    assert last.previous_response_id is None
    assert words(await world.session.get_items()) == [*SHORT, "U(next)", "A"]


@C9
@both_modes
async def test_what_the_request_cost_belongs_to_the_run(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    world = world_on(server, client, compacting(store, client), streamed)
    result = await world.say("hi")
    assert result.context_wrapper.usage.requests == 3
    assert result.context_wrapper.usage.total_tokens == 2 * 15 + 120


@C9
async def test_nothing_is_asked_before_it_is_due(store: Any, server: LoopbackServer, client: AsyncOpenAI):
    world = world_on(server, client, compacting(store, client, due=at_least(4)))
    result = await world.say("hi")
    assert asked(server) == []
    assert not any(isinstance(item, CompactionItem) for item in result.new_items)
    server.rule = Script(["ok"])
    await world.say("next")
    assert len(asked(server)) == 1
    assert words(await world.session.get_items()) == ["U(hi)", "U(next)", "compaction"]


# --- a chain that is not the history ---------------------------------------------------------------------------------


def last_two(history: list[Any], new: list[Any]) -> list[Any]:
    return [*history[-2:], *new]


def last_message(data: Any) -> ModelInputData:
    kept = [item for item in data.model_data.input if "role" in item][-1:]
    return ModelInputData(kept or data.model_data.input[-1:], data.model_data.instructions)


SEEN_IN_PART: dict[str, RunConfig] = {
    "a session_input_callback": RunConfig(session_input_callback=last_two),
    "a limit of the run": RunConfig(session_settings=SessionSettings(limit=2)),
    "a filter": RunConfig(call_model_input_filter=last_message),
}


@C9
@D8
@both_modes
@pytest.mark.parametrize("why", SEEN_IN_PART)
async def test_what_was_kept_from_the_model_is_compacted_too(
    why: str, streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """The response's chain holds what the model saw. Compacted in the history's place, the rest would be gone."""
    world = world_on(server, client, compacting(store, client, due=lambda context: False), streamed)
    await world.say("hi")
    world.session.should_trigger_compaction = at_least(1)
    server.rule = Script(["ok"])
    world.config = SEEN_IN_PART[why]
    await world.say("next")
    (request,) = asked(server)
    assert words(request.body["input"]) == [*WHOLE, "U(next)", "A"]
    items = await world.session.get_items()
    assert words(items) == ["U(hi)", "U(next)", "compaction"]
    assert words(unseal(items[-1])) == ["C1", "O1", "A", "A"]


@C9
@both_modes
async def test_what_a_handoff_filter_hid_is_compacted_too(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    world = world_on(server, client, compacting(store, client), streamed)
    world.agent.handoffs = [handoff(world.other, input_filter=lambda data: data.clone(input_history=()))]
    server.rule = Script([call("transfer_to_other", call_id="c1"), "ok"])
    await world.say("hi")
    (request,) = asked(server)
    assert words(request.body["input"]) == WHOLE


@D8
@both_modes
async def test_asking_for_the_chain_where_it_is_not_the_history_is_refused_and_changes_nothing(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI, caplog: pytest.LogCaptureFixture
):
    world = world_on(server, client, compacting(store, client, mode="previous_response_id"), streamed)
    world.config = SEEN_IN_PART["a filter"]
    server.rule = Script(["a", "b", "c"])
    with caplog.at_level(logging.WARNING, "standfast"):
        for word in ("one", "two", "three"):
            await world.say(word)
    assert asked(server) == []
    assert any("not compacted" in line for line in caplog.messages)
    assert len(await world.session.get_items()) == 6


@D8
@both_modes
async def test_a_response_that_the_server_does_not_know_is_replaced_by_the_items(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    world = world_on(server, client, compacting(store, client), streamed)
    server.fault(Status(400, code="previous_response_not_found"), on=COMPACT)
    await world.say("hi")
    first, second = asked(server)
    assert "input" not in first.body
    assert words(second.body["input"]) == WHOLE
    assert words(await world.session.get_items()) == SHORT


# --- a compaction that fails -----------------------------------------------------------------------------------------


@C9
@both_modes
@pytest.mark.parametrize(
    "fault", [Status(500), Drop(committed=True), Malformed(), Status(400, code="invalid_value")], ids=str
)
async def test_a_compaction_that_fails_never_fails_the_run(
    fault: Any,
    streamed: bool,
    store: Any,
    server: LoopbackServer,
    client: AsyncOpenAI,
    caplog: pytest.LogCaptureFixture,
):
    """The turn is stored: that was the run. The history is as it was, and the next run tries again."""
    world = world_on(server, client, compacting(store, client, mode="input"), streamed)
    server.fault(fault, on=COMPACT)
    with caplog.at_level(logging.WARNING, "standfast"):
        result = await world.say("hi")
    assert result.final_output == "ok"
    assert any("not compacted" in line for line in caplog.messages)
    assert words(await world.session.get_items()) == WHOLE
    server.rule = Script(["ok"])
    await world.say("next")
    assert words(await world.session.get_items()) == ["U(hi)", "U(next)", "compaction"]


# --- what has to wait, and what has to stay --------------------------------------------------------------------------


@C9
@both_modes
async def test_a_compaction_waits_while_tool_outputs_still_belong_to_the_chain(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """The last response does not have them. It is due, so it is done after the next run, whatever the count is then."""
    world = world_on(server, client, compacting(store, client, due=at_least(2)), streamed)
    world.agent.tool_use_behavior = "stop_on_first_tool"
    result = await world.say("hi")
    assert result.final_output == "saw "
    assert asked(server) == []
    assert world.session.deferred_response_id == result.last_response_id
    assert words(await world.session.get_items()) == ["U(hi)", "C1", "O1"]
    world.session.should_trigger_compaction = lambda context: False
    await world.say("next")
    assert len(asked(server)) == 1
    assert world.session.deferred_response_id is None
    assert words(await world.session.get_items()) == ["U(hi)", "U(next)", "compaction"]


@C9
async def test_a_nested_agents_response_is_not_the_end_of_the_chain(
    store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """An agent tool's reply came last of all, and belongs to another conversation."""
    world = world_on(server, client, compacting(store, client, due=at_least(2)))
    world.agent.tool_use_behavior = "stop_on_first_tool"
    world.agent.tools = [world.other.as_tool("ask_other", "Ask.")]
    server.rule = Script([call("ask_other", {"input": "?"}, call_id="c1"), "inner"])
    result = await world.say("hi")
    assert result.final_output == "inner"
    assert world.session.deferred_response_id == result.raw_responses[0].response_id


@C9
@both_modes
async def test_open_calls_are_never_compacted_away(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """Another program left a call without its output: it stays, with its reasoning, behind what was compacted."""
    left = [
        {"role": "user", "content": "earlier"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c9", "name": "look", "arguments": "{}"},
    ]
    await store.add_items(left)
    world = world_on(server, client, compacting(store, client, mode="input"), streamed)
    await world.say("hi")
    assert words(asked(server)[0].body["input"]) == ["U(earlier)", *WHOLE]
    items = await world.session.get_items()
    assert words(items) == ["U(earlier)", "U(hi)", "compaction", "R", "C9"]
    assert items[-2:] == left[1:]
    server.rule = Script(["ok"])
    await world.say("next")
    assert words(server.model_calls[-1].input) == ["U(earlier)", "U(hi)", "compaction", "U(next)"]


@C9
@both_modes
async def test_a_paused_run_is_not_compacted_and_goes_on_after_another_was(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """What it waits for is in its state, not in the history; its turn is appended behind the result."""
    world = world_on(server, client, compacting(store, client, mode="input"), streamed)
    server.rule = Script([call("touch", call_id="c5")])
    paused = await world.say("first")
    assert asked(server) == []
    state = await RunState.from_string(world.agent, paused.to_state().to_string())
    server.rule = Script(TOOL_TURN)
    await world.say("hi")
    assert words(await world.session.get_items()) == ["U(first)", "U(hi)", "compaction"]
    state.approve(state.get_interruptions()[0])
    world.session.should_trigger_compaction = lambda context: False
    server.rule = Script(["ok"])
    await world.resume(state)
    assert words(server.model_calls[-1].input) == ["U(first)", "U(hi)", "compaction", "C5", "O5"]
    assert words(await world.session.get_items()) == ["U(first)", "U(hi)", "compaction", "C5", "O5", "A"]


# --- undone ----------------------------------------------------------------------------------------------------------


@C9
@both_modes
async def test_a_compaction_can_be_undone_and_the_next_request_has_the_old_history(
    streamed: bool, store: Any, server: LoopbackServer, client: AsyncOpenAI
):
    world = world_on(server, client, compacting(store, client), streamed)
    await world.say("hi")
    world.session.should_trigger_compaction = lambda context: False
    server.rule = Script(["ok", "ok"])
    await world.say("next")
    await world.session.undo_compaction()
    assert words(await world.session.get_items()) == [*WHOLE, "U(next)", "A"]
    await world.say("again")
    last = server.model_calls[-1]
    assert words(last.input) == [*WHOLE, "U(next)", "A", "U(again)"]
    assert last.previous_response_id is None


# --- raced -----------------------------------------------------------------------------------------------------------


@C9
@both_modes
async def test_what_others_append_during_the_request_stays_behind_the_result(
    streamed: bool, sqlite: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """A writer that knows no leases, through an object of its own."""
    world = world_on(server, client, compacting(sqlite, client), streamed)
    gate = Gate()
    server.fault(gate, on=COMPACT)
    running = asyncio.ensure_future(world.say("hi"))
    await gate.reached()
    other = SQLiteSession("s", sqlite.db_path)
    await other.add_items([{"role": "user", "content": "meanwhile"}])
    gate.release()
    await running
    assert words(await other.get_items()) == [*SHORT, "U(meanwhile)"]
    other.close()


@C9
@both_modes
async def test_a_history_that_others_cut_during_the_request_is_left_alone(
    streamed: bool, sqlite: Any, server: LoopbackServer, client: AsyncOpenAI, caplog: pytest.LogCaptureFixture
):
    world = world_on(server, client, compacting(sqlite, client), streamed)
    gate = Gate()
    server.fault(gate, on=COMPACT)
    running = asyncio.ensure_future(world.say("hi"))
    await gate.reached()
    other = SQLiteSession("s", sqlite.db_path)
    await other.pop_item()
    gate.release()
    with caplog.at_level(logging.WARNING, "standfast"):
        result = await running
    assert result.final_output == "ok"
    assert not any(isinstance(item, CompactionItem) for item in result.new_items)
    assert words(await other.get_items()) == WHOLE[:-1]
    other.close()


@C9
async def test_runs_and_their_compactions_race_and_nothing_is_lost_or_doubled(
    sqlite: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """Twelve runs beside each other on one history, each compacting it when it is its turn."""
    server.rule = lambda asked: f"to {asked.last_text}"
    names = [f"n{number}" for number in range(12)]
    sessions = [compacting(SQLiteSession("s", sqlite.db_path), client, due=at_least(2)) for _ in names]
    agent = Agent(name="One", model=OpenAIResponsesModel("m", client))
    config = RunConfig(concurrency="allow")
    await asyncio.gather(
        *(Runner.run(agent, name, session=one, run_config=config) for name, one in zip(names, sessions, strict=True))
    )
    said = everything(await sqlite.get_items())
    assert sorted(text for text in said if text in names) == sorted(names)
    assert sorted(text for text in said if text.startswith("to ")) == sorted(f"to {name}" for name in names)
    assert asked(server)
    for one in sessions:
        one.close()


def everything(items: list[Any]) -> list[str]:
    """Every text of a history, what compactions stand for included, however often they were compacted."""
    found: list[str] = []
    for item in items:
        if item.get("type") == "compaction":
            found += everything(unseal(item))
        else:
            content = item["content"]
            found.append(content if isinstance(content, str) else content[0]["text"])
    return found


# --- killed ----------------------------------------------------------------------------------------------------------


class Mortal(SQLiteSession):
    """A session with a place to die: before its history is replaced, or right after."""

    place, line = "", None

    async def replace(self, *args: Any, **named: Any) -> Any:
        if self.place == "before the replacement":
            await self.die_here()
        head = await super().replace(*args, **named)
        if self.place == "after the replacement":
            await self.die_here()
        return head

    async def die_here(self) -> None:
        self.line.send("here")  # type: ignore[attr-defined]
        await asyncio.Event().wait()


async def run_and_compact(told: dict[str, Any], line: Any) -> None:
    client = loopback_client(told["base_url"])
    inner = Mortal("s", told["db"])
    inner.place, inner.line = told["place"], line
    agent = Agent(name="One", model=OpenAIResponsesModel("m", client))
    await Runner.run(agent, "hi", session=compacting(inner, client, mode="input", due=at_least(1)))
    line.send("done")


PLACES = {"during the request": False, "before the replacement": False, "after the replacement": True}


@C9
@pytest.mark.parametrize("place", PLACES)
async def test_a_process_killed_while_compacting_leaves_the_old_history_or_the_new(
    place: str, sqlite: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """And its turn is there in any case. The next run goes on, and compacts what is there then."""
    await sqlite.add_items([{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}])
    server.rule = lambda asked: "ok"
    gate = Gate()
    if place == "during the request":
        server.fault(gate, on=COMPACT)
    child, line = born(run_and_compact, {"base_url": server.base_url, "db": str(sqlite.db_path), "place": place})
    if place == "during the request":
        await gate.reached(60.0)
    else:
        assert await asyncio.to_thread(line.poll, 60.0)
        assert line.recv() == "here"
    await asyncio.to_thread(killed, child, line)
    gate.release()
    old, new = ["U(earlier)", "A", "U(hi)", "A"], ["U(earlier)", "U(hi)", "compaction"]
    items = await sqlite.get_items()
    assert words(items) == (new if PLACES[place] else old)
    assert everything(items).count("ok") == 1
    session = compacting(sqlite, client, due=at_least(1))
    await Runner.run(Agent(name="One", model=OpenAIResponsesModel("m", client)), "next", session=session)
    after = await sqlite.get_items()
    assert words(after) == ["U(earlier)", "U(hi)", "U(next)", "compaction"]
    assert sorted(everything(after)) == sorted(["earlier", "yes", "hi", "ok", "next", "ok"])
