"""Compaction (C9, D8): a history becomes shorter, and nothing is lost on the way.

The real `openai` client talks to the loopback provider, whose compaction items can be opened: what a compacted history
stands for can be compared with what was there before.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import children
from hypothesis import given, strategies as st
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from standfast import Agent, Runner
from standfast._src.base.errors import CompactionError, CompactionRefusedError, InvalidSettingError, NotFoundError
from standfast._src.items.history import canonical, prune
from standfast._src.items.usage import Usage
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import SessionSettings, abilities
from standfast._src.sessions.rules.compaction import resolve_mode, restoration, sanitised_output, split_open
from standfast._src.sessions.wrappers.compaction.responses import (
    DEFAULT_COMPACTION_THRESHOLD,
    OpenAIResponsesCompactionAwareSession,
    OpenAIResponsesCompactionSession,
    default_should_trigger_compaction,
    is_openai_model_name,
    is_openai_responses_compaction_aware_session,
    select_compaction_candidate_items,
)
from standfast.testing import ScriptedModel, assistant_message
from standfast.testing.loopback import Gate, LoopbackServer, Status, unseal

COMPACT = "/responses/compact"
NEW = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}]
Items = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def talk(count: int) -> Items:
    """So many exchanges of a question and an answer."""
    return [item for n in range(count) for item in (user(f"question {n}"), assistant(f"answer {n}"))]


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "seen"}


def meant(items: Items) -> Items:
    """What a history stands for: compactions opened, in the order of the loopback provider (users first)."""
    return [inner for item in items for inner in (meant(unseal(item)) if item.get("type") == "compaction" else [item])]


def words(item: dict[str, Any]) -> str:
    content = item.get("content") or item.get("call_id")
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


def texts(items: Items) -> list[str]:
    """Everything that was said, whether or not it has been compacted."""
    return sorted(map(words, meant(items)))


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running
        assert running.faults_waiting == 0, "a fault was prepared that no request met"


@pytest.fixture
async def client(server: LoopbackServer) -> AsyncIterator[AsyncOpenAI]:
    # Without TLS there is nothing to verify, and loading certificates is what makes a client slow to build.
    async with server.client(max_retries=0, http_client=DefaultAsyncHttpxClient(verify=False)) as real:
        yield real


class Plain:
    """A session of five methods without abilities, in the manner of the documents; it can be told to fail."""

    def __init__(self, items: Items = ()) -> None:  # type: ignore[assignment]
        self.session_id = "plain"
        self.session_settings: SessionSettings | None = None
        self.items: Items = list(items)
        self.clears: list[Any] = []
        self.adds: list[Any] = []

    async def get_items(self, limit: int | None = None) -> Items:
        await asyncio.sleep(0)
        return self.items[:] if limit is None else self.items[max(0, len(self.items) - limit) :]

    async def add_items(self, items: Items) -> None:
        fault = self.adds.pop(0) if self.adds else None
        await asyncio.sleep(0)
        if callable(fault):
            fault = fault(self)
        self.items.extend(items if fault is None else items[:fault])
        if fault is not None:
            raise OSError("add_items")

    async def pop_item(self) -> dict[str, Any] | None:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        fault = self.clears.pop(0) if self.clears else None
        await asyncio.sleep(0)
        if callable(fault):
            fault = fault(self)
        self.items = [] if fault is None else fault
        if fault is not None:
            raise OSError("clear_session")


@pytest.fixture(params=["memory", "sqlite"])
def able(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    session: Any
    if request.param == "memory":
        session = InMemorySession("s")
    else:
        session = SQLiteSession("s", tmp_path / "history.db")
    yield session
    session.close()


@pytest.fixture(params=["memory", "sqlite", "plain"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    session: Any
    if request.param == "memory":
        session = InMemorySession("s")
    elif request.param == "sqlite":
        session = SQLiteSession("s", tmp_path / "history.db")
    else:
        session = Plain()
    yield session
    if request.param != "plain":
        session.close()


def compacting(session: Any, client: Any, **options: Any) -> OpenAIResponsesCompactionSession:
    return OpenAIResponsesCompactionSession("s", session, client=client, **options)


# --- the calm case ---------------------------------------------------------------------------------------------------


async def test_a_history_is_replaced_by_its_compaction_and_can_be_had_back(store: Any, client: AsyncOpenAI):
    session = compacting(store, client)
    await session.add_items(talk(10))
    result = await session.run_compaction()
    assert result is not None
    assert result[-1]["type"] == "compaction"
    short = await session.get_items()
    assert short == result
    assert len(short) == 11  # ten questions and what stands for ten answers
    assert texts(short) == texts(talk(10))
    await session.add_items([user("and now?")])
    await session.undo_compaction()
    assert await session.get_items() == [*talk(10), user("and now?")]
    await session.undo_compaction()
    assert await session.get_items() == [*short, user("and now?")]


async def test_nothing_is_asked_before_the_threshold_unless_forced(store: Any, client: AsyncOpenAI, server: Any):
    session = compacting(store, client)
    await session.add_items(talk(DEFAULT_COMPACTION_THRESHOLD - 1))
    assert await session.run_compaction() is None
    assert server.requests == []
    assert await session.run_compaction({"force": True}) is not None
    assert len(server.requests) == 1


async def test_an_empty_history_is_never_compacted(store: Any, client: AsyncOpenAI, server: Any):
    assert await compacting(store, client).run_compaction({"force": True, "response_id": "resp_1"}) is None
    assert server.requests == []


async def test_a_history_longer_than_may_be_held_for_a_rollback_is_refused_before_anything_is_sent(
    store: Any, client: AsyncOpenAI, server: Any
):
    """A store with `replace` keeps the old history itself: there a run compacts a history of any length."""
    session = compacting(store, client, max_rollback_items=20)
    await session.add_items(talk(10))
    assert await session.run_compaction({"force": True}) is not None
    await session.add_items(talk(10))
    with pytest.raises(CompactionRefusedError, match="exceeds max_rollback_items"):
        await session.run_compaction({"force": True})
    assert len(server.requests) == 1
    assert len(await session.get_items()) == 11 + 20
    reply = assistant_message("Bye.", item_id="msg_1")
    result = await Runner.run(Agent(name="A", model=ScriptedModel([[reply]])), "Enough.", session=session)
    assert result.final_output == "Bye."
    assert (len(server.requests) == 1) is isinstance(store, Plain)
    for wrong in (0, -1):
        with pytest.raises(InvalidSettingError, match="max_rollback_items must be positive"):
            compacting(store, client, max_rollback_items=wrong)


async def test_the_whole_history_is_compacted_whatever_the_default_limit(able: Any, client: AsyncOpenAI, server: Any):
    """A3: a limit smaller than the history hides nothing from a compaction, and nothing is deleted unread."""
    able.session_settings = SessionSettings(limit=3)
    session = compacting(able, client)
    await session.add_items(talk(15))
    assert await session.run_compaction({"response_id": "resp_1"}) is not None
    (request,) = server.requests
    assert request.input == talk(15)
    assert texts(await session.get_items(limit=100)) == texts(talk(15))


async def test_the_decision_hook_sees_what_it_decides_about_and_changes_nothing(able: Any, client: AsyncOpenAI):
    seen: list[dict[str, Any]] = []

    def hook(context: dict[str, Any]) -> bool:
        seen.append(context)
        context["session_items"].clear()
        return False

    session = compacting(able, client, should_trigger_compaction=hook)
    await session.add_items(talk(1))
    assert await session.run_compaction({"response_id": "resp_1", "store": False}) is None
    (context,) = seen
    assert context["response_id"] == "resp_1"
    assert context["compaction_mode"] == "input"
    assert context["compaction_candidate_items"] == [assistant("answer 0")]
    assert await session.get_items() == talk(1)


async def test_what_the_request_cost_is_added_to_the_run(able: Any, client: AsyncOpenAI):
    class Context:
        usage = Usage()

    session = compacting(able, client)
    await session.add_items(talk(10))
    await session.run_compaction(wrapper=Context())
    assert (Context.usage.requests, Context.usage.input_tokens, Context.usage.output_tokens) == (1, 100, 20)


async def test_a_typed_default_client_or_one_of_our_own_is_used_where_none_is_given(
    able: Any, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "loopback")
    session = OpenAIResponsesCompactionSession("s", able)
    await session.add_items(talk(10))
    assert await session.run_compaction() is not None
    assert session.client is session.client
    await session.close()
    assert session.client.is_closed() is False  # closing took ours with it; asking again makes a new one
    await session.close()


# --- open calls ------------------------------------------------------------------------------------------------------

REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{}", "server_label": "bank"}


async def test_open_calls_and_approvals_stay_behind_the_result_in_order(
    store: Any, client: AsyncOpenAI, server: LoopbackServer
):
    """C9: with the reasoning they came from, their siblings, and what the siblings already returned."""
    history = [*talk(10), REASONING, call("c1"), call("c2"), output("c1"), user("wait"), APPROVAL]
    session = compacting(store, client)
    await session.add_items(history)
    assert await session.run_compaction() is not None
    kept = await session.get_items()
    assert kept[-5:] == [REASONING, call("c1"), call("c2"), output("c1"), APPROVAL]
    assert kept[-6]["type"] == "compaction"
    (request,) = server.requests
    assert request.input == [*talk(10), user("wait")]
    await session.add_items([output("c2"), {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"}])
    _, left_out = prune(await session.get_items())
    assert left_out == []


def test_a_history_of_open_calls_only_has_nothing_to_compact():
    assert split_open([REASONING, call("c1")]) == ([], [REASONING, call("c1")])


def test_what_a_program_made_stays_with_the_program_that_is_still_at_work():
    program = {"type": "program", "call_id": "p1", "code": "…"}
    inner = {**call("c1"), "caller": {"type": "program", "caller_id": "p1"}}
    other = [call("c9"), output("c9")]
    assert split_open([*other, program, inner, output("c1"), user("x")]) == (
        [*other, user("x")],
        [program, inner, output("c1")],
    )


KINDS = st.lists(
    st.sampled_from([user("hi"), assistant("ho"), REASONING, *map(call, "abc"), *map(output, "abc"), APPROVAL]),
    max_size=12,
)


@given(KINDS)
def test_splitting_loses_nothing_and_leaves_no_open_call_to_be_compacted(items: Items):
    rest, pinned = split_open(items)
    assert sorted(map(canonical, [*rest, *pinned])) == sorted(map(canonical, items))
    again, still_open = split_open(rest)
    assert still_open == []
    assert again == rest


# --- from where ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "response_id", "stored", "doubt", "expected"),
    [
        ("auto", None, None, "", "input"),
        ("auto", None, True, "", "input"),
        ("auto", "resp_1", None, "", "previous_response_id"),
        ("auto", "resp_1", True, "", "previous_response_id"),
        ("auto", "resp_1", False, "", "input"),
        ("auto", "resp_1", True, "it moved", "input"),
        ("input", "resp_1", True, "", "input"),
        ("input", None, None, "", "input"),
        ("previous_response_id", "resp_1", None, "", "previous_response_id"),
        ("previous_response_id", "resp_1", False, "", CompactionRefusedError),
        ("previous_response_id", None, None, "", CompactionRefusedError),
        ("previous_response_id", "resp_1", None, "it moved", CompactionRefusedError),
    ],
)
def test_where_the_history_is_taken_from(mode: Any, response_id: Any, stored: Any, doubt: str, expected: Any):
    """D8."""
    if isinstance(expected, str):
        assert resolve_mode(mode, response_id=response_id, stored=stored, in_doubt=doubt) == expected
    else:
        with pytest.raises(expected):
            resolve_mode(mode, response_id=response_id, stored=stored, in_doubt=doubt)


async def a_turn_on(session: Any, client: AsyncOpenAI, text: str, **append: Any) -> str:
    """One exchange by replay, as a run with a session does it: whole history out, turn appended. Its response id."""
    history = await session.get_items()
    response = await client.responses.create(model="gpt-4.1", input=[*history, user(text)])
    answer = response.output_text
    if append:
        await session.append([user(text), assistant(answer)], **append)
    else:
        await session.add_items([user(text), assistant(answer)])
    return response.id


async def test_with_a_stored_response_the_server_compacts_its_chain(store: Any, client: AsyncOpenAI, server: Any):
    session = compacting(store, client)
    response_id = await a_turn_on(session, client, "hello")
    assert await session.run_compaction({"response_id": response_id, "store": True, "force": True}) is not None
    assert server.requests[-1].path.endswith(COMPACT)
    assert server.requests[-1].previous_response_id == response_id
    assert "input" not in server.requests[-1].body
    question, sealed = await session.get_items()
    assert words(question) == "hello"
    assert [words(item) for item in unseal(sealed)] == ["You said: hello"]  # as the loopback provider does


async def test_a_response_that_was_not_stored_is_remembered_as_such(able: Any, client: AsyncOpenAI, server: Any):
    session = compacting(able, client)
    await session.add_items(talk(2))
    assert await session.run_compaction({"response_id": "resp_gone", "store": False}) is None
    assert await session.run_compaction({"response_id": "resp_gone", "force": True}) is not None
    assert server.requests[-1].input == talk(2)


async def test_a_chain_that_the_server_forgot_is_replaced_by_the_items(able: Any, client: AsyncOpenAI, server: Any):
    session = compacting(able, client)
    response_id = await a_turn_on(session, client, "hello")
    server.forget(response_id)
    assert await session.run_compaction({"response_id": response_id, "force": True}) is not None
    assert [request.status for request in server.requests[1:]] == [400, 200]
    assert server.requests[-1].input[0] == user("hello")


async def test_a_chain_that_was_asked_for_by_name_and_is_gone_is_an_error(able: Any, client: AsyncOpenAI, server: Any):
    session = compacting(able, client, compaction_mode="previous_response_id")
    await session.add_items(talk(1))
    with pytest.raises(CompactionError, match="not found"):
        await session.run_compaction({"response_id": "resp_unknown", "force": True})
    with pytest.raises(ValueError, match="needs a response_id"):
        await compacting(able, client).run_compaction({"compaction_mode": "previous_response_id", "force": True})
    asked = len(server.requests)
    with pytest.raises(CompactionRefusedError, match="store=False"):  # the server cannot know it, and is not asked
        await session.run_compaction({"response_id": "resp_1", "store": False, "force": True})
    assert len(server.requests) == asked
    assert await session.get_items() == talk(1)


async def test_what_the_chain_does_not_hold_is_never_replaced_by_it(store: Any, client: AsyncOpenAI, server: Any):
    """Something was written after the response: the chain is older than the history, so the items are sent."""
    session = compacting(store, client)
    response_id = await a_turn_on(session, client, "hello")
    assert await session.run_compaction({"response_id": response_id}) is None
    await session.add_items([user("by the way"), assistant("yes?")])
    assert await session.run_compaction({"force": True}) is not None
    assert server.requests[-1].previous_response_id is None
    assert "by the way" in texts(await session.get_items())


async def test_after_a_compaction_the_old_chain_is_not_used_again(able: Any, client: AsyncOpenAI, server: Any):
    session = compacting(able, client)
    response_id = await a_turn_on(session, client, "hello")
    await session.run_compaction({"response_id": response_id, "force": True})
    await session.add_items(talk(1))
    await session.run_compaction({"force": True})
    assert server.requests[-1].previous_response_id is None
    assert "question 0" in texts(await session.get_items())


@pytest.mark.parametrize("change", ["pop", "clear", "undo"])
async def test_a_history_that_was_cut_does_not_come_back_from_the_chain(
    able: Any, client: AsyncOpenAI, server: Any, change: str
):
    session = compacting(able, client)
    await session.add_items(talk(2))
    await session.run_compaction({"force": True})
    response_id = await a_turn_on(session, client, "a secret")
    await session.run_compaction({"response_id": response_id})
    if change == "pop":
        await session.pop_item()
        await session.pop_item()
    elif change == "clear":
        await session.clear_session()
        await session.add_items(talk(1))
    else:
        await session.undo_compaction()
    await session.run_compaction({"force": True})
    assert server.requests[-1].previous_response_id is None


async def test_a_run_that_held_a_lease_may_use_the_chain_and_one_that_held_none_sends_the_items(
    able: Any, client: AsyncOpenAI, server: Any
):
    """Two runs side by side: neither chain has the other's turn, so neither may stand for the whole."""
    session = compacting(able, client)
    lease = await session.lease(ttl_s=60, wait_s=0)
    response_id = await a_turn_on(session, client, "alone", writer="run 1", start=0, lease=lease)
    await session.run_compaction({"response_id": response_id, "force": True})
    assert server.requests[-1].previous_response_id == response_id
    await lease.release()
    response_id = await a_turn_on(session, client, "and again")
    await session.run_compaction({"response_id": response_id, "force": True})
    assert server.requests[-1].previous_response_id == response_id

    other = compacting(able, client)
    history = await session.get_items()
    theirs = await client.responses.create(model="gpt-4.1", input=[*history, user("theirs")])
    await a_turn_on(session, client, "mine", writer="run 2", start=0)
    await other.append([user("theirs"), assistant("done")], writer="run 3", start=0)
    await other.run_compaction({"response_id": theirs.id, "force": True})
    assert server.requests[-1].previous_response_id is None
    assert {"mine", "theirs", "alone"} <= set(texts(await session.get_items()))


