"""A process that does what occurs to it with two sessions, and keeps a journal of it: before, and when it was answered.

What occurs to it follows from its seed; what comes of it depends on the others. Every item is known by its text and
every summary says what it stands for, so a history can be unfolded to the items that were once added. `session_books`
reads the journals.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from helpers.processes import Line

from standfast import (
    EncryptedSession,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    Position,
    SessionBusyError,
    SessionConflictError,
    StoreTimeoutError,
    StoreUnavailableError,
    copy_sessions,
    open_store,
)
from tests.helpers.stores import opened

ANSWERS = (SessionConflictError, StoreTimeoutError, OutcomeUnknownError, LeaseLostError, SessionBusyError)
"""What an operation among others may end with, the last two on a machine that stands still; others are reported."""

REFUSED, UNKNOWN = 7, 8
"""How a child ends that may not use the file, being forked while a commit hung, or had no time; or does not know."""

Item = dict[str, Any]


def unfolded(items: list[Item]) -> list[str]:
    """The names of all items that a history holds, itself or through a summary."""
    return [name for item in items for name in (item.get("covers") or [item["content"]])]


class Journal:
    """One process's book: a line is written in one go, so a killed process leaves whole lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **told: Any) -> None:
        os.write(self._file, json.dumps({**told, "at": time.monotonic()}).encode() + b"\n")


