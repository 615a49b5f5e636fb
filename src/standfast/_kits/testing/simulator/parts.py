"""Simulated sessions, run stores, models and tools of a process.

Each is the real object (the in-memory store, the program's own model and tools) behind `Process.reach`. A tool is
counted at the moment of its effect, so that the count is the truth whatever the run believes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from standfast._kits.testing.scripted_model import ScriptedModel
from standfast._kits.testing.simulator.world import Process, invalid
from standfast._src.agents.agent import Agent
from standfast._src.base.errors import CallerError, SessionBusyError, StoreUnavailableError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.items.items import ModelResponse
from standfast._src.models.interface import Model
from standfast._src.runs.engine.run_store import LogTail, RunStore, RunSummary, SavedRun
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.client.session_wrapper import ContextForSession, SessionWrapper
from standfast._src.sessions.protocol import Head, Lease, SessionABC
from standfast._src.sessions.rules.saved_runs import HeardMessage, NestedItems, Recorded, RunSave
from standfast._src.tools.function_tool import FunctionTool, Invoker

if TYPE_CHECKING:
    from standfast._src.agents.tool_context import ToolContext
    from standfast._src.models.retry import ModelRetryAdvice, ModelRetryAdviceRequest
    from standfast._src.realtime.agent import RealtimeAgent
    from standfast._src.sessions.client.held_leases import StoredLease
    from standfast._src.sessions.rules.leases import OpenRun
    from standfast._src.tools.hosted_tools import Tool

LEASE_POLL_S = 0.5


class CannotSimulate(CallerError):
    """An agent with a need that no simulation can meet."""


# --- stores ----------------------------------------------------------------------------------------------------------


class SimulatedSession(SessionWrapper):
    """A session with every ability, in the world's store."""

    def __init__(self, process: Process, session_id: str) -> None:
        super().__init__(InMemorySession(session_id, store=process.world.store))
        self.session_id = session_id
        self._process = process

    async def get_items(self, limit: int | None = None, *, wrapper: ContextForSession = None) -> list[Item]:
        """The whole history, or the latest `limit` items; oldest first."""
        return await self._process.reach("get_items", lambda: self.underlying_session.get_items(limit))

    async def add_items(self, items: list[Item], *, wrapper: ContextForSession = None) -> None:
        """Append a batch, in order, whole or not at all."""
        await self._process.reach("add_items", lambda: self.underlying_session.add_items(items))

    async def append(
        self,
        items: Sequence[Item],
        *,
        writer: str,
        start: int,
        expect: Head | None = None,
        lease: Lease | None = None,
        digests: Sequence[bytes] | None = None,
    ) -> Head:
        """Store `items` as this writer's items number `start` and on, once, however often repeated (B1)."""
        return await self._process.reach(
            f"append {writer}[{start}:{start + len(items)}]",
            lambda: self.underlying_session.append(
                items, writer=writer, start=start, expect=expect, lease=lease, digests=digests
            ),
        )

    def record(
        self,
        *,
        items: Sequence[Item] = (),
        writer: str = "",
        start: int = 0,
        digests: Sequence[bytes] | None = None,
        run: RunSave | None = None,
        lease: Lease | None = None,
        release: bool = False,
        detached: bool = False,
        costs: tuple[int, Sequence[Item]] | None = None,
        nested: Sequence[NestedItems] = (),
        heard: Sequence[HeardMessage] = (),
    ) -> Coroutine[Any, Any, Recorded]:
        """Append items, save a run, and give the lease back, in one step or not at all."""
        real = lease._lease if isinstance(lease, _Lease) else lease
        saved = "" if run is None else f" save {run.run_id} on {run.expect} ({run.status})"
        what = f"record {writer}[{start}:{start + len(items)}]{saved}{' release' if release else ''}"

        def work() -> Coroutine[Any, Any, Recorded]:
            done: Coroutine[Any, Any, Recorded] = self.underlying_session.record(
                items=items, writer=writer, start=start, digests=digests, run=run, lease=real, release=release,
                detached=detached, costs=costs, nested=nested, heard=heard,
            )  # fmt: skip
            return done

        return self._process.submit(what, work) if detached else self._process.reach(what, work)

    async def accepted(self, writer: str) -> int:
        """Return the number of items written by a writer (B1)."""
        return await self._process.reach("accepted", lambda: self.underlying_session.accepted(writer))

    async def written(self, writer: str) -> list[Item]:
        """Return a writer's items that are still kept, in order (B1)."""
        return await self._process.reach("written", lambda: self.underlying_session.written(writer))

    async def lease(self, *, ttl_s: float, wait_s: float, holder: str = "") -> Lease:
        """Acquire, waiting at most `wait_s` of virtual time for the holder to give it up (B7)."""
        deadline = self._process.world.clock.now + wait_s
        while True:
            try:
                taken = await self._process.reach(
                    # A thread that renewed it would go by the real clock, and for processes that were killed.
                    "lease",
                    lambda: self.underlying_session.lease(ttl_s=ttl_s, wait_s=0.0, renewed=False),
                )
            except SessionBusyError:
                if self._process.world.clock.now >= deadline:
                    raise
                await asyncio.sleep(LEASE_POLL_S)
            else:
                return _Lease(self._process, taken, ttl_s)

    def run_store(self) -> RunStore:
        """Return the run store in the same store as this session."""
        return SimulatedRunStore(self._process)