# --- putting off -----------------------------------------------------------------------------------------------------


async def test_a_compaction_that_was_put_off_is_done_at_the_next_chance(able: Any, client: AsyncOpenAI, server: Any):
    """C9: it waits while tool outputs still belong to the response chain."""
    session = compacting(able, client)
    await session.add_items(talk(10))
    await session.defer_compaction("resp_1", store=True)
    await session.defer_compaction("resp_2", store=True)
    assert session.deferred_response_id == "resp_1"
    assert server.requests == []
    session.should_trigger_compaction = lambda context: False  # the decision was made when it was put off
    response_id = await a_turn_on(session, client, "go on")
    assert await session.run_compaction({"response_id": response_id}) is not None
    assert session.deferred_response_id is None
    assert await session.run_compaction() is None


async def test_nothing_is_put_off_that_was_not_due_and_clearing_forgets_it(able: Any, client: AsyncOpenAI):
    session = compacting(able, client)
    await session.add_items(talk(1))
    await session.defer_compaction("resp_1")
    assert session.deferred_response_id is None
    await session.add_items(talk(10))
    await session.defer_compaction("resp_1")
    assert session.deferred_response_id == "resp_1"
    await session.clear_session()
    assert session.deferred_response_id is None


# --- failures, and others at work ------------------------------------------------------------------------------------


