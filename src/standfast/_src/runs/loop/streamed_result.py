"""Result of a run in the background, and the iteration over its events."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper, TState
from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.json_values import Item
from standfast._src.items.items import ModelResponse, RunItem, ToolApprovalItem
from standfast._src.items.stream_events import StreamEvent
from standfast._src.runs.loop.event_queue import EventQueue
from standfast._src.runs.loop.made_results import (
    COMMON,
    MadeRun,
    QueueCompleteSentinel,
    Source,
    StreamedResultFields,
    check_private,
    take_queue,
)
from standfast._src.runs.loop.result import Editable, RunResultBase
from standfast._src.runs.loop.run_scope import StartedRun


class RunResultStreaming(RunResultBase[TState]):
    """Result of a run in the background, with the events of the run. Programs build results for tests."""

    __dataclass_fields__ = StreamedResultFields.__dataclass_fields__
    _event_queue: asyncio.Queue[Any] | None = None
    """Events of a result made by the program, under the SDK's name; None for the result of a run."""
    _error: BaseException | None
    trace: Any

    def __init__(
        self,
        input: str | list[Item],
        new_items: list[RunItem],
        raw_responses: list[ModelResponse],
        final_output: Any,
        input_guardrail_results: list[Any],
        output_guardrail_results: list[Any],
        tool_input_guardrail_results: list[Any],
        tool_output_guardrail_results: list[Any],
        context_wrapper: RunContextWrapper[Any],
        current_agent: Agent[Any],
        current_turn: int,
        max_turns: int | None,
        _current_agent_output_schema: Any = None,
        trace: Any = None,
        is_complete: bool = False,
        *,
        interruptions: list[ToolApprovalItem] | None = None,
        _source: Source | None = None,
        **private: Any,
    ) -> None:
        check_private(private)
        given = locals()
        names = (*COMMON, "current_agent", "current_turn", "is_complete")
        values = {name: given[name] for name in names} | {"interruptions": interruptions or []}
        self._take(_source, lambda: MadeRun(current_agent, input, context_wrapper, max_turns, current_turn), values)
        self.max_turns, self.trace = max_turns, trace
        if _source is None:
            self._event_queue = take_queue(private)
            self._error = private.get("_stored_exception")

    @classmethod
    def _wrap_stream(
        cls, attempt: StartedRun, events: EventQueue, state_of: Callable[[], TState] | None = None
    ) -> RunResultStreaming[TState]:
        """Return the result of a run with a queue of events."""
        result = cls._wrap(attempt, state_of)
        result._events = events
        return result

    def _attach(self, attempt: StartedRun, state_of: Callable[[], TState] | None = None) -> None:
        super()._attach(attempt, state_of)
        self._events = EventQueue()
        self._task: asyncio.Task[None] | None = None
        self._error = None
        self._cut = self._is_settled = False
        self._watcher: Callable[[], _Events | None] = lambda: None
        self._is_withheld = False
        self.trace = None

    @property
    def _stored_exception(self) -> BaseException | None:
        """Error of the run, under the SDK's name, for test doubles."""
        return self._error

    @_stored_exception.setter
    def _stored_exception(self, error: BaseException | None) -> None:
        self._error = error

    @Editable
    def new_items(self) -> list[RunItem]:
        """Every item of this run so far."""
        if not self._is_settled:
            self._items = None
            self._is_settled = self.is_complete
        return RunResultBase.new_items.read(self)

    @Editable
    def final_output(self) -> Any:
        """Return the final output. None before the end, or after a cancellation by a watcher before the last event.

        The turn of a run that had ended by then stays stored and in `new_items`.
        """
        return None if self._is_withheld else RunResultBase.final_output.read(self)

    @Editable
    def is_complete(self) -> bool:
        """True once no further event can follow."""
        return self._cut or self._events.ended

    @Editable
    def current_agent(self) -> Agent[Any]:
        """Agent of the present turn."""
        return self.last_agent

    @Editable
    def current_turn(self) -> int:
        """Number of turns so far."""
        return self._run.progress.turns

    @property
    def run_loop_task(self) -> asyncio.Task[None] | None:
        """Task that drives the run."""
        return self._task

    @property
    def run_loop_exception(self) -> BaseException | None:
        """Error of the run, if it failed."""
        return self._error

    def cancel(self, mode: Literal["immediate", "after_turn"] = "immediate") -> None:
        """Stop the run: at once, or once the turn under way is finished and stored."""
        if self._event_queue is not None and mode in ("after_turn", "immediate"):
            self.is_complete = True
            self._event_queue.put_nowait(QueueCompleteSentinel())
        elif mode == "after_turn":
            self._attempt.loop.stop_after_turn()
        elif mode == "immediate":
            self._cut = True
            has_ended = self._events.ended
            # A run is ahead of the watcher: an output after the last event seen is not an answer for the watcher.
            watcher = self._watcher()
            self._is_withheld |= not has_ended or (watcher is not None and not watcher.has_left)
            self._events.discard()  # of a run that has ended too: a caller that cancels wants no more of it
            if not has_ended and not self._attempt.loop.stop_now() and self._task is not None:
                self._task.cancel()  # it is still waiting for its session or reading it
        else:
            raise InvalidSettingError(f"{mode!r} is no way to cancel", "Choose 'immediate' or 'after_turn'.")

    def stream_events(self) -> AsyncIterator[StreamEvent]:
        """Return the events of the run as an iterator, which raises the run's error. Leaving the iteration does not
        stop the run.
        """
        if self._event_queue is not None:
            return self._iterate_queue(self._event_queue)
        events = _Events(self)
        self._watcher = weakref.ref(events)
        return events

    async def _iterate_queue(self, queue: asyncio.Queue[Any]) -> AsyncIterator[StreamEvent]:
        """Yield the events in the queue of a result made by the program; raise the error of the result at the end."""
        while self._error is None and not (self.is_complete and queue.empty()):
            event = await queue.get()
            if isinstance(event, QueueCompleteSentinel):
                break
            yield event
        if self._error is not None:
            raise self._error

    async def _next_event(self) -> StreamEvent:
        if not self._cut:
            try:
                event = await self._events.next()
            except asyncio.CancelledError:
                self.cancel()  # a caller that stops waiting for a run in this way wants it stopped
                raise
            if event is not None and not self._cut:
                return event
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        if self._error is not None and not self._cut:
            raise self._error
        raise StopAsyncIteration

    def _start(self, work: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        """Drive the run with `work` in a task, and notify the watcher of the task's end, even if the task never ran."""
        self._task = asyncio.get_running_loop().create_task(self._drive_to_the_end(work))
        self._task.add_done_callback(self._note_end)
        return self._task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: the watcher gets it, and asyncio need not report it
        if not self._events.ended:
            self._error = asyncio.CancelledError("the run was cancelled before it began")
            self._events.end()

    async def _drive_to_the_end(self, work: Callable[[], Awaitable[object]]) -> None:
        """Drive to the end and let the watcher know. What ended the run is raised by the task and by the iteration."""
        try:
            await work()
        except asyncio.CancelledError as error:
            if not self._cut:
                self._error = error
                raise
        except BaseException as error:
            self._error = error  # for the watcher; and raised, for the caller that awaits the task
            raise
        finally:
            self._events.end()


class _Events:
    """An iteration over a run's events. Not a generator: leaving or dropping it must stop nothing."""

    def __init__(self, result: RunResultStreaming) -> None:
        self._result, self._shown = result, result._events.events
        self.has_left = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._shown and not self._result._cut:
            return self._shown.popleft()  # the fast path: nothing to wait for
        try:
            return await self._result._next_event()
        except BaseException:
            self.has_left = True
            raise

    async def aclose(self) -> None:
        """Stop watching; the run continues."""
        self.has_left = True
