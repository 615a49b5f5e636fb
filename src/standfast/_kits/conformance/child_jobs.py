"""Jobs of child processes for checks. Each function is a job: the backend, a pipe to the test, parameters.

A job says `begin` before a write and `done` after its acknowledgement. A process that was killed after `begin n` and
before `done n` was killed inside write n: that is how a round proves that its kill landed in the window.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from standfast._kits.conformance.check_context import batch, close, message
from standfast._kits.conformance.pipe import JobPipe
from standfast._src.base.errors import RunClaimedError, SessionConflictError
from standfast._src.sessions.rules.saved_runs import RunSave

if TYPE_CHECKING:
    from standfast._kits.conformance.backend import Backend


def append_batches(backend: Backend, wire: JobPipe, *, name: str, size: int, method: str, stream: bool = False) -> None:
    """Append batch after batch until killed, reporting the begin and the acknowledgement of each.

    The job waits for the test before each batch or, as a stream, only before the first.
    """

    async def work() -> None:
        session = backend.open("conversation")
        await session.get_items(limit=1)  # open and migrate before the first window
        wire.tell(ready=True)
        number = 0
        while (stream and number) or wire.wait():
            items = batch(f"{name}-{number}", size)
            wire.tell(begin=number)
            if method == "append":
                await session.append(items, writer=name, start=number * size)
            else:
                await session.add_items(items)
            wire.tell(done=number)
            number += 1

    asyncio.run(work())


def replace_history(backend: Backend, wire: JobPipe, *, name: str, size: int) -> None:
    """Replace the whole history again and again until killed."""

    async def work() -> None:
        session = backend.open("conversation")
        wire.tell(ready=True)
        number = 0
        wire.wait()
        wire.tell(begin=number)
        while True:
            try:
                await session.replace(batch(f"{name}-{number}", size), upto=await session.head())
            except SessionConflictError:
                if number:
                    raise
                continue  # the last request of a process that was killed can arrive at a server after its death
            wire.tell(done=number)
            number += 1
            wire.tell(begin=number)

    asyncio.run(work())


def write_first(backend: Backend, wire: JobPipe, *, number: int, size: int, batches: int = 1) -> None:
    """Write to a session at the same time as several other processes."""

    async def work() -> None:
        session = backend.open("conversation")
        wire.tell(ready=True)
        wire.wait()
        for turn in range(batches):
            await session.add_items(batch(f"process {number} turn {turn}", size))
        await close(session)
        wire.tell(wrote=batches)

    asyncio.run(work())


def pop_all(backend: Backend, wire: JobPipe, *, number: int) -> None:
    """Pop until the session is empty, and report the items."""

    async def work() -> None:
        session = backend.open("conversation")
        wire.tell(ready=True)
        wire.wait()
        while (item := await session.pop_item()) is not None:
            wire.tell(popped=item["content"])
        await close(session)

    asyncio.run(work())


def run_out_of_space(backend: Backend, wire: JobPipe, *, earlier: int, size: int) -> None:
    """Fill the disk: no file can grow in this process, and later again."""
    import resource  # POSIX has it: the other jobs need it not

    async def work() -> None:
        session = backend.open("conversation")
        await session.add_items(batch("before", earlier))
        biggest = max((file.stat().st_size for file in backend.folder.rglob("*") if file.is_file()), default=0)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails, as on a full disk, instead of killing
        resource.setrlimit(resource.RLIMIT_FSIZE, (biggest + 2_500, hard))  # room for part of a batch, not for one
        refused = 0
        error = ""
        for number in range(40):
            try:
                await session.add_items(batch(f"full-{number}", size))
                wire.tell(stored=number)
            except Exception as caught:
                refused, error = refused + 1, f"{type(caught).__name__}: {caught}"
                if refused == 3:
                    break
        wire.tell(refused=refused, said=error)
        wire.tell(items=[item["batch"] for item in await session.get_items()])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await session.add_items(batch("after", 2))
        wire.tell(items=[item["batch"] for item in await session.get_items()])
        await close(session)

    asyncio.run(work())


def use_after_fork(backend: Backend, wire: JobPipe) -> None:
    """Use a session, fork, and use the same object on both sides."""
    session = backend.open("conversation")
    asyncio.run(session.add_items([message("before the fork")]))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(session.add_items([message("from the child")]))
            wire.tell(child=[item["content"] for item in asyncio.run(session.get_items())])
        except BaseException as error:
            wire.tell(child_error=f"{type(error).__name__}: {error}")
        os._exit(0)
    os.waitpid(child, 0)
    asyncio.run(session.add_items([message("from the parent")]))
    wire.tell(parent=[item["content"] for item in asyncio.run(session.get_items())])


def hold_lease(backend: Backend, wire: JobPipe, *, ttl_s: float) -> None:
    """Hold the session's lease until killed."""

    async def work() -> None:
        lease = await backend.open("conversation").lease(ttl_s=ttl_s, wait_s=30)
        wire.tell(number=lease.number)
        wire.wait()

    asyncio.run(work())