async def test_a_request_that_fails_changes_nothing_and_is_a_compaction_error(
    store: Any, client: AsyncOpenAI, server: Any
):
    """The runner logs this and keeps the turn; it never fails a run (C9)."""
    session = compacting(store, client)
    await session.add_items(talk(10))
    server.fault(Status(500), on=COMPACT)
    with pytest.raises(CompactionError) as caught:
        await session.run_compaction()
    assert caught.value.__cause__ is not None
    assert caught.value.remedy
    assert await session.get_items() == talk(10)
    assert await session.run_compaction() is not None


async def test_a_result_that_cannot_be_used_is_refused_before_anything_is_replaced(store: Any):
    class Odd:
        """A client whose compactions cannot be sent back as input."""

        def __init__(self, *outputs: Any) -> None:
            self.responses, self.outputs = self, list(outputs)

        async def compact(self, **request: Any) -> Any:
            class Response:
                output = self.outputs.pop(0)
                usage = None

            return Response

    image = {"type": "message", "role": "user", "content": [{"type": "input_image", "detail": "auto"}]}
    session = compacting(store, Odd([image], []))
    await session.add_items(talk(10))
    with pytest.raises(ValueError, match="input_image"):
        await session.run_compaction()
    with pytest.raises(CompactionError, match="nothing back"):
        await session.run_compaction()
    assert await session.get_items() == talk(10)