class SessionActor:
    """One life of one process."""

    def __init__(self, folder: str, where: str, who: str, seed: int, ops: dict[str, int], *, sealed: bool) -> None:
        self.who, self.where, self.folder, self.sealed = who, where, folder, sealed
        self.chance = random.Random(f"{seed} {who}")
        self.book = Journal(f"{folder}/{who}.journal")
        self.ops = ops
        self.batches = 0
        self.sessions = {name: self.open(name) for name in ("s", "z")}
        self.sent: dict[str, list[tuple[int, list[Item]]]] = {"s": [], "z": []}
        """What this life appended as a writer, by the number it began with."""
        self.told: list[str] = []

    def open(self, name: str) -> Any:
        inner = opened(self.where, name)
        if "impatient" in self.ops:
            inner.timeout_s = self.chance.choice([0.02, 0.1, 30.0])
        return EncryptedSession(name, inner, "a key of all") if self.sealed else inner

    def batch(self, name: str) -> list[Item]:
        self.batches += 1
        many = self.chance.choice([1, 1, 2, 3])
        return [
            {"role": "user", "content": f"{name}:{self.who}:{self.batches}:{number}:{many}"} for number in range(many)
        ]

    async def act(self) -> None:
        """One thing that occurs to it, perhaps cut in the middle."""
        weights = {what: weight for what, weight in self.ops.items() if what not in ("cut", "impatient")}
        [what] = self.chance.choices(list(weights), list(weights.values()))
        name = self.chance.choice(["s", "s", "s", "z"])
        cut_s = self.chance.random() * 0.01 if self.chance.random() < self.ops.get("cut", 0) / 100 else None
        task = asyncio.ensure_future(getattr(self, what)(name))
        if cut_s is not None and what not in ("thread", "child"):  # those go on without whoever waits for them
            await asyncio.wait([task], timeout=cut_s)
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            self.book.write(op="cut")
        except ANSWERS as error:
            self.book.write(op="answer", error=type(error).__name__)
            if not getattr(error, "remedy", ""):
                self.told.append(f"{what}: no remedy: {error}")
        except Exception as error:
            self.told.append(f"{what}: {type(error).__name__}: {error}")

    # --- what may occur to it ---------------------------------------------------------------------------------------

    async def add(self, name: str) -> None:
        batch = self.batch(name)
        self.book.write(op="add", s=name, names=unfolded(batch))
        await self.sessions[name].add_items(batch)
        self.book.write(op="done")

    async def append(self, name: str) -> None:
        session, batch = self.sessions[name], self.batch(name)
        start = await session.accepted(self.who)
        known = await self.known(name) if self.chance.random() < 0.5 else None
        self.book.write(op="add", s=name, names=unfolded(batch))
        head = await session.append(batch, writer=self.who, start=start, expect=known[0] if known else None)
        self.book.write(op="done")
        self.sent[name].append((start, batch))
        if known:
            self.saw(name, head, [*known[1], *batch])

    async def repeat(self, name: str) -> None:
        """Append again what was appended: nothing may come of it, or the writer has taken it back."""
        if self.sent[name]:
            start, batch = self.chance.choice(self.sent[name])
            if await self.sessions[name].accepted(self.who) >= start + len(batch):
                await self.sessions[name].append(batch, writer=self.who, start=start)

    async def leased(self, name: str) -> None:
        session, batch = self.sessions[name], self.batch(name)
        async with await session.lease(ttl_s=5.0, wait_s=60.0) as lease:
            start = await session.accepted(self.who)
            self.book.write(op="add", s=name, names=unfolded(batch))
            await session.append(batch, writer=self.who, start=start, lease=lease)
            self.book.write(op="done")
            self.sent[name].append((start, batch))

    async def pop(self, name: str) -> None:
        self.book.write(op="pop", s=name)
        item = await self.sessions[name].pop_item()
        self.book.write(op="done", names=unfolded([item] if item else []))

    async def rewind(self, name: str) -> None:
        session = self.sessions[name]
        count = await session.accepted(self.who)
        to = max(0, count - self.chance.randint(1, 2))
        if self.sent[name] and to >= self.sent[name][0][0]:
            gone = [
                item["content"]
                for start, batch in self.sent[name]
                for place, item in enumerate(batch, start)
                if place >= to
            ]
            self.book.write(op="rewind", s=name, names=gone)
            await session.rewind(writer=self.who, to=to)
            self.book.write(op="done")
            self.sent[name] = [(start, batch[: to - start]) for start, batch in self.sent[name] if start < to]

    async def clear(self, name: str) -> None:
        self.book.write(op="clear", s=name)
        await self.sessions[name].clear_session()
        self.book.write(op="done")

    async def replace(self, name: str) -> None:
        if (known := await self.known(name)) and known[1]:
            head, items = known
            kept = self.chance.randint(0, min(2, len(items) - 1))
            tail = items[len(items) - kept :]
            covers = unfolded(items[: len(items) - kept])
            summary = {"role": "assistant", "content": f"{name}:summary", "covers": covers}
            self.book.write(op="replace", s=name)
            await self.sessions[name].replace([summary, *tail], upto=head)
            self.book.write(op="done")

    async def restore(self, name: str) -> None:
        if kept := await self.sessions[name].generations():
            self.book.write(op="restore", s=name)
            try:
                await self.sessions[name].restore(self.chance.choice(kept).id)
            except NotFoundError:  # others have replaced since: the last three are kept
                self.book.write(op="answer", error="SessionConflictError")
                return
            self.book.write(op="done")

    async def fork(self, name: str) -> None:
        known = await self.known(name)
        self.batches += 1
        new_id = f"{name}-fork-{self.who}-{self.batches}"
        at = Position(self.chance.randint(0, len(known[1]))) if known and self.chance.random() < 0.5 else None
        try:
            fork = await self.sessions[name].fork(new_id, at=at)
        except NotFoundError:  # shorter by now
            return
        if known and await self.sessions[name].head() != known[0]:
            known = None
        mine: list[Item] = [{"role": "user", "content": new_id}]
        before = await fork.get_items()
        await fork.add_items(mine)
        after = await fork.get_items()
        self.told += [f"fork: {wrong}" for wrong in mixed(name, before)]
        if known and before != known[1][: at.index if at else None]:
            self.told.append(f"fork: {unfolded(before)} of {unfolded(known[1])}")
        if after != before + mine:
            self.told.append(f"fork: {unfolded(after)} after {unfolded(before)}")
        await fork.clear_session()
        await fork.close()

    async def read(self, name: str) -> None:
        session = self.sessions[name]
        items = await session.get_items()
        self.told += [f"read: {wrong}" for wrong in mixed(name, items)]
        self.book.write(op="read", s=name, names=unfolded(items))
        limit = self.chance.randint(0, 4)
        latest = await session.get_items(limit)
        if len(latest) > limit:
            self.told.append(f"read: {len(latest)} for a limit of {limit}")

    async def look(self, name: str) -> None:
        await self.known(name)

    async def copy(self, name: str) -> None:
        """Copy the session to a store of its own and compare."""
        if self.sealed or self.where.startswith("sealed"):
            return
        self.batches += 1
        target = f"{self.folder}/{self.who}-{self.batches}.db"
        async with open_store(Path(target), create=True) as store:
            report = await copy_sessions(_url(self.where), store, [name])
            self.told += [f"copy: {why}" for _, why in report.refused if not isinstance(why, NotFoundError)]
            if report.copied and report.copied[0].is_verified:
                self.told += [f"copy: {wrong}" for wrong in mixed(name, await store.session(name).get_items())]

    async def again(self, name: str) -> None:
        """Close the session, or merely drop it, and open another."""
        if self.chance.random() < 0.5:
            await self.sessions[name].close()
        self.sessions[name] = self.open(name)

    async def thread(self, name: str) -> None:
        """Add from another thread with a loop of its own, beside this one."""
        batch, failed = self.batch(name), []
        self.book.write(op="add", s=name, names=unfolded(batch))

        def work() -> None:
            try:
                asyncio.run(self.sessions[name].add_items(batch))
            except Exception as error:
                failed.append(error)

        started = threading.Thread(target=work)
        started.start()
        while started.is_alive():
            await asyncio.sleep(0.001)
        if failed:
            raise failed[0]
        self.book.write(op="done")

    async def child(self, name: str) -> None:
        """Fork this process with everything open; the child adds, says so and is gone at once."""
        batch = self.batch(name)
        self.book.write(op="add", s=name, names=unfolded(batch))
        pid = os.fork()
        if not pid:
            signal.alarm(120)
            status = 1

            def work() -> None:
                nonlocal status
                try:
                    asyncio.run(self.sessions[name].add_items(batch))
                    status = 0
                except (StoreUnavailableError, StoreTimeoutError):
                    status = REFUSED
                except OutcomeUnknownError:
                    status = UNKNOWN

            try:
                started = threading.Thread(target=work)
                started.start()
                started.join()
            finally:
                os._exit(status)
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            await asyncio.sleep(0.001)
        if (code := os.waitstatus_to_exitcode(ended[1])) in (REFUSED, UNKNOWN):
            self.book.write(op="answer", error="StoreTimeoutError" if code == REFUSED else "OutcomeUnknownError")
        elif ended[1]:
            self.told.append(f"child: ended with {ended[1]}")
        else:
            self.book.write(op="done")

    async def die(self, name: str) -> None:
        """Be gone in the moment in which a batch was acknowledged."""
        await self.add(name)
        self.book.write(op="died")
        os._exit(0)

    # --- what is known ----------------------------------------------------------------------------------------------

    async def known(self, name: str) -> tuple[Any, list[Item]] | None:
        """A head and the history it is the head of, if nobody wrote in between.

        Read twice: what was added and popped again leaves the head that was there before, and one reading may have
        seen it.
        """
        session = self.sessions[name]
        before = await session.head()
        items = await session.get_items()
        if await session.head() != before or await session.get_items() != items or await session.head() != before:
            return None
        self.saw(name, before, items)
        return before, items

    def saw(self, name: str, head: Any, items: list[Item]) -> None:
        self.book.write(op="saw", s=name, head=str(head), names=[item["content"] for item in items])