class _Lease:
    def __init__(self, process: Process, lease: StoredLease, ttl_s: float) -> None:
        self._process, self._lease, self._ttl_s = process, lease, ttl_s
        self._renewed_at = process.world.clock.now

    @property
    def number(self) -> int:
        return int(self._lease.number)

    @property
    def open_runs(self) -> tuple[OpenRun, ...]:
        return self._lease.open_runs

    @property
    def is_held(self) -> bool:
        return self._process.world.clock.now - self._renewed_at < self._ttl_s

    async def renew(self) -> None:
        asked_at = self._process.world.clock.now
        await self._process.reach("renew lease", self._lease.renew)
        self._renewed_at = asked_at

    async def release(self) -> None:
        await self._process.reach("release lease", self._lease.release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


class SimulatedRunStore:
    """The world's run store."""

    def __init__(self, process: Process) -> None:
        self._process, self._runs = process, process.world.store.run_store()

    def __eq__(self, other: object) -> bool:
        """Return whether both connect the same process to the same store."""
        return isinstance(other, SimulatedRunStore) and other._process is self._process

    def __hash__(self) -> int:
        return id(self._process)

    async def load_run(self, run_id: str) -> SavedRun | None:
        """Return the run as last saved, or None for an unknown id."""
        return await self._process.reach("load run", lambda: self._runs.load_run(run_id))

    async def save_run(
        self,
        run_id: str,
        *,
        expect: int,
        head: bytes,
        tails: Mapping[str, LogTail],
        status: str,
        agent: str,
        session_id: str | None = None,
    ) -> int:
        """Write the head and the tails in one step if the saved revision is `expect`; returns the new revision."""
        return await self._process.reach(
            f"save {run_id} on {expect} ({status})",
            lambda: self._runs.save_run(
                run_id, expect=expect, head=head, tails=tails, status=status, agent=agent, session_id=session_id
            ),
        )

    async def list_runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[RunSummary], str | None]:
        """Runs, newest change first, and the cursor of the next page."""
        return await self._process.reach(
            "list runs",
            lambda: self._runs.list_runs(status=status, session_id=session_id, after=after, limit=limit),
        )

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run; return whether it existed."""
        return await self._process.reach("delete run", lambda: self._runs.delete_run(run_id))

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Remove ended runs."""
        return await self._process.reach(
            "prune runs", lambda: self._runs.prune_runs(older_than_s=older_than_s, keep=keep)
        )


