"""The example service under load with its workers killed, beside the same service on openai-agents.

    ./dev bench bench_service --seconds 300 --store postgres

Some clients talk in some conversations, two in each, as `service.client` does: a message is sent until it is taken, a
stream that is cut is picked up at another worker, and a message that nobody knows any more is sent again under its id.
Meanwhile a worker is killed (three times in four with SIGKILL, else with SIGTERM) every few seconds, and replaced. At
the end everybody gets the answer to their last message, and the histories and the book of effects are compared:

lost: messages that were taken and are not in the history, or without an answer in it; doubled: that are there twice;
mixed: turns with items of another in between, or with a call that has no output; effects twice: calls that ran more
than once; unknown: calls of which the history says that their outcome is not known, because their worker was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import agents as peer
import psycopg
from agents.extensions.memory import SQLAlchemySession
from service.client import AGAIN_S, Client, RefusedError

from standfast import open_store
from tests.helpers import servers
from tests.helpers.ledger_oracle import done, lines, says_unknown
from tests.web_service.nursery import Nursery, ServiceProcess

LEASE_S = 5.0
PATIENCE_S = 60.0
"""How long the last messages may take once nobody is killed any more."""


@dataclass
class Told:
    """What the clients saw."""

    answered: Counter[str] = field(default_factory=Counter)
    sent_again: int = 0
    """Messages that were taken, and then no worker knew of them."""
    failed: int = 0
    repeated_events: int = 0
    waits_s: list[float] = field(default_factory=list)


class Load:
    """One service, its clients and its deaths."""

    def __init__(self, kind: str, store: str, folder: Path, options: argparse.Namespace) -> None:
        self.kind, self.store, self.folder, self.options = kind, store, folder, options
        self.ports = [servers.free_port() for _ in range(options.workers)]
        self.workers: list[ServiceProcess] = []
        self.told = [Told() for _ in range(options.clients)]
        self.stop = threading.Event()
        self.killed = self.stopped = self.silent = 0

    def run(self) -> float:
        """Let them talk; the CPU seconds of all workers, those that died included."""
        with Nursery("bench._service_workers") as nursery:
            self.workers = [self._worker(nursery, port) for port in self.ports]
            clients = [
                threading.Thread(target=self._talk, args=(number,), daemon=True)
                for number in range(self.options.clients)
            ]
            for client in clients:
                client.start()
            end, chance = time.monotonic() + self.options.seconds, random.Random(self.options.seed)
            while not self.stop.wait(chance.uniform(0.5, 1.5) * self.options.kill_every_s) and time.monotonic() < end:
                self._replace(nursery, chance)
            self.stop.set()
            for client in clients:
                client.join(PATIENCE_S)
                self.silent += client.is_alive()
            for worker in self.workers:
                worker.stop()
                worker.ended()
            return nursery.cpu_s

    def _worker(self, nursery: Nursery, port: int) -> ServiceProcess:
        settings: dict[str, Any] = {"kind": self.kind, "store": self.store, "lease_s": LEASE_S}
        return nursery.worker(self.folder, settings, port)

    def _replace(self, nursery: Nursery, chance: random.Random) -> None:
        place = chance.randrange(len(self.workers))
        if chance.random() < 0.75:
            self.workers[place].kill()
            self.killed += 1
        else:
            self.workers[place].stop()
            self.workers[place].ended()
            self.stopped += 1
        self.workers[place] = self._worker(nursery, self.ports[place])

    # --- a client ----------------------------------------------------------------------------------------------------

    def _talk(self, number: int) -> None:
        chance, told = random.Random(number), self.told[number]
        for count in itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count()):
            message = f"c{number}n{count}"
            addresses = [f"http://127.0.0.1:{port}" for port in chance.sample(self.ports, len(self.ports))]
            started = time.monotonic()
            self._say(Client(*addresses), f"talk{number // 2}", message, told)
            told.waits_s.append(time.monotonic() - started)
            time.sleep(chance.uniform(0, 2 * self.options.think_s))

    def _say(self, client: Client, conversation: str, message: str, told: Told) -> None:
        while True:
            client.say(conversation, f"{message}a {message}b", message)
            seen: Counter[str] = Counter()
            try:
                for event in client.events(message):
                    seen[event.id or ""] += event.id is not None
                    ended = event.data
            except RefusedError:
                told.sent_again += 1  # taken, and forgotten with its worker
                continue
            told.repeated_events += sum(count - 1 for count in seen.values() if count > 1)
            if ended["status"] == "done":
                told.answered[message] += 1
                return
            told.failed += 1
            if ended.get("settled_by"):
                return  # closed as it was by the message behind it: there is nothing to send again
            time.sleep(AGAIN_S)


# --- what is left ----------------------------------------------------------------------------------------------------


async def histories(kind: str, store: str, count: int) -> dict[str, list[dict[str, Any]]]:
    """Everything that was said, by conversation."""
    names = [f"talk{number}" for number in range(count)]
    if kind == "standfast":
        async with open_store(store) as opened:
            return {name: await opened.session(name).get_items() for name in names}
    url, _, schema = store.partition("?schema=")
    if not schema:
        path = store.removeprefix("sqlite:///")
        return {name: list(await peer.SQLiteSession(name, path).get_items()) for name in names}  # type: ignore[call-overload,misc]
    options = {"connect_args": {"server_settings": {"search_path": schema}}}
    found: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        there = url.replace("postgresql://", "postgresql+asyncpg://")
        session = SQLAlchemySession.from_url(name, url=there, engine_kwargs=options)
        found[name] = [dict(item) for item in await session.get_items()]
        await session.engine.dispose()
    return found


def judged(history: list[dict[str, Any]], expected: set[str]) -> Counter[str]:
    """What is wrong with a history in which these messages were taken."""
    found: Counter[str] = Counter()
    said = [str(item["content"]).split()[0][:-1] for item in history if item.get("role") == "user"]
    answers = Counter(
        item["content"][0]["text"].split(":")[0][:-1] for item in history if item.get("role") == "assistant"
    )
    for message in expected:
        found["lost"] += not said.count(message) or not answers[message]
        found["doubled"] += said.count(message) > 1 or answers[message] > 1
    turn: list[dict[str, Any]] = []
    for item in [*history, {"role": "user"}]:
        if item.get("role") == "user" and turn:
            found["mixed"] += not _is_whole(turn)
            turn = []
        turn.append(item)
    outputs = [str(item["output"]) for item in history if item.get("type") == "function_call_output"]
    found["unknown"] = sum(says_unknown(output) for output in outputs)
    return found


def _is_whole(turn: list[dict[str, Any]]) -> bool:
    """Whether a turn is a message, its calls with their outputs, and its answer, and nothing else."""
    first, second = str(turn[0].get("content")).split()[:2]
    said = [item.get("call_id") or item.get("role") for item in turn]
    return said == ["user", first, first, second, second, "assistant"]


def measured(kind: str, store: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    load = Load(kind, store, folder, options)
    started = time.monotonic()
    cpu_s = load.run()
    took = time.monotonic() - started
    talks = asyncio.run(histories(kind, store, (options.clients + 1) // 2))
    wrong: Counter[str] = Counter()
    for number, name in enumerate(talks):
        expected = {one for told in load.told[2 * number : 2 * number + 2] for one in told.answered}
        wrong += judged(talks[name], expected)
    effects = Counter(lines(folder / "book"))
    answered = sum(sum(told.answered.values()) for told in load.told)
    waits = sorted(wait for told in load.told for wait in told.waits_s)
    return {
        "messages answered": answered,
        "workers killed (SIGKILL)": load.killed,
        "workers stopped (SIGTERM)": load.stopped,
        "clients without an answer": load.silent,
        "lost": wrong["lost"],
        "doubled": wrong["doubled"],
        "mixed turns": wrong["mixed"],
        "effects twice": sum(count > 1 for count in effects.values()),
        "effects missing": sum(one not in effects for one in _reported(talks)),
        "told to be of unknown outcome": wrong["unknown"],
        "events seen twice": sum(told.repeated_events for told in load.told),
        "taken, then forgotten": sum(told.sent_again for told in load.told),
        "runs that failed": sum(told.failed for told in load.told),
        "messages a second": answered / took,
        "seconds to an answer, median": waits[len(waits) // 2],
        "seconds to an answer, longest": waits[-1],
        "CPU ms a turn": 1000 * cpu_s / (3 * answered),
    }


def _reported(talks: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The calls that a history says were done."""
    items = [item for history in talks.values() for item in history if item.get("type") == "function_call_output"]
    return [item["call_id"] for item in items if item["output"] == done(item["call_id"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="how long each service is under load (an hour: 3600)")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--services", default="standfast,openai-agents", help="which, with commas between them")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--kill-every-s", type=float, default=2.0)
    parser.add_argument("--think-s", type=float, default=0.1, help="how long a client waits between two messages")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for kind in options.services.split(","):
        with tempfile.TemporaryDirectory() as folder:
            store = f"sqlite:///{folder}/talks.db"
            if options.store == "postgres":
                schema = f"b{uuid.uuid4().hex[:12]}"
                with psycopg.connect(servers.postgres_url(), autocommit=True) as link:
                    link.execute(f"CREATE SCHEMA {schema}")
                store = f"{servers.postgres_url()}?schema={schema}"
            found[kind] = measured(kind, store, Path(folder), options)
    print(f"{options.store}, {options.workers} workers, {options.clients} clients, {options.seconds:.0f} s each\n")
    print(f"| what | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
    for name in next(iter(found.values())):
        shown = [f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name]) for row in found.values()]
        print(f"| {name} | {' | '.join(shown)} |")
    if len(found) == 2:
        ours, theirs = (row["CPU ms a turn"] for row in found.values())
        first, second = found
        print(f"\nA turn of {first} costs {ours / theirs:.2f} times the CPU of one of {second}.")


if __name__ == "__main__":
    try:
        main()
    finally:
        servers.stop_all()