def test_output_is_made_fit_to_be_sent_again():
    parts = [
        {"type": "input_text", "text": "look", "annotations": None},
        {"type": "input_image", "image_url": "data:x", "file_id": None, "detail": "low", "extra": 1},
        {"type": "input_file", "file_id": "f1", "filename": "a.pdf", "file_url": ""},
    ]
    message = {"type": "message", "role": "user", "content": parts, "status": None}
    reply = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "…", "created_by": "them"}
    assert sanitised_output([message, reply, sealed]) == [
        {
            "type": "message",
            "role": "user",
            "content": [
                parts[0],
                {"type": "input_image", "image_url": "data:x", "detail": "low"},
                {"type": "input_file", "file_id": "f1", "filename": "a.pdf"},
            ],
        },
        {"type": "message", "role": "assistant", "content": []},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "…"},
    ]
    assert sanitised_output([REASONING, reply])[1]["id"] == "msg_1"


async def test_what_is_appended_during_the_request_stays_behind_the_result(
    store: Any, client: AsyncOpenAI, server: Any
):
    session = compacting(store, client)
    await session.add_items(talk(10))
    gate = Gate()
    server.fault(gate, on=COMPACT)
    task = asyncio.create_task(session.run_compaction())
    await gate.reached()
    await session.add_items([user("meanwhile"), assistant("indeed")])
    gate.release()
    assert await task is not None
    items = await session.get_items()
    assert items[-2:] == [user("meanwhile"), assistant("indeed")]
    assert texts(items) == texts([*talk(10), user("meanwhile"), assistant("indeed")])
    await session.undo_compaction()
    assert await session.get_items() == [*talk(10), user("meanwhile"), assistant("indeed")]


