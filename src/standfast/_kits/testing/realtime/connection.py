"""Connections of a conversation: receivers of events, scheduling of jobs, and faults.

A `Hub` belongs to a conversation: it passes every event to the present connections, and lets the jobs of the
conversation continue, one event at a time and not before the clients' sockets have taken the last one. A `Connection`
is a websocket: it reads, writes, keeps the journal and suffers the faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from standfast._kits.testing.realtime.answering import Answering
from standfast._kits.testing.realtime.conversation import Conversation, Event
from standfast._kits.testing.realtime.faults import (
    Close,
    Cut,
    Fault,
    FramePlan,
    Holds,
    Instead,
    Lose,
    Refuse,
    Side,
    Slow,
    Stall,
)
from standfast._kits.testing.realtime.jobs import Job
from standfast._kits.testing.realtime.journal import Direction, Frame, Journal
from standfast._kits.testing.realtime.refusals import Refused, session_expired

FRAME_BYTES_MAX = 32 * 1024 * 1024
# An append may have 15 MiB of audio, which are 20 MiB as base64.
LINGER_S = 1.0
# How long a line that was cut waits for the client to notice before it is torn down on this side too.
CLOSE_TIMEOUT_S = 2.0


@dataclass(slots=True)
class Serving:
    """Shared state of all connections of a server."""

    answering: Answering
    journal: Journal
    plan: FramePlan
    holds: Holds
    pace: float
    """Seconds of delay per second of sent audio; 0: none."""
    connections: list[Connection] = field(default_factory=list)
    hubs: list[Hub] = field(default_factory=list)
    connection_total: int = 0


class Hub:
    """A conversation with its listeners and its jobs."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.connections: list[Connection] = []
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked_at: set[Job] = set()
        self._held: set[Job] = set()
        serving.hubs.append(self)

    def tell(self, event: Event) -> None:
        """Pass an event to the present connections. Without any, it is lost."""
        for connection in self.connections:
            connection.put(event)
        self._changed.set()

    def begin(self, conversation: Conversation) -> None:
        """Start the jobs of the conversation."""
        self.conversation = conversation
        self._spawn(self._work())

    async def end(self) -> None:
        """Cancel all jobs and wait for them."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Look again for work: something was taken or heard."""
        self._changed.set()

    async def _work(self) -> None:
        while True:
            job = self._next_job()
            if job is None:
                await self._changed.wait()
                self._changed.clear()
                continue
            kind = job.next
            self._looked_at.discard(job)
            self.conversation.step(job)
            if job in self.conversation.jobs:  # to the end of the list: jobs take turns
                self.conversation.jobs.remove(job)
                self.conversation.jobs.append(job)
            for connection in list(self.connections):
                await connection.drain()
            spent_s = self.serving.pace * self.serving.answering.delta_ms / 1000
            await asyncio.sleep(spent_s if kind == "response.output_audio.delta" else 0)

    def _next_job(self) -> Job | None:
        """Return a job that can continue. A job at a gate waits there, without delaying the rest."""
        for job in self.conversation.jobs:
            if not job.ready or job in self._held:
                continue
            gate = None if job in self._looked_at else self.serving.holds.take(job)
            self._looked_at.add(job)
            if gate is None:
                return job
            self._held.add(job)
            self._spawn(self._wait_for(gate.passed(), job))
        return None

    async def _wait_for(self, passed: Coroutine[Any, Any, None], job: Job) -> None:
        await passed
        self._held.discard(job)
        self._changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True)
class _Closing:
    """Queue entry that closes the connection after all earlier entries were sent."""

    code: int
    reason: str


