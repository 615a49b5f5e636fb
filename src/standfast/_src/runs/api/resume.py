"""Loading of saved runs, to resume them (`Runner.resume`, `recover`, `send`, and jobs)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.run_config import check_max_turns
from standfast._src.base.errors import NotFoundError
from standfast._src.runs.api.arguments import StartOptions
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.api.saved_context import wrap_context
from standfast._src.runs.engine.codec import decode_saved
from standfast._src.runs.engine.run import evolve
from standfast._src.runs.engine.run_store import RunStore, SavedRun
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.loop.run_scope import ResumedRun, usage_of
from standfast._src.runs.persistence.resume_checks import check_saved
from standfast._src.runs.persistence.session_lock import run_store_of

AS_SAVED: Any = object()
"""Value of `max_turns` for a resumed run whose limit stays as saved."""


async def to_resume(
    agent: Agent[Any], run_id: str, run_store: RunStore | None, options: StartOptions, takeover: bool = False
) -> tuple[RunState[Any], StartOptions, ResumedRun]:
    """Load a saved run, with the options to resume it."""
    state = await load_state(agent, run_id, run_store_of(options.session, run_store), options.context)
    run = state._run
    if options.max_turns is not AS_SAVED:
        check_max_turns(options.max_turns)
        run = evolve(run, spec=evolve(run.spec, max_turns=options.max_turns))
        state._saved = replace(state._saved, run=run)
    resumed = replace(state._saved, takeover=takeover, status=run.status)
    # The session may only be where the run store is: a run that a server owns is not given it.
    owned = options.session if run.spec.owner.kind == "session" else None
    return state, options._replace(session=owned, max_turns=run.spec.max_turns), resumed


async def load_saved_run(store: RunStore, run_id: str) -> SavedRun:
    """Load a saved run; raise NotFoundError for an unknown id."""
    saved = await store.load_run(run_id)
    if saved is None:
        raise NotFoundError(f"there is no saved run {run_id!r}", "List them with Runner.list_runs(...).")
    return saved


async def load_state(agent: Agent[Any], run_id: str, store: RunStore, context: object = None) -> RunState[Any]:
    """Load a saved run as a state, checked against the agents that resume it."""
    saved = await load_saved_run(store, run_id)
    run = decode_saved(saved)
    check_saved(run, AgentGraph(agent))
    wrapper = wrap_context(context, usage_of(run), ApprovalBook())  # what it has cost so far, in whatever process
    return RunState._from_saved(ResumedRun(run, saved.revision, store), wrapper, agent)
