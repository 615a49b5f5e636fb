"""Description of an engine for the kit: how to open a client, how to work, and how to deliver a job once more.

An engine hands out jobs: a queue, or a server of workflows. An adapter gives it runs as jobs. The kit needs four
methods of a description (`open`, `work`, `deliver`, `is_over`) and one number (`log_bytes`). For every check it copies
the description and gives the copy a `folder` and a `unique` string, so that each check starts with an unused store.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from standfast._kits.workers.jobs import RunJob
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import RunConfig

LOG_BYTES_MAX = 10_000
"""Largest log that an engine may keep of a job, whatever the length of the conversation (G1a)."""


class EngineClient(Protocol):
    """Adapter in a web process: put runs into the engine, decide, and cancel."""

    async def enqueue(self, run_id: str, agent: str, input: str | None = None, *, session_id: str | None = None) -> Any:
        """Save a run with its input and give its name to the engine; a repeat is harmless."""

    async def decide(self, run_id: str, call_id: str, approve: bool, *, by: str) -> Any:
        """Approve or reject a waiting call; the run continues on a worker."""

    async def cancel(self, run_id: str, *, by: str) -> bool:
        """Cancel a run; return True if it has ended."""

    async def tend(self) -> Any:
        """Run a pass of the periodic job: resume runs without a worker, and end jobs whose run has ended."""


class Engine:
    """Describe an engine with its adapter to the kit by overriding `name`, `open`, and whatever else applies."""

    name: str = ""
    """The column of the scorecard."""

    about: str = ""
    """Text about the engine in a report: its version, for example."""

    patience_s: float = 240.0
    """Seconds that a check may take before it counts as hanging."""

    lease_ttl_s: float = 2.0
    """Time to live of the leases of the checks: a killed worker's run waits at least so long."""

    places: int = 2
    """How many worker processes a check has at once."""

    hooks: ClassVar[tuple[str, ...]] = ("restart_server", "restart_store")
    """The methods that are optional: a check that needs one is left out without it, and the scorecard says so."""

    folder: Path
    """An empty folder for the check at hand, given by the kit."""

    unique: str
    """A string that no other check has, given by the kit."""

    place: int = 0
    """Number of the worker process, given by the kit: from 1 on; 0 is the process of the check."""

    @property
    def store_url(self) -> str:
        """The store of the runs, as for `open_store`; by default a file in the check's folder."""
        return str(self.folder / "runs.db")

    def setup(self) -> None:
        """Prepare the engine: called once per check, in the process of the check, before anything is opened."""

    def teardown(self) -> None:
        """Undo `setup`, after the last client was closed."""

    def child_state(self) -> dict[str, Any]:
        """Return attributes that a copy in a worker process needs to reach the same engine; picklable."""
        return {}

    def open(
        self, agents: Sequence[Agent[Any]], run_config: RunConfig, *, works: bool
    ) -> AbstractAsyncContextManager[EngineClient]:
        """Open the adapter, with `max_turns=None`: some conversations of the checks are long.

        `works`: this process is a worker, and `work` is called next; else it only asks.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method open(agents, run_config, *, works)")

    async def work(self, client: Any, *, within_s: float) -> None:
        """Work off jobs until SIGTERM; then hand over what is under way within this time, and return."""
        raise NotImplementedError(f"{type(self).__name__} needs a method work(client, *, within_s)")

    async def deliver(self, client: Any, job: RunJob, delivery: str) -> None:
        """Put a job's names into the engine once more, as a further delivery with this name."""
        raise NotImplementedError(f"{type(self).__name__} needs a method deliver(client, job, delivery)")

    async def is_over(self, client: Any, run_id: str) -> bool:
        """Return whether all jobs of a run have ended in the engine."""
        raise NotImplementedError(f"{type(self).__name__} needs a method is_over(client, run_id)")

    async def log_bytes(self, client: Any, run_id: str) -> int:
        """Return the size of the engine's log of a run's job, result and history included, in bytes."""
        raise NotImplementedError(f"{type(self).__name__} needs a method log_bytes(client, run_id)")

    # --- faults that can be staged ------------------------------------------------------------------------------

    def restart_server(self) -> None:
        """Kill the engine's server and start it again with its data."""
        raise NotImplementedError

    def restart_store(self) -> None:
        """Kill the server of the run store and start it again."""
        raise NotImplementedError

    def can(self, hook: str) -> bool:
        """Return whether an optional method is overridden."""
        return getattr(type(self), hook) is not getattr(Engine, hook)
