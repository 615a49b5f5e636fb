"""Clients that repeat, hang up, contradict themselves and come late, while workers are killed; at random from a seed.

One rule: whatever was done is in the history once, or is said there to be unknown; every message that was taken has an
end; whoever watches sees each event once. `STANDFAST_ATTACK_ROUNDS=100` plays that many times as many stories.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.parse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from service.client import Event, RefusedError

from tests.helpers.counts import tried
from tests.helpers.ledger_oracle import wrongs
from tests.web_service.conftest import PATIENCE_S, Service, client, is_status
from tests.web_service.nursery import ServiceProcess

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
CONVERSATIONS = ("ada", "bob")
MESSAGES, CLIENTS, ACTS = 6, 4, 10
ENDED = ("done", "failed", "cancelled")


def text_of(number: int, variant: str = "w") -> str:
    """What a message says: words that no other has, every second one a question."""
    return f"{variant}{number}a ask{variant}{number}b" if number % 2 else f"{variant}{number}a {variant}{number}b"


@dataclass
class Rude:
    """One client: what it does follows from its seed."""

    workers: list[ServiceProcess]
    chance: random.Random
    seen: dict[str, list[Event]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def act(self) -> None:
        number = self.chance.randrange(MESSAGES)
        acts = (self.say, self.say, self.say, self.say_and_go, self.say_otherwise, self.watch, self.watch, self.decide)
        do = self.chance.choice((*acts, self.decide, self.decide_wrongly, self.cancel))
        tried[f"times {do.__name__}"] += 1
        try:
            do(number, client(*self.chance.sample(self.workers, len(self.workers))))
        except RefusedError as error:
            if error.status not in (404, 409):
                self.wrong.append(f"{do.__name__} {number}: {error}")

    def say(self, number: int, asked: Any) -> None:
        asked.say(CONVERSATIONS[number % 2], text_of(number), f"m{number}")
        self.taken.add(f"m{number}")

    def say_otherwise(self, number: int, asked: Any) -> None:
        """The same id with another text, or in another conversation: one of the two is refused."""
        if self.chance.random() < 0.5:
            asked.say(CONVERSATIONS[number % 2], text_of(number, "v"), f"m{number}")
        else:
            asked.say(CONVERSATIONS[1 - number % 2], text_of(number), f"m{number}")

    def say_and_go(self, number: int, asked: Any) -> None:
        """Hang up before the answer comes."""
        address = urllib.parse.urlsplit(self.chance.choice(self.workers).address).netloc
        with closing(http.client.HTTPConnection(address, timeout=PATIENCE_S)) as link:
            body = json.dumps({"id": f"m{number}", "text": text_of(number)})
            try:
                link.request(
                    "POST",
                    f"/conversations/{CONVERSATIONS[number % 2]}/messages",
                    body,
                    {"content-type": "application/json"},
                )
                time.sleep(self.chance.random() * 0.02)
            except OSError:
                pass  # it is being replaced

    def watch(self, number: int, asked: Any) -> None:
        """Go on behind what was seen last, take a few events, and hang up."""
        seen = self.seen.setdefault(f"m{number}", [])
        if seen and seen[-1].kind == "run_ended":
            return
        if asked.get(f"/runs/m{number}")["status"] == "paused":
            return  # there may be nothing more to see for long
        last = seen[-1].id if seen else None
        with closing(asked.cut_off(f"m{number}", last)) as events:
            for _, event in zip(range(self.chance.randint(1, 4)), events, strict=False):
                if event.id:
                    seen.append(event)
                if event.kind == "run_ended" or event.data.get("waiting"):
                    break

    def decide(self, number: int, asked: Any, approve: bool | None = None) -> None:
        for call in asked.get(f"/runs/m{number}")["waiting"]:
            chosen = self.chance.random() < 0.7 if approve is None else approve
            said = {"call": call["call"], "approve": chosen, "arguments": call["arguments"], "by": "ann"}
            for _ in range(self.chance.randint(1, 3)):
                asked.post(f"/runs/m{number}/decisions", said)

    def decide_wrongly(self, number: int, asked: Any) -> None:
        """About other arguments, or another call."""
        call = f"askw{number}b"
        odd = {"call": call, "arguments": '{"euros": 1}'} if self.chance.random() < 0.5 else {"call": "nobody's"}
        asked.post(f"/runs/m{number}/decisions", {"approve": True, "arguments": "{}", "by": "eve"} | odd)
        self.wrong.append(f"a wrong decision about m{number} was taken: {odd}")

    def cancel(self, number: int, asked: Any) -> None:
        if self.chance.random() < 0.4:
            asked.post(f"/runs/m{number}/cancel", {"by": "bob"})


def play(service: Service, seed: int) -> list[str]:
    """One story; what is wrong at its end."""
    chance = random.Random(seed)
    settings = {"lease_s": 3.0, "tend_s": 0.1}
    workers = [service.worker(**settings) for _ in range(2)]
    clients = [Rude(workers, random.Random(f"{seed} {number}")) for number in range(CLIENTS)]

    def live(rude: Rude) -> None:
        for _ in range(ACTS):
            rude.act()

    with ThreadPoolExecutor(CLIENTS) as threads:
        under_way = [threads.submit(live, rude) for rude in clients]
        for _ in range(seed % 3):
            time.sleep(chance.random() * 0.5)
            replace(service, workers, chance, settings)
        for one in under_way:
            one.result()
    tried["stories"] += 1
    return [wrong for rude in clients for wrong in rude.wrong] + at_the_end(service, clients, workers)


def replace(service: Service, workers: list[ServiceProcess], chance: random.Random, settings: dict[str, Any]) -> None:
    """Kill a worker, or tell it to stop, and start another at its address."""
    place = chance.randrange(len(workers))
    old = workers[place]
    if chance.random() < 0.7:
        old.kill()
        tried["times SIGKILL"] += 1
    else:
        old.stop()
        old.ended()
        tried["times SIGTERM"] += 1
    workers[place] = service.worker(port=urllib.parse.urlsplit(old.address).port, **settings)


def at_the_end(service: Service, clients: list[Rude], workers: list[ServiceProcess]) -> list[str]:
    """Send everything once more, decide what waits, and look at it all."""
    asked, found = client(*workers), []
    ended: dict[str, Any] = {}
    for number in range(MESSAGES):
        run = f"m{number}"
        try:
            asked.say(CONVERSATIONS[number % 2], text_of(number), run)
        except RefusedError as error:
            if error.status != 409:
                found.append(f"{run} again: {error}")
        for _ in range(5):
            one = is_status(asked, run, "paused", *ENDED)
            if one["status"] == "paused":
                clients[0].decide(number, asked, approve=True)
        ended[run] = is_status(asked, run, *ENDED)
        if ended[run]["status"] == "failed" and not ended[run]["settled_by"]:
            found.append(f"{run} failed: {ended[run]}")
    history = [item for one in CONVERSATIONS for item in asked.get(f"/conversations/{one}?limit=500")["items"]]
    found += wrongs(service.book, history)
    said = Counter(str(item["content"]) for item in history if item.get("role") == "user")
    for number, one in enumerate(ended.values()):
        times = said[text_of(number)] + said[text_of(number, "v")]
        if times > 1 or (one["status"] == "done" and times != 1):
            found.append(f"m{number} is {one['status']} and was said {times} times")
    return found + [wrong for rude in clients for wrong in watched(rude, asked)]


def watched(rude: Rude, asked: Any) -> list[str]:
    """Whether a watcher that was cut off again and again saw what one sees who comes at the end."""
    found = []
    for run, seen in rude.seen.items():
        whole = list(seen)
        if not seen or seen[-1].kind != "run_ended":
            whole += [event for event in asked.events(run, seen[-1].id if seen else None) if event.id]
        calm = [event for event in asked.events(run) if event.id]
        items = [(event.data["ordinal"], event.data["item"]) for event in whole if event.kind == "item_saved"]
        if items != [(event.data["ordinal"], event.data["item"]) for event in calm if event.kind == "item_saved"]:
            found.append(f"a watcher of {run} saw {items}")
        if [event.kind for event in whole].count("run_ended") != 1:
            found.append(f"a watcher of {run} saw its end {[event.kind for event in whole].count('run_ended')} times")
    return found


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_whatever_clients_do_it_is_done_once(service: Service, seed: int):
    assert play(service, seed + 1) == []
