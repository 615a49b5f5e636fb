"""Transport of a simulated voice call: the service without a network, delayed frames, and dropped connections.

`SimulatedLine` is a transport like any other. Behind it is the loopback server's conversation, in the same loop:
received frames, sent frames and steps of its model happen one at a time, in an order chosen by chance, with virtual
time between. A dropped connection loses the frames in transit, both ways.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast._kits.testing.realtime.answering import Answering
from standfast._kits.testing.realtime.conversation import Conversation, Event
from standfast._kits.testing.simulator.loop import EPOCH_S
from standfast._kits.testing.simulator.world import Process
from standfast._src.realtime.machine.model_events import (
    RealtimeModelConnectionStatusEvent,
    RealtimeModelEvent,
    RealtimeModelRawServerEvent,
)
from standfast._src.realtime.machine.model_inputs import RealtimeModelSendEvent, RealtimeModelSendRawMessage
from standfast._src.realtime.machine.sdk_events import model_events
from standfast._src.realtime.machine.transport_interface import (
    FrameTransport,
    RealtimeModelConfig,
    RealtimeModelListener,
)

if TYPE_CHECKING:
    from standfast._kits.testing.realtime.jobs import Job


class Service:
    """The realtime service of a simulated world: its rule, and all its conversations."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.conversations: list[Conversation] = []

    @property
    def refused(self) -> list[str]:
        """Codes of all refusals."""
        return [code for one in self.conversations for code in one.refused]

    @property
    def busy(self) -> bool:
        """True if the newest conversation has unfinished jobs."""
        return bool(self.conversations and self.conversations[-1].jobs)


class SimulatedLine(FrameTransport):
    """Transport of a simulated process."""

    def __init__(self, process: Process, service: Service) -> None:
        self._process, self._service = process, service
        self._listeners: list[RealtimeModelListener] = []
        self._line: _Line | None = None

    async def connect(self, options: RealtimeModelConfig) -> None:
        """Connect; the session sends the rest."""
        await self.dial(options)

    async def dial(self, options: RealtimeModelConfig) -> None:
        """Connect and send nothing."""
        process, world = self._process, self._process.world
        await process.pause()
        if world.faults is not None and world.strikes(world.faults.line, "refused connections"):
            raise ConnectionRefusedError("the simulated service is not there")
        process.note("connects")
        self._line = _Line(process, self._service, self._tell)

    async def send_event(self, event: RealtimeModelSendEvent) -> None:
        """Send a frame."""
        self._process.check_alive()
        if self._line is None or self._line.over:
            raise ConnectionResetError("the simulated line is gone")
        assert isinstance(event, RealtimeModelSendRawMessage), "a session sends frames over a transport of frames"
        message = event.message
        self._line.take({**message.get("other_data", {}), "type": message["type"]})

    async def close(self) -> None:
        """Hang up."""
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    def add_listener(self, listener: RealtimeModelListener) -> None:
        """Add a listener."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove_listener(self, listener: RealtimeModelListener) -> None:
        """Remove a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def _tell(self, event: RealtimeModelEvent) -> None:
        for listener in tuple(self._listeners):
            await listener.on_event(event)


class _Line:
    """A connection."""

    def __init__(self, process: Process, service: Service, tell: Callable[[Any], Any]) -> None:
        self._process, self._tell = process, tell
        self._to_service: deque[Event] = deque()
        self._to_client: deque[Event] = deque()
        self._changed = asyncio.Event()
        self.over = False
        name = str(len(service.conversations) + 1)
        clock = process.world.clock
        self._service = Conversation(service.answering, self._queue_frame, name=name, now=lambda: EPOCH_S + clock.now)
        service.conversations.append(self._service)
        self._queue_frame(self._service.greeting())
        self._task = asyncio.get_running_loop().create_task(self._run(), name="simulated line")

    def take(self, frame: Event) -> None:
        """Put a frame in transit to the service."""
        self._to_service.append(frame)
        self._changed.set()

    def _queue_frame(self, frame: Event) -> None:
        self._to_client.append(frame)
        self._changed.set()

    async def close(self) -> None:
        """Hang up, and wait for the end of its task."""
        self.over = True
        if self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        world = self._process.world
        while not self.over:
            await self._process.pause()
            actions = self._actions()
            if not actions:
                await self._changed.wait()
                self._changed.clear()
                continue
            if world.faults is not None and world.strikes(world.faults.line / 20, "dropped lines"):
                self.over = True
                self._process.note("the line drops")
                await self._tell(RealtimeModelConnectionStatusEvent("disconnected", code=1006))
                return
            await (actions[0] if world.faults is None else world.chance.choice(actions))()

    def _actions(self) -> list[Callable[[], Any]]:
        found: list[Callable[[], Any]] = []
        if self._to_client:
            found.append(self._deliver)
        if self._to_service:
            found.append(self._serve)
        for job in self._service.jobs:
            if job.ready:

                async def step(job: Job = job) -> None:
                    if job.ready:
                        self._service.step(job)

                found.append(step)
        return found

    async def _deliver(self) -> None:
        frame = self._to_client.popleft()
        self._process.note(f"← {frame['type']}")
        await self._tell(RealtimeModelRawServerEvent(frame))
        for event in model_events(frame):
            if not self.over:
                await self._tell(event)

    async def _serve(self) -> None:
        frame = self._to_service.popleft()
        self._process.note(f"→ {frame['type']}")
        self._service.take(frame)