async def test_a_history_that_was_cut_during_the_request_is_left_alone(store: Any, client: AsyncOpenAI, server: Any):
    session = compacting(store, client)
    await session.add_items(talk(10))
    gate = Gate()
    server.fault(gate, on=COMPACT)
    task = asyncio.create_task(session.run_compaction())
    await gate.reached()
    await session.pop_item()
    gate.release()
    with pytest.raises(CompactionError):
        await task
    assert await session.get_items() == talk(10)[:-1]


async def test_two_compactions_at_once_do_not_compact_each_other_away(able: Any, client: AsyncOpenAI, server: Any):
    one, two = compacting(able, client), compacting(able, client)
    await one.add_items(talk(10))
    gate = Gate()
    server.fault(gate, on=COMPACT)
    slow = asyncio.create_task(one.run_compaction())
    await gate.reached()
    assert await two.run_compaction() is not None
    gate.release()
    with pytest.raises(CompactionError):
        await slow
    assert texts(await one.get_items()) == texts(talk(10))


async def test_appenders_and_compactions_race_and_no_item_is_lost_or_doubled(able: Any, client: AsyncOpenAI):
    session = compacting(able, client)
    done = asyncio.Event()

    async def append(name: str) -> None:
        for n in range(15):
            start = 2 * n
            await session.append([user(f"{name}{n}"), assistant(f"re: {name}{n}")], writer=f"run {name}", start=start)
            await asyncio.sleep(0.001)

    async def compact() -> int:
        count = 0
        while not done.is_set():
            try:
                count += await session.run_compaction({"force": True}) is not None
            except CompactionError:
                pass  # it moved: try again
            await asyncio.sleep(0)
        return count

    compactor = asyncio.create_task(compact())
    await asyncio.gather(*(append(name) for name in "abc"))
    done.set()
    assert await compactor > 0
    expected = [text for name in "abc" for n in range(15) for text in (f"{name}{n}", f"re: {name}{n}")]
    assert texts(await session.get_items()) == sorted(expected)


class Instant:
    """A client that answers without a network: what is cancelled then is our own work."""

    def __init__(self) -> None:
        self.responses = self

    async def compact(self, *, input: Items, **request: Any) -> Any:
        class Response:
            output = NEW
            usage = None

        return Response


async def cancelled_after(session: Any, wait: Callable[[], Any]) -> Any:
    task = asyncio.create_task(session.run_compaction())
    await wait()
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    return result


@pytest.mark.parametrize("kind", ["memory", "plain"])
async def test_a_compaction_cancelled_at_any_await_leaves_the_old_history_or_the_new(kind: str):
    session = compacting(Plain() if kind == "plain" else InMemorySession("s"), Instant())
    seen = set()
    for steps in range(1000):
        await session.clear_session()
        await session.add_items(talk(10))

        async def wait(steps: int = steps) -> None:
            for _ in range(steps):
                await asyncio.sleep(0)

        result = await cancelled_after(session, wait)
        items = await session.get_items()
        assert items in (talk(10), NEW)
        seen.add((type(result), items == NEW))
        if result == NEW:
            break
        assert isinstance(result, asyncio.CancelledError)
    assert (asyncio.CancelledError, False) in seen
    assert (list, True) in seen, "it never came to its end"


