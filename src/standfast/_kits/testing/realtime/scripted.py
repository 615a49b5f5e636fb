"""A transport that plays a script: checks the session's sends against it, and delivers the scripted events.

No network and no clock: each step has the expected send and the model events that follow. A test asserts on
`sent_events` and on the session; `assert_complete` finds unused steps.

Deliveries have one order, that of the sends that caused them, and one task that makes them. A send waits until its
events are delivered, except from inside a listener: that one would wait for itself, so it is queued and returns.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from standfast._src.base.errors import StandfastError
from standfast._src.realtime.machine.model_events import (
    RealtimeModelErrorEvent,
    RealtimeModelEvent,
    RealtimeModelExceptionEvent,
)
from standfast._src.realtime.machine.model_inputs import RealtimeModelSendEvent, RealtimeModelSendSessionUpdate
from standfast._src.realtime.machine.session_settings import RealtimeSessionModelSettings
from standfast._src.realtime.machine.transport_interface import (
    RealtimeModel,
    RealtimeModelConfig,
    RealtimeModelListener,
    RealtimePlaybackTracker,
)

RealtimeSendMatcher: TypeAlias = (
    "RealtimeModelSendEvent | type[RealtimeModelSendEvent] | Callable[[RealtimeModelSendEvent], bool]"
)
"""Expectation of a step: an equal event, any event of a class, or a function that accepts it."""


# --- errors ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class RealtimeScriptError(StandfastError):
    """A realtime script does not match the session."""

    __module__ = "standfast.testing.realtime"  # in a traceback, the path that it is imported from


class InvalidRealtimeStep(RealtimeScriptError, ValueError):
    """A script step that both answers and fails."""


class AlreadyConnectedError(RealtimeScriptError, AssertionError):
    """The transport is connected, or still delivers events of its last connection."""


class UnexpectedRealtimeSend(RealtimeScriptError):
    """Something was sent that the next step does not expect, or after the last step."""

    __module__ = "standfast.testing.realtime"  # in a traceback, the path that it is imported from

    def __init__(self, message: str, *, actual: RealtimeModelSendEvent, expected: RealtimeSendMatcher | None) -> None:
        super().__init__(message, "Change the step, or find out why this was sent: `actual` has it. The step is kept.")
        self.actual, self.expected = actual, expected

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.what, {"actual": self.actual, "expected": self.expected})


class UnconsumedRealtimeSteps(RealtimeScriptError):
    """The session ended before the script did."""

    __module__ = "standfast.testing.realtime"  # in a traceback, the path that it is imported from

    def __init__(self, message: str, *, remaining_steps: int) -> None:
        super().__init__(message, "Remove the steps, or find out why the session did not send what they expect.")
        self.remaining_steps = remaining_steps

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.what, {"remaining_steps": self.remaining_steps})


def _rebuilt(kind: Callable[..., T], message: str, named: dict[str, Any]) -> T:
    return kind(message, **named)


# --- the script ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RealtimeStep:
    """A step: the expected send, and its answer: events, or an error for the sender."""

    expect: RealtimeSendMatcher
    emit: Sequence[RealtimeModelEvent] = ()
    error: Exception | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "emit", tuple(self.emit))
        if self.emit and self.error is not None:
            raise InvalidRealtimeStep("a step has both events and an error", "Give it one of them, or make two steps.")


class RealtimeConnectCall(TypedDict):
    """Record of a connect: all settings except secrets, of which only the presence is kept."""

    api_key_provided: bool
    headers_provided: bool
    url: NotRequired[str]
    initial_model_settings: NotRequired[RealtimeSessionModelSettings]
    playback_tracker: NotRequired[RealtimePlaybackTracker]
    call_id: NotRequired[str]


class _Outcome:
    """Outcome awaited by a sender: of its own delivery, and of those queued from inside it."""

    def __init__(self) -> None:
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.under_way = 0
        self.error: BaseException | None = None

    def land(self, error: BaseException | None) -> None:
        """Finish a delivery. The sender gets the first error."""
        self.error = self.error or error
        self.under_way -= 1
        if not self.under_way and not self.landed.done():
            self.landed.set_result(None)


@dataclass(frozen=True, slots=True)
class _Delivery:
    events: Sequence[RealtimeModelEvent]
    error: Exception | None
    outcome: _Outcome
    close_calls: int
    """Number of closes of the transport when this was queued: a close in between drops it."""


class ScriptedRealtimeModel(RealtimeModel):
    """A `RealtimeModel` without a service.

    With `strict=False` a send that the next step does not expect is only recorded, and the step keeps waiting.
    """

    def __init__(
        self,
        steps: Iterable[RealtimeStep] = (),
        *,
        connect_events: Iterable[RealtimeModelEvent] = (),
        connect_error: Exception | None = None,
        close_error: Exception | None = None,
        strict: bool = True,
    ) -> None:
        self._connect_events = tuple(_copy_event(event) for event in connect_events)
        if self._connect_events and connect_error is not None:
            raise InvalidRealtimeStep("connecting both succeeds with events and fails", "Give one of the two.")
        self._steps = deque(_copied_step(step) for step in steps)
        self._connect_error, self._close_error, self._strict = connect_error, close_error, strict
        self._listeners: list[RealtimeModelListener] = []
        self._connect_calls: list[RealtimeConnectCall] = []
        self._sent: list[RealtimeModelSendEvent] = []
        self._queue: deque[_Delivery] = deque()
        self._delivering: asyncio.Task[None] | None = None
        self._current: _Outcome | None = None
        self.connected = False
        self.closed = False
        self.close_calls = 0

    # --- what tests look at ------------------------------------------------------------------------------------------

    @property
    def listeners(self) -> tuple[RealtimeModelListener, ...]:
        """Present listeners."""
        return tuple(self._listeners)

    @property
    def connect_calls(self) -> tuple[RealtimeConnectCall, ...]:
        """Every attempt to connect, as it was then; changing a copy changes nothing here."""
        return tuple(_copied_call(call) for call in self._connect_calls)

    @property
    def sent_events(self) -> tuple[RealtimeModelSendEvent, ...]:
        """Copies of all sent events, in their state at the time of sending."""
        return tuple(_copy_event(event) for event in self._sent)

    @property
    def remaining_steps(self) -> int:
        """Number of unused steps."""
        return len(self._steps)

    def assert_complete(self) -> None:
        """Raise UnconsumedRealtimeSteps if the script has steps left."""
        if self._steps:
            left = len(self._steps)
            raise UnconsumedRealtimeSteps(f"{left} scripted step(s) were not reached", remaining_steps=left)

    # --- the transport -----------------------------------------------------------------------------------------------

    def add_listener(self, listener: RealtimeModelListener) -> None:
        """Add a listener; adding it twice changes nothing."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove_listener(self, listener: RealtimeModelListener) -> None:
        """Remove a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def connect(self, options: RealtimeModelConfig) -> None:
        """Connect by the script: with its events, or with its error."""
        if self.connected or self._delivering is not None:
            raise AlreadyConnectedError("Already connected", "Close the transport, and wait for the close, first.")
        self._connect_calls.append(_call(options))
        if self._connect_error is not None:
            raise self._connect_error
        self.connected, self.closed = True, False
        try:
            await self._await_outcome(self._deliver([_copy_event(event) for event in self._connect_events]))
        except BaseException:
            self.connected, self.closed = False, True
            raise

    async def send_event(self, event: RealtimeModelSendEvent) -> None:
        """Check an event against the next step, and deliver the step's answer."""
        await self._await_outcome(self._send(event))

    async def send_event_if(self, event: RealtimeModelSendEvent, send_if: Callable[[], bool]) -> bool:
        """The same, if the predicate holds now: nothing can happen between the question and the send."""
        self._must_be_connected("send an event")
        if not send_if():
            return False
        await self._await_outcome(self._send(event))
        return True

    async def emit(self, *events: RealtimeModelEvent) -> None:
        """Deliver events without a send, like a server's own events."""
        self._must_be_connected("emit events")
        await self._await_outcome(self._deliver([_copy_event(event) for event in events]))

    async def close(self) -> None:
        """End the connection. Every call is counted, only the first has an effect."""
        self.close_calls += 1
        if self.closed:
            return
        self.connected, self.closed = False, True
        if self._close_error is not None:
            raise self._close_error

    # --- inside ------------------------------------------------------------------------------------------------------

    def _send(self, event: RealtimeModelSendEvent) -> _Outcome | None:
        """Take a send, all at once: no other can come between the check and the queue."""
        self._must_be_connected("send an event")
        step = self._step_for(event)
        self._sent.append(_copy_event(event))
        return self._deliver(step.emit, step.error) if step is not None else self._deliver(())

    def _step_for(self, event: RealtimeModelSendEvent) -> RealtimeStep | None:
        step = self._steps[0] if self._steps else None
        if step is not None and _matches(step.expect, event):
            return self._steps.popleft()
        if not self._strict:
            return None
        expected = None if step is None else _copy_expectation(step.expect)
        why = "no scripted step is left" if step is None else "the next scripted step expects something else"
        raise UnexpectedRealtimeSend(f"unexpected send: {why}", actual=_copy_event(event), expected=expected)

    def _deliver(self, events: Sequence[RealtimeModelEvent], error: Exception | None = None) -> _Outcome | None:
        """Queue a delivery. None if queued from inside another one, whose sender waits for both."""
        nested = self._delivering is not None and asyncio.current_task() is self._delivering
        outcome = self._current if nested and self._current is not None else _Outcome()
        outcome.under_way += 1
        self._queue.append(_Delivery(tuple(events), error, outcome, self.close_calls))
        if self._delivering is None:
            self._delivering = asyncio.get_running_loop().create_task(self._work())
        return None if outcome is self._current else outcome

    async def _await_outcome(self, outcome: _Outcome | None) -> None:
        if outcome is None:
            return
        # A sender that is cancelled does not take back what was sent.
        await asyncio.shield(outcome.landed)
        if outcome.error is not None:
            raise outcome.error

    async def _work(self) -> None:
        try:
            while self._queue:
                delivery = self._queue.popleft()
                self._current = delivery.outcome
                delivery.outcome.land(await self._broadcast(delivery))
        finally:
            self._current = self._delivering = None

    async def _broadcast(self, delivery: _Delivery) -> BaseException | None:
        """Send every event to every listener, up to the first error or a close; return the error."""
        try:
            if delivery.error is not None:
                raise delivery.error
            if self.closed or self.close_calls != delivery.close_calls:
                raise _disconnected_error("emit events")
            for event in delivery.events:
                for listener in tuple(self._listeners):
                    if self.closed or self.close_calls != delivery.close_calls:
                        return None
                    await listener.on_event(event)
        except BaseException as error:
            return error
        return None

    def _must_be_connected(self, doing: str) -> None:
        if not self.connected or self.closed:
            raise _disconnected_error(doing)


