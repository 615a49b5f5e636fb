"""The example service, with worker processes on SQLite and on PostgreSQL that are really cut off, killed and stopped.

Every effect happens once, or the history says that its outcome is not known; every message is answered; every event
is seen once.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from service.client import Client, Event, RefusedError

from tests.helpers.ledger_oracle import done, outputs, says_unknown
from tests.web_service.conftest import Service, client, is_status

LEASE_S = 3.0
"""Of workers that are killed: on PostgreSQL nobody goes on with their runs before."""


def whole_history(asked: Client, conversation: str) -> list[dict[str, Any]]:
    """What was said in a conversation, in order."""
    items: list[dict[str, Any]] = asked.get(f"/conversations/{conversation}?limit=500")["items"]
    return items


def kept(events: list[Event]) -> tuple[list[Any], list[Any]]:
    """What every watcher sees once, wherever and whenever: what was said, in order, and each call."""
    said = [(one.data["ordinal"], one.data["item"]) for one in events if one.kind == "item_saved"]
    # Whether a call ends before or after its items are seen depends on when one looks.
    calls = [(one.kind, one.data["call_id"]) for one in events if one.kind in ("call_began", "call_ended")]
    return said, sorted(calls)


# --- watching --------------------------------------------------------------------------------------------------------


def test_a_client_that_is_cut_off_at_every_event_sees_each_of_them_once(service: Service):
    """It takes one event, is cut off, and goes on at the other worker; so do those who come when all is over."""
    workers = [client(service.worker()), client(service.worker())]
    either = workers[0]
    either.say("ada", "a b c", "m1")
    seen: list[Event] = []
    for worker in itertools.cycle(workers):
        if seen and seen[-1].kind == "run_ended":
            break
        with closing(worker.cut_off("m1", seen[-1].id if seen else None)) as events:
            seen += itertools.islice((event for event in events if event.id), 1)
    ids = [event.id for event in seen]
    assert len(set(ids)) == len(ids)
    whole = [event for event in either.cut_off("m1") if event.id]
    assert kept(seen) == kept(whole)
    said = [one.data["item"] for one in seen if one.kind == "item_saved"]
    assert said == whole_history(either, "ada")
    for worker, (place, event) in zip(itertools.cycle(workers), enumerate(whole), strict=False):
        assert kept([one for one in worker.cut_off("m1", event.id) if one.id]) == kept(whole[place + 1 :])
    assert service.book == ["a", "b", "c"]


def test_who_comes_with_a_wrong_cursor_is_refused_and_not_told_to_come_again(service: Service):
    worker = client(service.worker())
    worker.say("ada", "a b", "m1")
    worker.say("bob", "ask1", "m2")
    *_, last = worker.events("m1")
    for wrong in ("no cursor", last.id):
        with pytest.raises(RefusedError, match="cursor"):
            list(worker.events("m2", wrong))


def test_words_come_from_the_worker_that_is_at_the_run_and_have_no_id(service: Service):
    one, other = service.worker(), service.worker()
    service.places.hold("model-a-2")
    client(one).say("ada", "a", "m1")
    service.somebody_stands("model-a-2")
    with ThreadPoolExecutor(2) as threads:
        beside = threads.submit(lambda: list(client(other).events("m1")))
        here = client(one).events("m1")
        first = next(here)
        service.places.release("model-a-2")
        events = [first, *here]
    words = [event for event in events if event.kind == "words"]
    assert "".join(event.data["text"] for event in words) == done("a")
    assert {event.id for event in words} == {None}
    assert not [event for event in beside.result() if event.kind == "words"]
    assert kept(events) == kept(beside.result())


# --- a message -------------------------------------------------------------------------------------------------------


def test_a_message_that_is_sent_by_many_at_once_is_one_run(service: Service):
    """At two workers, while the run is at work, and when it has ended."""
    one, other = service.worker(), service.worker()
    service.places.hold("tool-a")
    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda number: client((one, other)[number % 2]).say("ada", "a b", "m1"), range(8)))
        assert {answer["run"] for answer in told} == {"m1"}
        service.somebody_stands("tool-a")
        assert {client(worker).say("ada", "a b", "m1")["status"] for worker in (one, other)} == {"running"}
        service.places.release("tool-a")
    is_status(client(one), "m1", "done")
    again = [client(worker).say("ada", "a b", "m1") for worker in (one, other)]
    assert [answer["output"] for answer in again] == [f"{done('a')}; {done('b')}"] * 2
    assert service.book == ["a", "b"]
    assert len(whole_history(client(one), "ada")) == 6


def test_an_id_that_was_another_message_is_refused(service: Service):
    one, other = service.worker(), service.worker()
    service.places.hold("tool-a")
    client(one).say("ada", "a", "m1")
    service.somebody_stands("tool-a")
    for is_over in (False, True):
        for worker in (one, other):
            for conversation, text in (("ada", "b"), ("bob", "a")):
                with pytest.raises(RefusedError) as caught:
                    client(worker).say(conversation, text, "m1")
                assert caught.value.status == 409
                assert "of its own" in caught.value.said["error"]["remedy"]
        if not is_over:
            service.places.release("tool-a")
            is_status(client(one), "m1", "done")
    assert service.book == ["a"]


def test_messages_of_one_conversation_are_answered_one_after_the_other(service: Service):
    workers = service.worker(), service.worker()
    either = client(*workers)
    with ThreadPoolExecutor(6) as threads:
        say = lambda number: client(workers[number % 2]).say("ada", f"w{number}", f"m{number}")  # noqa: E731
        list(threads.map(say, range(6)))
    for number in range(6):
        is_status(either, f"m{number}", "done")
    history = whole_history(either, "ada")
    turns = [history[start : start + 4] for start in range(0, len(history), 4)]
    for user, call, output, answer in turns:
        word = user["content"]
        assert (call["call_id"], output["output"], answer["content"][0]["text"]) == (word, done(word), done(word))
    assert sorted(service.book) == [f"w{number}" for number in range(6)]


def test_a_run_is_given_up_from_another_worker_than_the_one_that_is_at_it(service: Service):
    one, other = service.worker(), service.worker()
    service.places.hold("tool-a")
    client(one).say("ada", "a b", "m1")
    service.somebody_stands("tool-a")
    assert client(other).post("/runs/m1/cancel", {"by": "ann"})["cancelled_by"] == "ann"
    is_status(client(other), "m1", "cancelled")  # its worker hears of it when it renews its lease
    service.places.release("tool-a")
    client(other).say("ada", "c", "m2")
    is_status(client(other), "m2", "done")
    assert client(one).post("/runs/m1/cancel", {"by": "bob"})["status"] == "cancelled"  # again, and nothing changes
    assert service.book == ["a", "c"]
    told = outputs(whole_history(client(one), "ada"))
    assert says_unknown(told["a"][0]) or told["a"] == [done("a")]
    assert told["c"] == [done("c")]


# --- deaths and deploys ----------------------------------------------------------------------------------------------


def test_what_a_killed_worker_leaves_another_goes_on_with(service: Service):
    """kill -9 inside a tool, inside a model call and between two turns; nobody sends anything again."""
    places = {"tool-a": "a b", "model-m-1": "m n", "turn-t-2": "t u"}
    victims = [service.worker(lease_s=LEASE_S, tend_s=3600) for _ in places]
    for number, ((place, text), victim) in enumerate(zip(places.items(), victims, strict=True)):
        service.places.hold(place)
        client(victim).say(f"talk{number}", text, f"m{number}")
        assert service.somebody_stands(place) == victim.pid
    for victim in victims:
        victim.kill()
    for place in places:
        service.places.release(place)
    survivor = client(service.worker())
    for number, text in enumerate(places.values()):
        is_status(survivor, f"m{number}", "done")
        told = outputs(whole_history(survivor, f"talk{number}"))
        assert list(told) == text.split()
        for call_id, answers in told.items():
            # Of a call that had begun nobody can know what came of it.
            assert says_unknown(answers[0]) if call_id == "a" else answers == [done(call_id)]
    assert sorted(service.book) == ["a", "b", "m", "n", "t", "u"]


def test_a_message_behind_one_that_a_killed_worker_left_waits_until_that_is_answered(service: Service):
    """The next message would close the first as it is; it lets it go first, so that both are answered, in order."""
    victim, other = service.worker(lease_s=LEASE_S), service.worker(tend_s=3600)
    service.places.hold("turn-a-2")
    client(victim).say("ada", "a b", "m1")
    assert service.somebody_stands("turn-a-2") == victim.pid
    victim.kill()
    service.places.release("turn-a-2")
    client(other).say("ada", "c", "m2")
    assert is_status(client(other), "m2", "done")["output"] == done("c")
    assert client(other).get("/runs/m1")["output"] == f"{done('a')}; {done('b')}"
    said = [item["content"] for item in whole_history(client(other), "ada") if item.get("role") == "user"]
    assert said == ["a b", "c"]
    assert service.book == ["a", "b", "c"]


def test_a_run_that_was_left_goes_on_though_another_of_its_conversation_waits_for_a_person(service: Service):
    """A pass of `recover` lets go first what was at work; what waits for people keeps nobody."""
    victim = service.worker(lease_s=LEASE_S, tend_s=3600)
    client(victim).say("ada", "ask1", "m1")
    is_status(client(victim), "m1", "paused")
    service.places.hold("turn-a-2")
    client(victim).say("ada", "a b", "m2")
    assert service.somebody_stands("turn-a-2") == victim.pid
    victim.kill()
    service.places.release("turn-a-2")
    asked = client(service.worker())
    assert is_status(asked, "m2", "done")["output"] == f"{done('a')}; {done('b')}"
    assert is_status(asked, "m1", "paused")["waiting"][0]["call"] == "ask1"
    assert service.book == ["a", "b"]


def test_a_worker_that_is_told_to_stop_hands_over_and_its_clients_go_on_elsewhere(service: Service):
    """SIGTERM: what has begun ends, the stream is cut, another worker goes on, and nothing is of unknown outcome."""
    old = service.worker()
    service.places.hold("tool-a")
    client(old).say("ada", "a b", "m1")
    service.somebody_stands("tool-a")
    new = service.worker()
    watching = client(old, new).events("m1")
    first = next(watching)  # at the old one
    old.stop()
    service.places.release("tool-a")
    events = [event for event in (first, *watching) if event.id]
    assert old.ended() in (0, -15)
    assert events[-1].data["output"] == f"{done('a')}; {done('b')}"
    assert kept(events) == kept([event for event in client(new).cut_off("m1") if event.id])
    assert service.book == ["a", "b"]