async def test_a_compaction_on_sqlite_cancelled_at_any_moment_leaves_the_old_history_or_the_new(tmp_path: Path):
    session = compacting(SQLiteSession("s", tmp_path / "history.db"), Instant())
    await session.add_items(talk(200))
    begun = time.monotonic()
    assert await session.run_compaction() == NEW
    whole_s = time.monotonic() - begun
    for part in range(40):
        await session.clear_session()
        await session.add_items(talk(200))
        result = await cancelled_after(session, lambda part=part: asyncio.sleep(whole_s * part / 30))
        items = await session.get_items()
        assert items in (talk(200), NEW)
        if result == NEW:
            assert items == NEW
        else:
            assert isinstance(result, asyncio.CancelledError)
    await session.close()


# --- plain sessions: capture and restore ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "left",
    [talk(10), talk(10)[5:], talk(10)[:5], []],
    ids=["nothing cleared", "the beginning cleared", "the end cleared", "all cleared"],
)
async def test_a_clear_that_fails_is_restored_exactly_once(client: AsyncOpenAI, left: Items):
    plain = Plain(talk(10))
    plain.clears = [list(left)]
    with pytest.raises(CompactionError, match="clear_session"):
        await compacting(plain, client).run_compaction()
    assert plain.items == talk(10)


@pytest.mark.parametrize("written", [0, 1, 5])
async def test_an_add_that_fails_is_restored_exactly_once(client: AsyncOpenAI, written: int):
    plain = Plain(talk(10))
    plain.adds = [written]
    with pytest.raises(CompactionError, match="add_items"):
        await compacting(plain, client).run_compaction()
    assert plain.items == talk(10)


async def test_an_add_that_failed_after_writing_everything_has_compacted(client: AsyncOpenAI):
    plain = Plain(talk(10))
    plain.adds = [999]
    session = compacting(plain, client)
    assert await session.run_compaction() is not None
    assert texts(plain.items) == texts(talk(10))
    assert len(plain.items) == 11


@pytest.mark.parametrize("fault", [0, 7, 999], ids=["nothing", "a part", "everything"])
async def test_a_restore_that_fails_itself_is_finished_without_doubling(client: AsyncOpenAI, fault: int):
    plain = Plain(talk(10))
    plain.adds = [0, fault]
    with pytest.raises(CompactionError):
        await compacting(plain, client).run_compaction()
    assert plain.items == talk(10)


async def test_what_somebody_else_wrote_in_the_middle_is_kept_behind(client: AsyncOpenAI):
    """W39: a failed clear must not append the history to itself, nor lose what came meanwhile."""
    plain = Plain(talk(10))

    def other(session: Plain) -> int:
        session.items.append(user("theirs"))
        return 0

    plain.adds = [other]
    with pytest.raises(CompactionError):
        await compacting(plain, client).run_compaction()
    assert plain.items == [*talk(10), user("theirs")]


async def test_what_somebody_else_wrote_is_kept_even_if_clearing_up_fails_half_way(client: AsyncOpenAI):
    plain = Plain(talk(10))

    def others(session: Plain) -> int:
        session.items.extend([user("theirs"), user("hers")])
        return 0

    plain.adds = [others]
    plain.clears = [None, [user("hers")]]  # the first clear is the rewrite's own
    with pytest.raises(CompactionError):
        await compacting(plain, client).run_compaction()
    assert plain.items == [*talk(10), user("theirs"), user("hers")]


async def test_a_history_that_cannot_be_restored_is_in_the_error(client: AsyncOpenAI):
    plain = Plain(talk(10))
    plain.adds = [0] * 9
    with pytest.raises(CompactionError, match="could not be restored") as caught:
        await compacting(plain, client).run_compaction()
    assert caught.value.history == talk(10)


async def test_writes_through_the_wrapper_wait_for_the_rewrite(client: AsyncOpenAI):
    plain = Plain(talk(10))
    session = compacting(plain, client)
    cleared, go_on = asyncio.Event(), asyncio.Event()
    real = plain.clear_session

    async def slow_clear() -> None:
        await real()
        cleared.set()
        await go_on.wait()

    plain.clear_session = slow_clear  # type: ignore[method-assign]
    task = asyncio.create_task(session.run_compaction())
    await cleared.wait()
    adding = asyncio.create_task(session.add_items([user("meanwhile")]))
    await asyncio.sleep(0.02)
    task.cancel()  # a cancelled caller waits too: half a rewrite is a lost history
    await asyncio.sleep(0.02)
    assert plain.items == []
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await adding
    assert plain.items[-1] == user("meanwhile")
    assert texts(plain.items) == texts([*talk(10), user("meanwhile")])


FORMS = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6)