def take_turns(backend: Backend, wire: JobPipe, *, number: int, turns: int) -> None:
    """Hold the lease for a moment, several times, and report any second holder."""

    async def work() -> None:
        session = backend.open("conversation")
        wire.tell(ready=True)
        wire.wait()
        mark = backend.folder / "holder"
        for _ in range(turns):
            async with await session.lease(ttl_s=60, wait_s=60) as lease:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    wire.tell(clash=lease.number)
                    return
                wire.tell(held=lease.number)
                mark.unlink()
        await close(session)

    asyncio.run(work())


def append_same(backend: Backend, wire: JobPipe, *, number: int, size: int) -> None:
    """Append the same batch, of the same writer, as every sibling."""

    async def work() -> None:
        session = backend.open("conversation")
        wire.tell(ready=True)
        wire.wait()
        for end in (size // 2, size):
            await session.append(batch("once", size)[:end], writer="run", start=0)
        await close(session)
        wire.tell(wrote=number)

    asyncio.run(work())


def save_turns(backend: Backend, wire: JobPipe, *, number: int, turns: int) -> None:
    """Store turns of a run saved by several processes: an item and the run's next state, in one step or not at all."""

    async def work() -> None:
        session = backend.open("conversation")
        runs, writer = session.run_store(), f"process {number}"
        wire.tell(ready=True)
        wire.wait()
        saved = 0
        while saved < turns:
            found = await runs.load_run("run")
            expect = 0 if found is None else found.revision
            run = RunSave("run", expect, b"%d by %d" % (saved, number), session_id="conversation")
            start = await session.accepted(writer)
            try:
                await session.record(items=batch(f"{writer} item {start}", 1), writer=writer, start=start, run=run)
            except RunClaimedError:
                continue
            saved += 1
        wire.tell(saved=saved)
        await close(session)

    asyncio.run(work())


def make_objects(backend: Backend, wire: JobPipe, *, count: int) -> None:
    """Open very many session objects, use each once, and say what the process holds meanwhile."""
    import threading

    from standfast._kits.conformance.faults import descriptor_count

    async def work() -> None:
        first = backend.open("conversation")
        await first.add_items([message("hello")])
        kept = [first]
        for number in range(count):
            session = backend.open("conversation" if backend.shared else f"conversation {number}")
            items = await session.get_items(limit=1)
            if backend.shared and items != [message("hello")]:
                raise AssertionError(f"object {number} saw {items}")
            kind = number % 3  # closed, dropped, or kept
            if kind == 0:
                await close(session)
            elif kind == 2:
                kept.append(session)
            if number % 200 == 199:
                wire.tell(objects=number + 1, descriptors=descriptor_count(), threads=threading.active_count())
                if not wire.wait():
                    return
        wire.tell(finished=True)

    asyncio.run(work())


def send_messages(backend: Backend, wire: JobPipe, *, number: int, messages: int) -> None:
    """Send messages in order, under ids of this process."""

    async def work() -> None:
        session = backend.open("conversation")
        wire.tell(ready=True)
        wire.wait()
        for place in range(messages):
            await session.send(f"{number}-{place}", agent="a", message_id=f"{number}-{place}")
        wire.tell(sent=messages)
        await close(session)

    asyncio.run(work())