class Connection:
    """A websocket connection."""

    def __init__(self, serving: Serving, socket: ServerConnection, hub: Hub) -> None:
        self.serving, self.socket, self.hub = serving, socket, hub
        self.number = serving.connection_total
        serving.connection_total += 1
        self._queue: asyncio.Queue[Event | _Closing] = asyncio.Queue()
        self._counts: dict[Direction, int] = {"received": 0, "sent": 0}
        self._dead = False
        self._task: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Serve the connection until its end."""
        self._task = asyncio.current_task()
        serving, conversation = self.serving, self.hub.conversation
        serving.connections.append(self)
        self.hub.connections.append(self)
        self.put(conversation.greeting())
        loop = asyncio.get_running_loop()
        writer = loop.create_task(self._write())
        left_s = conversation.session["expires_at"] - conversation.now()
        limit = loop.call_later(left_s, self.expire, round(conversation.limit_s / 60))
        try:
            await self._read()
        finally:
            limit.cancel()
            self._die()
            serving.connections.remove(self)
            self.hub.connections.remove(self)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            if not conversation.attached:
                await self.hub.end()

    # --- writing -----------------------------------------------------------------------------------------------------

    def put(self, event: Event | _Closing) -> None:
        """Queue an event for the client."""
        if not self._dead:
            self._queue.put_nowait(event)

    async def drain(self) -> None:
        """Wait until the socket has taken all queued data, or the connection has ended."""
        await self._queue.join()

    async def _write(self) -> None:
        while not self._dead:
            event = await self._queue.get()
            try:
                if isinstance(event, _Closing):
                    await self.socket.close(event.code, event.reason)
                elif not self._dead:
                    await self._send(event)
            except ConnectionClosed:
                self._die()
            finally:
                # After the connection died, `_die` has counted what was left in the queue, but not this one.
                self._queue.task_done()

    async def _send(self, event: Event) -> None:
        frame = self._frame("sent", event["type"], event)
        faults = self.serving.plan.take(frame)
        await self._suffer(faults, "before")
        if self._dead or any(isinstance(fault, Lose) for fault in faults):
            return
        instead = next((fault for fault in faults if isinstance(fault, Instead)), None)
        # Written down first: a client that has seen a frame must find it in the journal.
        self.serving.journal.add(frame)
        await self.socket.send(json.dumps(event) if instead is None else instead.text)
        await self._suffer(faults, "after")

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while not self._dead:
                message = await self.socket.recv()
                if not self._dead:
                    await self._take(message)
        except ConnectionClosed:
            pass
        if self._dead:
            await self._wait_until_closed()

    async def _take(self, message: str | bytes) -> None:
        body = _parse_message(message)
        kind = str(body.get("type")) if isinstance(body, dict) else "(not an event)"
        frame = self._frame("received", kind, body)
        faults = self.serving.plan.take(frame)
        self.serving.journal.add(frame)
        await self._suffer(faults, "before")
        if self._dead or any(isinstance(fault, Lose) for fault in faults):
            return
        refuse = next((fault for fault in faults if isinstance(fault, Refuse)), None)
        cut = next((fault for fault in faults if isinstance(fault, Cut)), None)
        if cut is not None:
            self._die()  # before it is taken: its answers are lost, all of them
        if refuse is None:
            self.hub.conversation.take(body)
        else:
            error = Refused(refuse.code, refuse.message, names_event=refuse.names_event)
            self.hub.conversation.refuse(error, body.get("event_id") if isinstance(body, dict) else None)
        self.hub.wake()
        await self._suffer(faults, "after")

    # --- the end of it -----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Send nothing more. The client reads the data sent so far, and then the end of the stream."""
        self._die()
        transport = self.socket.transport
        if not transport.is_closing():
            transport.write_eof()
            # The reader may wait for a frame that never comes: it is woken when the client hangs up, or by force.
            asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def close(self, code: int, reason: str) -> None:
        """Close properly, after all queued data."""
        self.put(_Closing(code, reason))

    def expire(self, minutes: int) -> None:
        """The time limit is reached: an error, and the end."""
        over = session_expired(minutes)
        self.hub.conversation.tell("error", error=over.error(None))
        self.close(1001, over.message)

    def abort(self) -> None:
        """Tear the connection down at once."""
        self._die()
        self.socket.transport.abort()
        if self._task is not None:  # it may wait at a gate that will never open
            self._task.cancel()

    def _die(self) -> None:
        self._dead = True
        while not self._queue.empty():  # no waiter for data that will not be sent may remain
            self._queue.get_nowait()
            self._queue.task_done()

    async def _wait_until_closed(self) -> None:
        """Wait for the end of a cut connection, so that nothing is written on it by mistake."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.socket.wait_closed(), LINGER_S + 1)
        self.socket.transport.abort()

    async def _suffer(self, faults: list[Fault], side: Side) -> None:
        for fault in faults:
            if fault.side != side:
                continue
            match fault:
                case Slow(delay_s):
                    await asyncio.sleep(delay_s)
                case Stall(gate):
                    await gate.passed()
                case Close(code, reason):
                    await self.socket.close(code, reason)
                    self._die()
                case Cut():
                    self.cut()

    def _frame(self, direction: Direction, kind: str, body: object) -> Frame:
        number = self._counts[direction]
        self._counts[direction] += 1
        return Frame(direction, self.number, number, kind, body)


def _parse_message(message: str | bytes) -> Any:
    try:
        return json.loads(message)
    except ValueError:
        return message if isinstance(message, str) else message.decode("utf-8", "replace")