@given(old=FORMS, new=FORMS, others=st.lists(st.just(b"x"), max_size=2), data=st.data())
def test_a_plan_to_restore_leads_to_the_old_history_with_others_behind(
    old: list[bytes], new: list[bytes], others: list[bytes], data: st.DataObject
):
    """From any half-way state, with items as alike as can be, doing what the plan says ends at old or new."""
    states = [old[:n] for n in range(len(old) + 1)] + [old[n:] for n in range(len(old) + 1)]
    states += [new[:n] for n in range(len(new) + 1)]
    seen = [*data.draw(st.sampled_from(states)), *others]
    kept: list[bytes] = []
    for _ in range(3):
        plan = restoration([*old, *kept], new, seen)
        if plan.verdict in ("old", "new"):
            break
        if plan.verdict == "add":
            seen = [*seen, *[*old, *kept][plan.start :]]
        else:
            kept = seen[plan.start :]
            seen = []
    base = old if plan.verdict == "old" else new
    assert seen[: len(base)] == base
    assert [form for form in seen if form == b"x"] == others


async def test_undo_says_so_where_nothing_is_kept(store: Any, client: AsyncOpenAI):
    with pytest.raises(NotFoundError, match="no earlier history"):
        await compacting(store, client).undo_compaction()


# --- the wrapper as a session ----------------------------------------------------------------------------------------


async def test_the_wrapper_has_the_abilities_of_what_it_wraps_and_no_others(able: Any, client: AsyncOpenAI):
    session = compacting(able, client)
    assert abilities(session) == abilities(able)
    assert abilities(compacting(Plain(), client)) == frozenset()
    assert isinstance(session, OpenAIResponsesCompactionAwareSession)
    assert is_openai_responses_compaction_aware_session(session)
    assert not is_openai_responses_compaction_aware_session(able)
    assert not is_openai_responses_compaction_aware_session(None)
    head = await session.append(talk(1), writer="run", start=0)
    assert await session.head() == head == await able.head()
    assert await session.accepted("run") == 2
    assert await session.written("run") == talk(1)
    assert (await session.page(limit=1)).items == talk(1)[1:]
    assert await session.count_sessions() == 1
    assert [info.session_id for info in (await session.list_sessions(limit=5)).sessions] == ["s"]
    assert (await session.info()) == (await able.info())
    assert await session.corrupt_records() == []
    assert await session.run_store().load_run("none") is None
    async with await session.lease(ttl_s=60, wait_s=0):
        pass
    await session.replace([user("short")], upto=head)
    (kept,) = await session.generations()
    assert await session.read_generation(kept.id) == talk(1)
    await session.restore(kept.id)
    fork = await session.fork("copy")
    assert isinstance(fork, OpenAIResponsesCompactionSession)
    assert fork.session_id == "copy"
    assert await fork.get_items() == talk(1)
    await fork.close()
    await session.rewind(writer="run", to=1)
    assert await able.get_items() == talk(1)[:1]


def test_settings_are_those_of_the_wrapped_session(client: AsyncOpenAI):
    inner = InMemorySession("s", session_settings=SessionSettings(limit=2))
    session = compacting(inner, client)
    assert session.session_settings is inner.session_settings
    session.session_settings = SessionSettings(limit=1)
    assert inner.session_settings == SessionSettings(limit=1)


async def test_the_run_context_is_handed_on_by_the_rule_of_the_runner(client: AsyncOpenAI):
    """C10, through a wrapper."""
    given_context: list[Any] = []

    class Asking(Plain):
        async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> Items:  # type: ignore[override]
            given_context.append(wrapper)
            return await super().get_items(limit)

        async def add_items(self, items: Items, *, wrapper: Any = None) -> None:  # type: ignore[override]
            given_context.append(wrapper)
            await super().add_items(items)

        async def pop_item(self, *, wrapper: Any = None) -> Any:  # type: ignore[override]
            return await super().pop_item()

        async def clear_session(self, *, wrapper: Any = None) -> None:  # type: ignore[override]
            given_context.append(wrapper)
            await super().clear_session()

    context = object()
    session = compacting(Asking(talk(10)), client)
    await session.run_compaction(wrapper=context)
    await session.add_items([user("x")], wrapper=context)
    assert set(given_context) == {context}
    quiet = compacting(Plain(talk(10)), client)  # does not ask, and is not given it
    await quiet.run_compaction(wrapper=context)
    assert await quiet.get_items(limit=1, wrapper=context)


async def test_a_session_without_async_methods_or_limit_can_be_wrapped(client: AsyncOpenAI):
    class Sync:
        session_id = "sync"

        def __init__(self) -> None:
            self.items: Items = []

        def get_items(self) -> Items:
            return list(self.items)

        def add_items(self, items: Items) -> None:
            self.items.extend(items)

        def pop_item(self) -> Any:
            return self.items.pop()

        def clear_session(self) -> None:
            self.items.clear()

    session = compacting(Sync(), client)
    await session.add_items(talk(10))
    assert await session.get_items(limit=1) == [assistant("answer 9")]
    assert await session.run_compaction() is not None
    await session.undo_compaction()
    assert await session.pop_item() == assistant("answer 9")
    await session.close()


