"""Groups of operations on SQLite, compared with the same ones done one by one in memory."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from standfast import InMemorySession, SQLiteSession, StandfastError
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.protocol import Position
from standfast._src.sessions.rules.saved_runs import RunSave

IDS, WRITERS = "abcd", "uvw"
ACTS = {
    "add": 6, "append": 12, "pop": 5, "replace": 4, "restore": 2, "rewind": 3, "fork": 1, "clear": 1, "record": 8,
    "take": 2, "give back": 2, "delete": 1,
}  # fmt: skip
FAILED = ("StoreFullError", "StoreUnavailableError", "OutcomeUnknownError")


class Side:
    """The sessions of one store, and what was learned of them so far."""

    def __init__(self, opened: Callable[[str], Any]) -> None:
        self.sessions = {one: opened(one) for one in IDS}
        self.heads: dict[str, list[Any]] = {one: [] for one in IDS}
        self.generations: dict[str, list[str]] = {one: [] for one in IDS}
        self.leases: dict[str, Any] = {}

    async def act(self, act: dict[str, Any]) -> Any:
        """Do it; what came of it, in a form that both sides share."""
        try:
            return await self._do(act)
        except StandfastError as error:
            return type(error).__name__

    async def _do(self, act: dict[str, Any]) -> Any:
        one, writer, size = act["session"], act["writer"], act["size"]
        session, heads = self.sessions[one], self.heads[one]
        items = [{"role": "user", "content": f"{act['number']}.{place}", "x": "x" * size} for place in range(size)]
        chosen = heads[act["back"] % len(heads)]
        kept = self.generations[one]
        expect = {"expect": chosen} if act["chance"] < 0.2 else {}
        makes: dict[str, Callable[[], Awaitable[Any]]] = {
            "add": lambda: session.add_items(items),
            "append": lambda: session.append(items, writer=writer, start=max(0, act["count"] + act["off"]), **expect),
            "pop": session.pop_item,
            "replace": lambda: session.replace(items[:3], upto=chosen),
            "restore": lambda: session.restore(kept[act["back"] % len(kept)] if kept else "none"),
            "rewind": lambda: session.rewind(writer=writer, to=max(0, act["count"] - act["back"] % 4)),
            "fork": lambda: session.fork(f"fork {act['number']}", at=Position(act["back"] % 3)),
            "clear": session.clear_session,
            "record": lambda: self._record(act, items),
            "take": lambda: self._take(one),
            "give back": lambda: self._give_back(one),
            "delete": lambda: session.run_store().delete_run(f"run {one}{writer}"),
        }
        found = await makes[act["what"]]()
        if act["what"] in ("append", "replace", "restore", "rewind"):
            act.setdefault("heads", []).append((self, found))
            return "done"
        return "made" if act["what"] == "fork" else found

    async def _record(self, act: dict[str, Any], items: list[Any]) -> int:
        run_id = f"run {act['session']}{act['writer']}"
        status = "running" if act["chance"] < 0.6 else "done"
        run = RunSave(run_id, act["revision"], b"%d" % act["number"], status=status, session_id=act["session"])
        some: dict[str, Any] = {"items": items, "writer": run_id, "start": act["run_count"]} if act["off"] == 0 else {}
        done = await self.sessions[act["session"]].record(**some, run=run)
        return int(done.revision)

    async def _take(self, one: str) -> str:
        if one not in self.leases:
            self.leases[one] = await self.sessions[one].lease(ttl_s=60, wait_s=0, renewed=False)
        return "held"

    async def _give_back(self, one: str) -> str:
        if one in self.leases:
            await self.leases[one].release()
            del self.leases[one]  # not before: where the disk is full it is still held
        return "free"

    async def seen(self) -> dict[str, Any]:
        """All that can be read, forks left out: those of before are looked at by the listing."""
        found: dict[str, Any] = {}
        for one, session in self.sessions.items():
            generations = await session.generations()
            self.generations[one] = [kept.id for kept in generations]
            found[one] = (
                await session.get_items(),
                [await session.read_generation(kept.id) for kept in generations],
                [(await session.accepted(writer), await session.written(writer)) for writer in WRITERS],
                (await session.page(limit=3)).items,
            )
            self.heads[one].append(await session.head())
            if one not in self.leases:
                async with await session.lease(ttl_s=60, wait_s=0, renewed=False) as lease:
                    found[f"{one} open"] = (lease.number, [(run.run_id, run.status) for run in lease.open_runs])
        listed = (await session.list_sessions(limit=1000)).sessions
        runs = session.run_store()
        found["listed"] = [one.session_id for one in listed]
        found["counted"] = await session.count_sessions()
        found["runs"] = [(run.run_id, run.status, run.revision) for run in (await runs.list_runs(limit=1000))[0]]
        return found

    async def close(self) -> None:
        for one in list(self.leases):
            await self._give_back(one)
        for session in self.sessions.values():
            session.close()


def _acts(chance: random.Random, size: int, first: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    busy: set[str] = set()
    for number in range(first, first + size):
        act = {
            "what": chance.choices(list(ACTS), list(ACTS.values()))[0], "session": chance.choice(IDS),
            "writer": chance.choice(WRITERS), "size": chance.choice([1, 1, 2, 3, 40]), "number": number,
            "back": chance.randrange(1000), "off": chance.choices([0, 5, -1], [8, 1, 1])[0], "chance": chance.random(),
        }  # fmt: skip
        if act["what"] in ("take", "give back"):  # a lease is an object that two at once could not both mean
            if act["session"] in busy:
                continue
            busy.add(act["session"])
        made.append(act)
    return made


async def play(seed: int, path: Path, *, is_full: bool) -> None:
    chance, store = random.Random(f"groups {seed}"), InMemoryStore()
    ours, model = Side(lambda one: SQLiteSession(one, path)), Side(lambda one: InMemorySession(one, store=store))
    first = 0
    assert await ours.seen() == await model.seen()
    for _ in range(chance.randint(3, 6)):
        acts = _acts(chance, chance.choice([1, 2, 5, 20, 70]), first)
        first += 70
        for act in acts:
            session, run_id = model.sessions[act["session"]], f"run {act['session']}{act['writer']}"
            saved = await session.run_store().load_run(run_id)
            act |= {"count": await session.accepted(act["writer"]), "run_count": await session.accepted(run_id)}
            act["revision"] = 0 if saved is None else saved.revision
        if is_full and chance.random() < 0.6:
            sizes = [file.stat().st_size for file in path.parent.glob(f"{path.name}*")]
            _limit(max(sizes, default=0) + 4120 * chance.choice([0, 1, 3, 8, 20, 60]))
        got = await asyncio.gather(*(ours.act(act) for act in acts))
        _limit(None)
        for act, found in zip(acts, got, strict=True):
            if found not in FAILED:
                assert await model.act(act) == found, (seed, act)
        for act in acts:
            for side, head in act.get("heads", ()):
                side.heads[act["session"]].append(head)
        seen, wanted = await ours.seen(), await model.seen()
        for what, value in wanted.items():
            assert seen[what] == value, (seed, what)
    await ours.close()
    await model.close()


def _limit(size: int | None) -> None:
    """Let no file grow past that size, as far as this process goes; None: any."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


async def play_on_a_full_disk(line: Any, seed: int, path: str) -> None:
    """A story in a process of its own, whose files may now and then not grow."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails, as on a full disk, instead of killing
    await play(seed, Path(path), is_full=True)
