"""An executor for a client handed in by the caller and bound to one event loop.

The client is used in that loop only: a caller in another loop gets WrongLoopError at once (A22). Plans are executed as
over any network, in one task of the loop that ends when no work is left. The same loop renews leases: a lease is lost
if its holder blocks the loop for longer than the lease lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from queue import SimpleQueue
from typing import Any, NoReturn, Protocol, TypeVar
from uuid import uuid4

from standfast._src.base.errors import OutcomeUnknownError, StoreTimeoutError, StoreUnavailableError, WrongLoopError
from standfast._src.base.logs import session_logger as _log
from standfast._src.sessions.client.executor import MakePlan, Then
from standfast._src.sessions.client.pipeline import RETRY_FIRST_S, RETRY_MAX_S, AnyRequest, Pipeline, question_of
from standfast._src.sessions.client.requests import CompensationMessage, RequestExecutor, post_request
from standfast._src.sessions.client.threaded_executor import LAST_WAIT_S, idempotency_slots_of
from standfast._src.sessions.storage import Answer, Ask

T = TypeVar("T")


LANES = 8
# Half of what a thread has: a client may live for one request, and each leaves its lanes in the sessions it wrote to.


class AsyncStorage(Protocol):
    """A store whose client is awaited."""

    async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Return the answer to each question, in order."""
        ...


class BorrowedLoopExecutor(RequestExecutor):
    """Executes plans on a store in the event loop that first uses it."""

    loses_answers = True

    def __init__(self, store: AsyncStorage) -> None:
        self._lanes, self._under_way = idempotency_slots_of(uuid4().hex, LANES), set[int]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving = _Serving(store, self._under_way)
        self._task: asyncio.Task[None] | None = None

    @property
    def lane(self) -> str | None:
        """Idempotency slot of the next write."""
        return self._lanes[min(len(self._under_way), LANES - 1)]

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Execute a plan without a waiting caller, from any thread."""
        request = post_request(plan, None, timeout_s, then, context)
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._put, request)
        except (RuntimeError, AssertionError) as error:  # the loop has ended, or nothing was ever done in one
            if then is not None:
                then(None, error)

    def _submit(self, request: AnyRequest) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise WrongLoopError(
                "this session's client belongs to another event loop",
                "Use the client in the loop that made it, or open the session with from_url, which works in any.",
            )
        if request.kind == "write":
            self._under_way.add(id(request))
        self._put(request)

    def _give_up(self, request: AnyRequest, owes_undo: bool) -> None:
        if owes_undo:
            self._put(CompensationMessage(request))

    def _put(self, message: AnyRequest | CompensationMessage) -> None:
        self._serving.messages.append(message)
        if self._task is None or self._task.done():
            assert self._loop is not None
            self._task = self._loop.create_task(self._serving.serve())


def _never() -> NoReturn:
    raise AssertionError("an awaited store is not opened in a thread")


class _Serving(Pipeline):
    """The writing thread's pipeline as a task of an event loop."""

    def __init__(self, store: AsyncStorage, under_way: set[int]) -> None:
        super().__init__(_never, SimpleQueue(), True, under_way)
        self._awaited = store
        self._undo_pause = RETRY_FIRST_S
        self.messages: deque[AnyRequest | CompensationMessage] = deque()

    async def serve(self) -> None:
        """Execute requests until none is left.

        `asyncio.run` cancels every task of its loop at its end, this one too. Requests that were sent, and detached
        ones, are finished first: otherwise a popped item, or a turn, would be lost.
        """
        until, task = math.inf, asyncio.current_task()
        assert task is not None
        while self._is_busy() and time.monotonic() < until:
            with contextlib.suppress(asyncio.CancelledError):
                await self._serve_once()
            # Not only where it comes out here: a client may take a cancellation for a failure of its connection, and
            # the end of a loop would then wait for as long as a request may take.
            if task.cancelling():
                until = min(until, time.monotonic() + LAST_WAIT_S)

    def _is_busy(self) -> bool:
        """Return whether work is left that waits for nothing but the store."""
        now = time.monotonic()
        return bool(self.messages or self._active) or any(now < request.deadline for request in self._to_undo)

    async def _serve_once(self) -> None:
        while self.messages:
            self._accept(self.messages.popleft())
        self._look_for_orphans()
        if self._to_undo and not await self._undone():
            await asyncio.sleep(self._undo_pause)
            self._undo_pause = min(self._undo_pause * 2, RETRY_MAX_S)
            return
        ready = self._ready()
        if ready:
            try:
                answers = await self._ask_all(list(map(question_of, ready)))
            except BaseException:  # cancelled, nearly always; whatever has left may have been done
                for active in ready:
                    active.lose_answer()
                raise
            self._take_answers(ready, answers)
        elif self._active:
            await asyncio.sleep(self._pause())

    @property
    def _asked_store(self) -> Any:
        return self._awaited

    def _trouble(self) -> None:
        """Return None: a handed-in client connects by itself, at its first request."""

    async def _ask_all(self, questions: Sequence[Any]) -> list[Answer | Exception]:
        try:
            return await self._awaited.ask_many(questions)
        except Exception as error:
            return [error] * len(questions)

    async def _undone(self) -> bool:
        """Compensate abandoned results before any other write; return whether the remaining requests may continue.

        A compensation that does not succeed within its time no longer holds up other requests: it is retried whenever
        there is work.
        """
        self._believed.clear()
        while self._to_undo:
            try:
                plan = self._to_undo[0].undo_plan()
                question = next(plan)
                while True:
                    (answer,) = await self._ask_all([question])
                    if isinstance(answer, Exception):
                        raise answer
                    question = plan.send(answer)
            except StopIteration:
                self._to_undo.pop(0).end_undo()
                self._undo_pause = RETRY_FIRST_S
            except (OutcomeUnknownError, StoreTimeoutError, StoreUnavailableError):
                return time.monotonic() >= self._to_undo[0].deadline
            except Exception:  # it would fail for ever, and nothing else would be done
                _log.exception("a cancelled operation cannot be undone")
                self._to_undo.pop(0).end_undo()
        return True