def _disconnected_error(doing: str) -> RealtimeScriptError:
    return RealtimeScriptError(
        f"cannot {doing} while the scripted model is disconnected",
        "Enter the session first, or send before it is closed.",
    )


# --- copies: what was seen then stays as it was, and what has an identity keeps it -----------------------------------


def _copy_event(event: Any) -> Any:
    if isinstance(event, RealtimeModelSendSessionUpdate):
        return RealtimeModelSendSessionUpdate(session_settings=_copy_settings(event.session_settings))
    if isinstance(event, RealtimeModelExceptionEvent):
        return RealtimeModelExceptionEvent(exception=event.exception, context=event.context)
    if isinstance(event, RealtimeModelErrorEvent) and isinstance(event.error, BaseException):
        return RealtimeModelErrorEvent(error=event.error)
    return copy.deepcopy(event)


def _copy_settings(settings: RealtimeSessionModelSettings) -> RealtimeSessionModelSettings:
    """Copy settings. Tools and handoffs contain functions: their lists are copied, their entries are not."""
    kept = {name: list(settings[name]) for name in ("tools", "handoffs") if name in settings}
    rest = {name: value for name, value in settings.items() if name not in kept}
    return cast("RealtimeSessionModelSettings", {**copy.deepcopy(rest), **kept})