def test_what_cannot_work_is_refused_at_once():
    inner = InMemorySession("s")

    class OpenAIConversationsSession(Plain):
        """The one of this name, ours or the SDK's, has its history on the server."""

    with pytest.raises(ValueError, match="server's"):
        OpenAIResponsesCompactionSession("s", OpenAIConversationsSession())
    with pytest.raises(InvalidSettingError, match="claude"):
        OpenAIResponsesCompactionSession("s", inner, model="claude-x")
    with pytest.raises(ValueError, match="sometimes"):
        OpenAIResponsesCompactionSession("s", inner, compaction_mode="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        OpenAIResponsesCompactionSession("", inner)


@pytest.mark.parametrize(
    ("name", "known"),
    [("gpt-4.1", True), (" o3 ", True), ("ft:gpt-4o:x", True), ("ft:o4-mini:x", True), ("olive", False), ("x", False)],
)
def test_model_names(name: str, known: bool):
    assert is_openai_model_name(name) is known


def test_candidates_are_what_a_compaction_can_make_shorter():
    items = [user("a"), {"type": "message", **user("b")}, {"type": "compaction"}, assistant("c"), call("d")]
    assert select_compaction_candidate_items(items) == [assistant("c"), call("d")]
    assert default_should_trigger_compaction({"compaction_candidate_items": [0] * 10})
    assert not default_should_trigger_compaction({"compaction_candidate_items": [0] * 9})


# --- kill -9 ---------------------------------------------------------------------------------------------------------

CHILD = """
import asyncio, json, sys
from standfast._src.sessions.wrappers.compaction.responses import OpenAIResponsesCompactionSession
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

path, step = sys.argv[1:]

def say(word):
    print(word, flush=True)

class Client:
    def __init__(self):
        self.responses = self
    async def compact(self, **request):
        say("asked")
        if step == "asked":
            await asyncio.sleep(600)
        class Response:
            output = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}]
            usage = None
        return Response

class Watched(SQLiteSession):
    async def replace(self, items, *, upto, lease=None):
        say("replacing")
        await super().replace(items, upto=upto, lease=lease)
        say("replaced")
        await asyncio.sleep(600)

async def main():
    session = OpenAIResponsesCompactionSession("s", Watched("s", path), client=Client())
    say("begun")
    await session.run_compaction({"force": True})

asyncio.run(main())
"""


def killed_compaction(path: Path, step: str, delay_s: Callable[[], float]) -> list[str]:
    """Compact in a child process and kill it when it says `step`, that much later; what it had said by then."""
    child = children.program(CHILD, path, step)
    said: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        said.append(line.strip())
        if said[-1] == step:
            break
    time.sleep(delay_s())
    child.kill()
    said += [line.strip() for line in child.stdout]
    assert child.wait() == -9
    child.stdout.close()
    assert step in said
    return said


async def after_the_kill(path: Path, old: Items) -> str:
    """The history is the old one or the new one, whole, and the session works; which."""
    session = SQLiteSession("s", path)
    try:
        items = await session.get_items()
        assert items in (old, NEW)
        await session.add_items([user("afterwards")])
        assert await session.get_items() == [*items, user("afterwards")]
        if items == NEW:
            await OpenAIResponsesCompactionSession("s", session).undo_compaction()
            assert await session.get_items() == [*old, user("afterwards")]
        else:
            assert await session.generations() == []
        return "new" if items == NEW else "old"
    finally:
        session.close()


def prepared(path: Path, exchanges: int) -> Items:
    async def write() -> Items:
        session = SQLiteSession("s", path)
        await session.add_items(talk(exchanges))
        session.close()
        return talk(exchanges)

    return asyncio.run(write())


@pytest.mark.parametrize(("step", "outcome"), [("begun", "old"), ("asked", "old"), ("replaced", "new")])
def test_a_compaction_killed_between_two_steps_leaves_the_old_history_or_the_new(
    tmp_path: Path, step: str, outcome: str
):
    old = prepared(tmp_path / "history.db", 20)
    said = killed_compaction(tmp_path / "history.db", step, lambda: 0.0)
    found = asyncio.run(after_the_kill(tmp_path / "history.db", old))
    assert found == outcome or (step == "begun" and "replacing" in said)


def test_a_compaction_killed_inside_the_replacement_leaves_the_old_history_or_the_new(tmp_path: Path):
    """The kill is aimed ever later into the write; a round counts if it landed before the write had returned."""
    chance = random.Random(7)
    landed = 0
    for number in range(40):
        path = tmp_path / f"history{number}.db"
        old = prepared(path, 1500)
        aim_s = chance.random() * 0.001 * (number % 8)
        said = killed_compaction(path, "replacing", lambda aim_s=aim_s: aim_s)
        found = asyncio.run(after_the_kill(path, old))
        if "replaced" not in said:
            landed += 1
        else:
            assert found == "new"
        if landed >= 5:
            break
    assert landed >= 5, "no kill landed inside the replacement; make the history longer"