def mixed(name: str, items: list[Item]) -> list[str]:
    """What is wrong with one reading by itself."""
    names = unfolded(items)
    found = [f"{one} is of another session" for one in names if one.split(":")[0] != name]
    if len(set(names)) != len(names):
        found.append(f"doubled: {sorted({one for one in names if names.count(one) > 1})}")
    return found


def _url(where: str) -> Any:
    """The store of a `place`, as an operator names it."""
    kind, _, rest = where.partition(" ")
    if kind == "sqlite":
        return Path(rest)
    if kind == "sqlalchemy":
        return f"sqlite+aiosqlite:///{rest}"
    name, _, url = rest.partition(" ")
    mark = "&" if "?" in url else "?"
    tables = f"sessions_table={name}_s&messages_table={name}_m"
    return f"{url}{mark}key_prefix={name}" if kind == "redis" else f"{url}{mark}{tables}"


async def act(
    line: Line, *, folder: str, where: str, who: str, seed: int, ops: dict[str, int], acts: int, sealed: bool
) -> list[str]:
    """A life: what it found wrong."""
    actor = SessionActor(folder, where, who, seed, ops, sealed=sealed)
    line.say("ready")
    await line.told()
    for _ in range(acts):
        await actor.act()
    for session in actor.sessions.values():
        await session.close()
    actor.book.write(op="ended")
    return actor.told


async def act_as_sdk(
    line: Line, *, folder: str, where: str, who: str, seed: int, ops: dict[str, int], acts: int
) -> list[str]:
    """The SDK's own session beside them, in the same file."""
    from agents import SQLiteSession as Theirs

    chance, book = random.Random(f"{seed} {who}"), Journal(f"{folder}/{who}.journal")
    sessions = {name: Theirs(name, where.partition(" ")[2]) for name in ("s", "z")}
    told: list[str] = []
    line.say("ready")
    await line.told()
    for number in range(acts):
        [what] = chance.choices(list(ops), list(ops.values()))
        name = chance.choice(["s", "s", "s", "z"])
        try:
            if what in ("add", "append", "leased"):
                batch = [{"role": "user", "content": f"{name}:{who}:{number + 1}:{place}:2"} for place in range(2)]
                book.write(op="add", s=name, names=unfolded(batch))
                await sessions[name].add_items(batch)
                book.write(op="done")
            elif what == "pop":
                book.write(op="pop", s=name)
                item = await sessions[name].pop_item()
                book.write(op="done", names=unfolded([item] if item else []))
            elif what == "clear":
                book.write(op="clear", s=name)
                await sessions[name].clear_session()
                book.write(op="done")
            else:
                told += [f"sdk: {wrong}" for wrong in mixed(name, await sessions[name].get_items())]
        except Exception as error:  # "database is locked": theirs waits for five seconds
            book.write(op="answer", error=type(error).__name__)
            if "locked" not in str(error):
                told.append(f"sdk {what}: {type(error).__name__}: {error}")
        await asyncio.sleep(0.002)
    for session in sessions.values():
        session.close()
    book.write(op="ended")
    return told