class SimulatedPlainSession(SessionABC):
    """A foreign session: a list, five methods, and batches that may be stored in part."""

    def __init__(self, process: Process, session_id: str) -> None:
        self.session_id = session_id
        self._process = process
        self._items = process.world.plain.setdefault(session_id, [])

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The whole history, or the latest `limit` items; oldest first."""

        async def read() -> list[Item]:
            return [
                copy_json(item) for item in (self._items if limit is None else self._items[-limit:] if limit else [])
            ]

        return await self._process.reach("get_items", read)

    async def add_items(self, items: list[Item]) -> None:
        """Append a batch; a failed batch may be stored in part."""
        world = self._process.world
        cut = None
        if world.faults is not None and len(items) > 1 and world.strikes(world.faults.store, "partial batches"):
            cut = world.chance.randrange(1, len(items))

        async def add() -> None:
            self._items.extend(copy_json(item) for item in items[:cut])
            if cut is not None:
                raise StoreUnavailableError("the simulated store took a part of the batch", "Try again.")

        await self._process.reach(f"add_items {len(items)}", add)

    async def pop_item(self) -> Item | None:
        """Remove and return the newest item."""

        async def pop() -> Item | None:
            return self._items.pop() if self._items else None

        return await self._process.reach("pop_item", pop)

    async def clear_session(self) -> None:
        """Remove everything."""

        async def clear() -> None:
            self._items.clear()

        await self._process.reach("clear_session", clear)


# --- models and tools ------------------------------------------------------------------------------------------------


class SimulatedModel(Model):
    """The program's own model, over a faulty network."""

    def __init__(self, process: Process, model: Model) -> None:
        self._process, self._model = process, model

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the advice of the program's model."""
        return self._model.get_retry_advice(request)

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """The whole reply, or a failure before or after it was made."""
        fault = self._fault()
        await self._process.pause()
        if fault == "refused":
            raise ConnectionRefusedError("the simulated provider is not there")
        self._check_request(args, named)
        response = await self._model.get_response(*args, **named)
        await self._process.pause()
        if fault is not None:
            raise ConnectionResetError("the simulated provider's answer was lost")
        return response

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """Stream the reply, which may break off."""
        fault = self._fault()
        await self._process.pause()
        if fault == "refused":
            raise ConnectionRefusedError("the simulated provider is not there")
        self._check_request(args, named)
        count = 0
        async for event in self._model.stream_response(*args, **named):
            count += 1
            if self._process.world.faults is not None and count % 3 == 0:
                await self._process.pause()
            if fault is not None and count > 2:
                raise ConnectionResetError("the simulated provider's stream was cut")
            yield event

    def _check_request(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Require that every call in the request is answered exactly once, like a provider (C8)."""
        self._process.note("model is asked")
        items = named.get("input", args[1] if len(args) > 1 else ())
        problem = invalid(items) if isinstance(items, list) else None
        if not self._process.frozen_until:  # one that stood still may ask about a past that has gone on without it
            self._process.world.require(problem is None, f"a request is not valid: {problem}")

    def _fault(self) -> str | None:
        self._process.check_alive()
        world = self._process.world
        if world.faults is None or not world.strikes(world.faults.model, "model faults"):
            return None
        return world.chance.choice(("refused", "lost"))


def simulate_agent(process: Process, agent: Agent[Any], unsalted: Callable[[str], str]) -> Agent[Any]:
    """Replace models and tools of an agent, and of all reachable agents, by simulated ones, in place."""
    queue: list[object] = [agent]
    seen: set[int] = set()
    while queue:
        one = queue.pop()
        if id(one) in seen or not isinstance(one, Agent):
            continue
        seen.add(id(one))
        one.model = _simulated_model(process, one)
        one.tools = [_simulated_tool(process, tool, unsalted) for tool in one.tools]
        for target in one.handoffs:
            queue.append(target if isinstance(target, Agent) else getattr(target, "agent", None))
        for tool in one.tools:
            queue.append(getattr(getattr(tool, "agent_tool", None), "agent", None))
    return agent


def simulated_tools(process: Process, agent: RealtimeAgent[Any]) -> RealtimeAgent[Any]:
    """Replace the tools of a voice agent, and of all agents reachable by handoffs, by simulated ones, in place."""
    queue: list[Any] = [agent]
    seen: set[int] = set()
    while queue:
        one = queue.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.tools = [_simulated_tool(process, tool, str) for tool in one.tools]
        queue.extend(target if hasattr(target, "tools") else getattr(target, "agent", None) for target in one.handoffs)
    return agent


def _simulated_model(process: Process, agent: Agent[Any]) -> SimulatedModel:
    model = agent.model
    if isinstance(model, SimulatedModel):
        return model
    if isinstance(model, ScriptedModel):
        raise CannotSimulate(
            f"agent {agent.name!r} has a ScriptedModel, which starts over in a process that starts over",
            "Give it an AnsweringModel, which answers from what it is asked.",
        )
    if not isinstance(model, Model):
        raise CannotSimulate(
            f"agent {agent.name!r} has no model object; a simulation asks no provider",
            "Give every agent of the factory an AnsweringModel, or a Model of your own.",
        )
    return SimulatedModel(process, model)


def _simulated_tool(process: Process, tool: Tool, unsalted: Callable[[str], str]) -> Tool:
    if not isinstance(tool, FunctionTool) or tool.agent_tool is not None:
        return tool
    copied = tool.__copy__()
    invoker = copied.on_invoke_tool
    run = invoker.run if isinstance(invoker, Invoker) else invoker

    async def run_counted(context: ToolContext[Any], arguments: str) -> Any:
        await process.pause()
        assert context.idempotency_key is not None  # every call of a run has one
        name = unsalted(context.idempotency_key)
        process.world.executed[name] += 1
        if copied.on_unknown == "rerun":
            process.world.repeatable.add(name)
        process.note(f"tool {copied.name} {name}")
        result = await run(context, arguments)
        await process.pause()
        return result

    wrapped, prepare = getattr(invoker, "wrapped", None), getattr(invoker, "prepare", None)
    copied.on_invoke_tool = Invoker(run_counted, wrapped, copied, prepare=prepare)
    return copied
