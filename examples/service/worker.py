"""The runs of one process, on a store that other workers share.

A run belongs to its worker and not to the request that asked for it: whoever goes away leaves it running, and whoever
comes back finds it, here or elsewhere, under the id of its message. What a dead worker has left, the others take up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from service.hooks import Hooks
from service.settings import Settings
from standfast import (
    Agent,
    ApprovalError,
    NotFoundError,
    RunClaimedError,
    RunConfig,
    RunHandedOverError,
    Runner,
    RunResultStreaming,
    RunStateError,
    RunView,
    SessionConflictError,
    StandfastError,
    open_store,
)

logger = logging.getLogger("service")

LOOK_S = 0.25
"""How often a message that waits for its turn looks whether another worker has it."""
PASSES_MAX = 8
"""How many passes of `Runner.recover` go on at once: a long run that one took must not keep the next from looking."""

Tell = Callable[[dict[str, Any]], None]
"""Hears the words of a reply as they come; must not wait."""


class UnderWay:
    """A message that this process answers, or a run that it goes on with."""

    def __init__(self, conversation: str, text: str | None = None) -> None:
        self.conversation, self.text = conversation, text
        self.result: RunResultStreaming[Any] | None = None
        self.saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the run is saved, and whoever dies now leaves it to others; or raises why it was not."""

    async def follow(self, result: RunResultStreaming[Any], tell: Tell) -> None:
        """Follow a run to its rest; raises what ended it."""
        self.result = result
        async for event in result.stream_events():
            if not self.saved.done():  # the first event comes behind the first save
                self.saved.set_result(None)
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                tell({"text": event.data.delta})

    def refuse(self, error: Exception) -> None:
        """Tell whoever waits why it was not saved; of one that was saved, the store says how it ended."""
        if not self.saved.done():
            self.saved.set_exception(error)
            self.saved.exception()  # heard: the client may be gone, and asyncio need not report it


