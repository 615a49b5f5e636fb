"""What the inspector's page is told of a store, and what it can change there."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from standfast import FunctionTool, RunConfig, Runner, SQLiteSession, open_store
from standfast._kits.inspector.changes import RUNS_EVERY, Watching
from standfast._src.sessions.client.lingering import LINGERING
from standfast.testing import final, function_call
from tests.inspector.serving import EVIL, EVIL_ID, Served, clerk, fill, inspector, inspector_here, pay


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "talks.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def served(store: Path) -> Iterator[Served]:
    with inspector_here(store, "ada@example.com") as found:
        yield found


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {file.name: (os.stat(file).st_mode, file.read_bytes()) for file in folder.iterdir()}


def test_looking_leaves_no_trace(store: Path) -> None:
    LINGERING.end_all()
    before = state_of(store.parent)
    with inspector(store) as served:
        for path in ("sessions", "items?session=long", "session?session=invoice-7", "search?q=words", "run?run=run-7"):
            assert served.ask(f"/api/{path}").status == 200
        assert served.ask("/api/sessions?waiting=1").json()["sessions"][0]["id"] == "invoice-7"
    assert state_of(store.parent) == before


def test_a_paused_run_is_shown_with_its_open_turn_and_what_earlier_ones_cost(served: Served) -> None:
    found = served.ask("/api/session?session=invoice-7").json()
    (run,) = found["open"]
    assert (run["id"], run["status"], run["doing"]) == ("run-7", "paused", "waits for a decision about pay")
    assert [(call["tool"], call["state"]) for call in run["calls"]] == [("pay", "waiting")]
    assert [item["name"] for item in run["open_items"]] == ["pay"]
    assert found["costs"][0]["run"] == "run-1"
    assert [(turn["turn"], turn["retries"]) for turn in found["costs"][0]["turns"]] == [(1, 0), (2, 1)]


def test_a_decision_is_stored_with_who_and_a_worker_finishes_the_run(served: Served, store: Path) -> None:
    decision = {"run": "run-7", "call": "call-1", "approve": True, "arguments": '{"amount":120,"to":"ACME"}'}
    assert served.post("/api/decide", {**decision, "arguments": '{"amount":1}'}).status == 409
    assert served.post("/api/decide", decision).json()["status"] == "ready"
    second = served.post("/api/decide", {**decision, "approve": False})
    assert second.status == 409
    assert "ada@example.com" in second.body
    (run,) = served.ask("/api/session?session=invoice-7").json()["open"]
    assert run["calls"][0]["decision"]["by"] == "ada@example.com"

    async def work() -> str:
        session = SQLiteSession("invoice-7", store)
        try:
            result = await Runner.resume(clerk(final("Paid.")), "run-7", session=session)
            outputs = [item for item in await session.get_items() if item.get("type") == "function_call_output"]
            assert [item["output"] for item in outputs][-1] == "paid 120 to ACME"
            return str(result.final_output)
        finally:
            await session.close()

    assert asyncio.run(work()) == "Paid."


def paused(store: Path, arguments: str, *, tool: Any = pay) -> None:
    """Let run "run-9" on session "nine" wait for a decision about a call with these arguments."""

    async def run() -> None:
        session = SQLiteSession("nine", store)
        agent = clerk([function_call("pay", arguments, call_id="call-9")])
        agent.tools = [tool]
        await Runner.run(agent, "Pay.", session=session, run_config=RunConfig(run_id="run-9"))
        await session.close()

    asyncio.run(run())


def waiting(served: Served) -> Any:
    """The call that waits in session "nine", as the page is told of it."""
    return served.ask("/api/session?session=nine").json()["open"][0]["calls"][0]


def test_what_waits_is_shown_as_it_is_written_with_the_values_the_tool_gets(served: Served, store: Path) -> None:
    """A number is not read on the way, and a mark that turns the reading order is written out."""
    text = '{"amount": "9007199254740993","to":"bob\u202e, {not} \\"two\\"", "to" : "ACME"}'
    paused(store, text)
    call = waiting(served)
    assert call["arguments"] == text
    assert call["text"].splitlines() == [
        "{",
        '  "amount": "9007199254740993",',
        '  "to": "bob\\u202e, {not} \\"two\\"",',
        '  "to": "ACME"',
        "}",
    ]
    assert call["values"].splitlines() == ["{", '  "amount": 9007199254740993,', '  "to": "ACME"', "}"]
    decision = {"run": "run-9", "call": "call-9", "approve": True, "arguments": text}
    assert served.post("/api/decide", decision).status == 409  # the values were not shown
    values = {"prepared_arguments": call["prepared_arguments"]}
    assert served.post("/api/decide", {**decision, **values}).json()["status"] == "ready"


@pytest.mark.parametrize("text", ["rm  -rf  /", '"text" {', "[1, 2}", "{" * 50 + "}" * 50, '{"a": 1} x', "\x1b[2J"])
def test_text_that_is_no_json_is_shown_with_its_spaces(served: Served, store: Path, text: str) -> None:
    async def run(context: Any, arguments: str) -> str:
        return "done"

    paused(store, text, tool=FunctionTool("pay", "Pay.", {}, run, strict_json_schema=False, needs_approval=True))
    assert waiting(served)["text"] == text.replace("\x1b", "\\x1b")


def test_arguments_that_are_too_long_to_show_cannot_be_approved_here(served: Served, store: Path) -> None:
    text = json.dumps({"amount": 1, "to": "x" * 40_000})
    paused(store, text)
    call = waiting(served)
    assert (call["arguments"], call["text"], call["length"]) == (None, None, len(text))
    decision = {"run": "run-9", "call": "call-9"}
    refused = served.post("/api/decide", {**decision, "approve": True, "arguments": text})
    assert (refused.status, "too long" in refused.body) == (400, True)
    assert served.post("/api/decide", {**decision, "approve": True}).status == 400
    assert served.post("/api/decide", {**decision, "approve": False}).json()["status"] == "ready"


ODD: list[Any] = [
    {"type": 5},
    {"type": None, "role": None},
    {"role": "user", "content": [None]},
    {"role": ["user"], "content": 5},
    {"type": "function_call", "arguments": {"a": 9007199254740993}},
    {"type": "function_call_output", "output": [None], "call_id": 7},
    {"type": "reasoning", "summary": 1.5},
    {"type": "\u202eneve", "x": None},
]


def test_an_item_of_an_odd_form_is_shown_and_hides_nothing(served: Served, store: Path) -> None:
    async def write() -> None:
        session = SQLiteSession("odd", store)
        await session.add_items([*ODD, {"role": "user", "content": "still here"}])
        await session.close()

    asyncio.run(write())
    views = [record["view"] for record in served.ask("/api/items?session=odd").json()["records"]]
    assert len(views) == len(ODD) + 1
    assert all(isinstance(view["title"], str) and isinstance(view["text"], str) for view in views)
    assert views[-1] == {
        "kind": "said",
        "role": "user",
        "title": "user",
        "text": "still here",
        "form": "markdown",
    }
    assert "9007199254740993" in views[4]["text"]
    assert views[7]["title"] == "\\u202eneve"


def test_pages_lead_from_the_newest_record_to_the_first(served: Served) -> None:
    texts: list[str] = []
    before = ""
    while True:
        page = served.ask(f"/api/items?session=long&limit=70{before}").json()
        texts = [record["item"]["content"] for record in page["records"]] + texts
        if page["before"] is None:
            break
        before = f"&before={quote(page['before'])}"
    assert texts == [f"Question {number}" for number in range(300)]


def test_a_compaction_shows_what_was_there_and_can_be_undone(served: Served) -> None:
    page = served.ask("/api/items?session=compacted").json()
    (replaced,) = [record for record in page["records"] if record["replaces"]]
    before = served.ask(f"/api/generation?session=compacted&generation={quote(replaced['replaces'])}").json()
    assert [item["content"] for item in before["items"]] == [f"Old words {n}" for n in range(5)]
    assert served.post("/api/undo", {"session": "compacted", "generation": replaced["replaces"]}).status == 200
    texts = [record["item"]["content"] for record in served.ask("/api/items?session=compacted").json()["records"]]
    assert texts == [*(f"Old words {n}" for n in range(5)), "And now?"]
    displaced, *_ = served.ask("/api/session?session=compacted").json()["generations"]
    assert displaced["by"] == "ada@example.com"


def test_a_fork_continues_behind_the_record_and_takes_no_name_that_is_in_use(served: Served) -> None:
    records = served.ask("/api/items?session=invoice-7").json()["records"]
    asked = {"session": "invoice-7", "cursor": records[1]["cursor"], "new": "another/way?"}
    assert served.post("/api/fork", asked).json() == {"session": "another/way?"}
    forked = served.ask(f"/api/items?session={quote('another/way?', safe='')}").json()["records"]
    assert [record["item"] for record in forked] == [record["item"] for record in records[:2]]
    told = served.ask(f"/api/session?session={quote('another/way?', safe='')}").json()["origin"]
    assert (told["session"], told["index"], told["by"]) == ("invoice-7", 2, "ada@example.com")
    again = served.post("/api/fork", asked)
    assert (again.status, "not empty" in again.body) == (409, True)
    assert served.post("/api/fork", {**asked, "new": "third", "cursor": "nonsense"}).status in (400, 409)


def test_hostile_ids_and_words_come_back_as_data(served: Served) -> None:
    page = served.ask(f"/api/items?session={quote(EVIL_ID, safe='')}").json()
    assert page["records"][0]["item"]["content"] == EVIL
    assert served.ask("/api/items?session=../../etc/passwd").status == 404


def test_a_record_that_is_very_long_is_cut_and_can_be_had_whole(served: Served, store: Path) -> None:
    async def write() -> None:
        session = SQLiteSession("long", store)
        await session.add_items([{"role": "user", "content": "x" * 10_000_000}, {"role": "user", "content": "short"}])
        await session.close()

    asyncio.run(write())
    records = served.ask("/api/items?session=long&limit=3").json()["records"]
    assert [record["cut"] for record in records] == [False, True, False]
    assert len(records[1]["item"]["content"]) == 100_000
    whole = served.ask(f"/api/record?session=long&cursor={quote(records[1]['cursor'])}").json()
    assert len(whole["item"]["content"]) == 10_000_000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/items", 400),
        ("/api/items?session=none", 404),
        ("/api/items?session=long&limit=many", 400),
        ("/api/items?session=long&limit=1000", 400),
        ("/api/items?session=long&before=nonsense", 409),
        ("/api/run?run=none", 404),
        ("/api/record?session=long&cursor=nonsense", 409),
        ("/api/generation?session=long&generation=none", 404),
    ],
)
def test_bad_requests_are_answered_in_words(served: Served, path: str, status: int) -> None:
    answer = served.ask(path)
    assert answer.status in (status, 400, 404, 409), answer.body
    assert answer.json()["what"]
    assert answer.json()["remedy"]


def test_bodies_that_are_no_requests_are_refused(served: Served) -> None:
    headers = {"Content_Type": "application/json", "X_Standfast": "1"}
    for body in ("", "[]", "{", '{"run":7}', "{}", '{"x":"' + "y" * 200_000 + '"}'):
        assert served.ask("/api/decide", method="POST", body=body, **headers).status == 400


def test_a_store_that_goes_away_while_the_page_is_open_is_told_and_read_again_when_it_is_back(
    served: Served, store: Path
) -> None:
    with sqlite3.connect(store) as db:
        db.execute("alter table agent_messages rename to elsewhere")
    db.close()
    gone = served.ask("/api/items?session=long")
    assert gone.status >= 400
    assert gone.json()["what"]
    with sqlite3.connect(store) as db:
        db.execute("alter table elsewhere rename to agent_messages")
    db.close()


# --- live ------------------------------------------------------------------------------------------------------------


class Stream:
    """Server-sent events of a session, read as a browser reads them."""

    def __init__(self, served: Served, after: str | None, last_id: str | None = None) -> None:
        self.connection = http.client.HTTPConnection(*served.host.split(":"), timeout=60)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {served.token}"}
        headers |= {"Last-Event-ID": last_id} if last_id else {}
        path = "/api/events?session=invoice-7" + (f"&after={quote(after)}" if after else "")
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()

    def next(self) -> tuple[str, str, dict[str, object]]:
        kind = cursor = ""
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                cursor = value
            elif name == "data":
                return kind, cursor, json.loads(value)
            assert self.answer.fp is not None, "the stream ended"

    def records(self, count: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        while len(found) < count:
            kind, cursor, data = self.next()
            if kind == "record":
                item = data["item"]
                assert isinstance(item, dict)
                found.append((cursor, item["content"]))
        return found

    def close(self) -> None:
        self.connection.close()


def test_a_page_that_was_cut_off_sees_every_record_once(served: Served, store: Path) -> None:
    after = served.ask("/api/items?session=invoice-7").json()["after"]

    async def write(first: int, count: int) -> None:
        session = SQLiteSession("invoice-7", store)
        await session.add_items([{"role": "user", "content": f"live {first + n}"} for n in range(count)])
        await session.close()

    stream = Stream(served, after)
    asyncio.run(write(0, 3))
    seen = stream.records(2)  # and then it is cut off, with one record on the way
    stream.close()
    asyncio.run(write(3, 2))
    again = Stream(served, after, last_id=seen[-1][0])
    seen += again.records(3)
    again.close()
    assert [text for _, text in seen] == [f"live {n}" for n in range(5)]


def test_a_history_that_is_replaced_under_a_page_ends_its_stream_by_name(served: Served, store: Path) -> None:
    stream = Stream(served, served.ask("/api/items?session=invoice-7").json()["after"])

    async def clear() -> None:
        session = SQLiteSession("invoice-7", store)
        await session.clear_session()
        await session.add_items([{"role": "user", "content": "anew"}])
        await session.close()

    assert stream.answer.readline().startswith(b"retry")
    asyncio.run(clear())
    kinds = []
    while "replaced" not in kinds:
        kinds.append(stream.next()[0])
    stream.close()


async def test_ten_pages_cost_the_store_the_looks_of_one(store: Path) -> None:
    async with open_store(store, read_only=True) as opened:
        looked: list[str] = []
        make = opened.session

        def counted(session_id: str):
            session = make(session_id)
            records = session.records

            async def count(**options):
                looked.append(session_id)
                return await records(**options)

            session.records = count  # type: ignore[method-assign]
            return session

        opened.session = counted  # type: ignore[method-assign]
        watching = Watching(opened)
        listeners = [watching.listen("long", None) for _ in range(10)]
        coming = [asyncio.ensure_future(anext(listener)) for listener in listeners]  # type: ignore[arg-type]
        writer = SQLiteSession("long", store)
        while not watching.channels or watching.channels["long"].looks < 2:
            await asyncio.sleep(0.01)
        await writer.add_items([{"role": "user", "content": "for all"}])
        news = await asyncio.gather(*coming)
        assert {one.record.item["content"] for one in news} == {"for all"}  # type: ignore[union-attr,index]
        assert len(looked) == watching.channels["long"].looks, "a page asked the store itself"
        assert RUNS_EVERY > 1
        for listener in listeners:
            await listener.aclose()  # type: ignore[attr-defined]
        assert not watching.channels, "somebody still looks, for nobody"
        await writer.close()


def test_a_budget_is_shown_and_changed_on_the_page(served: Served, store: Path) -> None:
    """F10: with what is used and left; an amount without a meaning is refused, and an evil name is text."""
    assert served.ask("/api/overview").json()["budgets"] == []
    for budget, amount in (("day/usd/acme", "20"), (f"total/tokens/{EVIL_ID}", "7")):
        assert served.post("/api/budget", {"budget": budget, "amount": amount}).status == 200
    first, second = served.ask("/api/overview").json()["budgets"]
    assert (first["id"], first["limit"], first["used"], first["left"]) == ("day/usd/acme", "$20.00", "$0.00", "$20.00")
    assert second["id"] == f"total/tokens/{EVIL_ID}"
    assert "\n" not in second["name"]
    assert served.post("/api/budget", {"budget": "day/usd/acme", "amount": "much"}).status == 400
    assert served.post("/api/budget", {"budget": "acme", "amount": "1"}).status == 400
    assert served.post("/api/budget", {"budget": "day/usd/acme", "amount": ""}).json()["limit"] is None


def test_a_page_that_only_looks_changes_no_budget(store: Path) -> None:
    with inspector(store) as served:
        assert served.post("/api/budget", {"budget": "day/usd/acme", "amount": "1"}).status in (403, 404, 405)
        assert served.ask("/api/overview").json()["budgets"] == []