def _copied_step(step: RealtimeStep) -> RealtimeStep:
    return RealtimeStep(_copy_expectation(step.expect), tuple(_copy_event(event) for event in step.emit), step.error)


def _copy_expectation(expect: RealtimeSendMatcher) -> RealtimeSendMatcher:
    expected: RealtimeSendMatcher = expect if isinstance(expect, type) or callable(expect) else _copy_event(expect)
    return expected


def _matches(expect: RealtimeSendMatcher, event: RealtimeModelSendEvent) -> bool:
    if isinstance(expect, type):
        return isinstance(event, expect)
    if callable(expect):
        return bool(expect(_copy_event(event)))
    return event == expect


def _call(options: RealtimeModelConfig) -> RealtimeConnectCall:
    call: RealtimeConnectCall = {"api_key_provided": "api_key" in options, "headers_provided": "headers" in options}
    if "url" in options:
        call["url"] = _without_secrets(options["url"])
    if "initial_model_settings" in options:
        call["initial_model_settings"] = _copy_settings(options["initial_model_settings"])
    if "playback_tracker" in options:
        call["playback_tracker"] = options["playback_tracker"]
    if "call_id" in options:
        call["call_id"] = options["call_id"]
    return call


def _copied_call(call: RealtimeConnectCall) -> RealtimeConnectCall:
    made = cast("RealtimeConnectCall", dict(call))
    if "initial_model_settings" in call:
        made["initial_model_settings"] = _copy_settings(call["initial_model_settings"])
    return made


def _without_secrets(url: str) -> str:
    """An address without user, password, query and fragment: any of them may be a key."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