class Worker:
    """One process of the service."""

    def __init__(self, settings: Settings, agent: Agent[Any]) -> None:
        self.settings, self.agent = settings, agent
        self.store = open_store(settings.store, create=True)
        self.stopping = asyncio.Event()
        self._hooks = Hooks(self.store, settings.hook_url, settings.hook_secret)
        self._under_way: dict[str, UnderWay] = {}
        self._listeners: defaultdict[str, set[Tell]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes: set[asyncio.Task[None]] = set()
        self._asking = asyncio.Event()

    # --- a message ---------------------------------------------------------------------------------------------------

    async def begin(self, conversation: str, run_id: str, text: str) -> RunView:
        """Start a run, or find the one that this message has, and return when it is saved.

        Raises SessionConflictError if the id was another message's, SessionBusyError if the conversation's turn did
        not come, RunHandedOverError if this worker stops.
        """
        view = await self.found(run_id)
        if view is not None:
            _check_same(view, conversation, text)
            if view.status != "failed":  # that one is tried again
                return view
        under_way = self._under_way.get(run_id)
        if under_way is None:
            self._check_open()
            under_way = UnderWay(conversation, text)
            self._carry(run_id, under_way, self._answer)
        elif under_way.text is not None and (under_way.conversation, under_way.text) != (conversation, text):
            raise _another_message(run_id)
        try:
            await self._saved(run_id, under_way)
        except RunStateError:
            pass  # it has ended meanwhile: its view says how
        view = await self.store.run(run_id)
        _check_same(view, conversation, text)
        return view

    async def _saved(self, run_id: str, under_way: UnderWay) -> None:
        """Wait until any worker has saved the run; raises why it was not."""
        while not under_way.saved.done():
            await asyncio.wait([under_way.saved], timeout=LOOK_S)
            # It waits for its conversation. Perhaps because another worker got the same message, and is at it.
            if not under_way.saved.done() and await self.found(run_id) is not None:
                return
        if under_way.saved.cancelled():
            raise RunStateError(f"run {run_id!r} was cancelled before it began", "Send a new message.")
        under_way.saved.result()

    async def found(self, run_id: str) -> RunView | None:
        """The saved run, if there is one."""
        try:
            return await self.store.run(run_id)
        except NotFoundError:
            return None

    async def _answer(self, run_id: str, under_way: UnderWay) -> None:
        """Run the agent. What a dead worker left in the conversation is finished first: its message came before."""
        assert under_way.text is not None
        self._check_open()
        session, config = self.store.session(under_way.conversation), self._config(run_id)
        result = Runner.run_streamed(self.agent, under_way.text, session=session, run_config=config)
        await under_way.follow(result, self._teller(run_id))

    def _carry(self, run_id: str, under_way: UnderWay, work: Callable[[str, UnderWay], Awaitable[None]]) -> None:
        """Do this in a task of the worker's own, whoever comes and goes."""
        self._under_way[run_id] = under_way

        async def carry() -> None:
            try:
                await work(run_id, under_way)
            except Exception as error:
                logger.info("run %s: %s: %s", run_id, type(error).__name__, error)
                under_way.refuse(error)
            finally:
                del self._under_way[run_id]
                under_way.saved.cancel()  # given up before it began; else nothing happens

        self._spawn(carry())

    def _teller(self, run_id: str) -> Tell:
        def tell(words: dict[str, Any]) -> None:
            for listener in tuple(self._listeners.get(run_id, ())):
                listener(words)

        return tell

    @contextmanager
    def listening(self, run_id: str, tell: Tell) -> Iterator[None]:
        """Hear the words of a run while this worker is at it; of another's runs one sees what is saved."""
        self._listeners[run_id].add(tell)
        try:
            yield
        finally:
            self._listeners[run_id].discard(tell)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

    # --- a decision --------------------------------------------------------------------------------------------------

    async def decide(
        self,
        run_id: str,
        call_id: str,
        *,
        approve: bool,
        arguments: str,
        prepared_arguments: str | None,
        by: str,
        reason: str | None,
    ) -> RunView:
        """Save a decision and go on with the run. The same decision again changes nothing; another one is refused."""
        try:
            view = await self.store.decide(
                run_id,
                call_id,
                approve,
                by=by,
                reason=reason,
                arguments=arguments,
                prepared_arguments=prepared_arguments,
            )
        except (ApprovalError, RunStateError, RunClaimedError):
            view = await self.store.run(run_id)
            known = next((call.decision for call in view.calls if call.call_id == call_id), None)
            if known is None or (known.approved, known.by) != (approve, by):
                raise
        if view.status == "ready" and run_id not in self._under_way and not self.stopping.is_set():
            assert view.session_id is not None  # every run of this service is in a conversation
            self._carry(run_id, UnderWay(view.session_id), self._go_on)
        return view

    async def _go_on(self, run_id: str, under_way: UnderWay) -> None:
        """Go on with what was decided: at once, and with its words. If this fails, a pass of `recover` does."""
        session = self.store.session(under_way.conversation)
        result = await Runner.resume_streamed(self.agent, run_id, session=session, run_config=self._config())
        await under_way.follow(result, self._teller(run_id))

    # --- stopping a run ----------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str, *, by: str) -> RunView:
        """Give a run up, wherever it is at work: its worker ends it, or the next one does."""
        view = await self.store.run(run_id)
        if view.status in ("done", "failed", "cancelled"):
            return view
        return await self.store.cancel(run_id, by=by)

    # --- what others have left ---------------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Until this worker stops: take up what others have left, and ask the people who must decide."""
        while not self.stopping.is_set():
            if len(self._passes) < PASSES_MAX:
                self._pass(self._recover())
            if not self._asking.is_set():  # whoever is asked may take long to answer, and runs must not wait for that
                self._pass(self._ask())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), self.settings.tend_s)

    def _pass(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(work)
        self._passes.add(task)
        task.add_done_callback(self._passes.discard)

    async def _ask(self) -> None:
        self._asking.set()
        try:
            await self._hooks.tell()
        except StandfastError as error:
            logger.warning("nobody could be asked: %s", error)
        finally:
            self._asking.clear()

    async def _recover(self) -> None:
        report = await Runner.recover(self.agent, sessions=self.store.session, run_config=self._config())
        for one in report.of("failed"):
            logger.warning("run %s was taken up and failed: %r", one.run_id, one.error)

    # --- the end -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to tend."""
        self._tending = asyncio.create_task(self.tend())

    def stop(self) -> None:
        """Take no more, end the streams, and hand over what is under way: SIGTERM has come."""
        if not self.stopping.is_set():
            self.stopping.set()
            self._leaving = asyncio.create_task(self._leave())

    async def _leave(self) -> None:
        for one in self._passes:
            one.cancel()  # one that recovers hands over what it has taken
        await Runner.hand_over(within_s=self.settings.stop_s)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Wait until all is handed over, and close the store."""
        self.stop()
        await asyncio.gather(self._leaving, self._tending, return_exceptions=True)
        await self._hooks.close()
        await self.store.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _config(self, run_id: str | None = None) -> RunConfig:
        # Every message that was accepted is answered: none closes the run of another one.
        return RunConfig(run_id=run_id, unfinished="resume", lease_ttl_s=self.settings.lease_s, close_session=True)

    def _check_open(self) -> None:
        if self.stopping.is_set():
            raise RunHandedOverError("this worker stops", "Send the request again: another worker takes it.")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _check_same(view: RunView, conversation: str, text: str) -> None:
    said = [item.get("content") for item in view.input]
    # Of a run whose history was cleared nobody knows what was said.
    if view.session_id != conversation or (said and said != [text]):
        raise _another_message(view.run_id)


def _another_message(run_id: str) -> SessionConflictError:
    return SessionConflictError(
        f"message {run_id!r} was sent before, with another text or in another conversation",
        "Give every message an id of its own; send a message again exactly as it was.",
    )
