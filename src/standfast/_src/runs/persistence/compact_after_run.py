"""Compaction after a run, for a session with that ability. It never fails a run whose turn is stored (C9).

Compaction waits while local tool outputs still belong to the response chain: then it is only noted, and done after a
later run. Its results become `CompactionItem`s of the run; the session has them already, so they are not appended.
"""

from __future__ import annotations

from typing import Any

from standfast._src.base.aio import maybe_await
from standfast._src.base.json_values import Item
from standfast._src.runs.engine.events import Compacted
from standfast._src.runs.engine.run import Entry, Run
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import RunScope, logger
from standfast._src.sessions.signatures import pass_wrapper

_LOCAL_OUTPUTS = ("tool_call_output_item", "handoff_output_item")
_THEIR_DEFERRED = "_get_deferred_compaction_response_id"
# The SDK's name for it: its compacting session works here as ours does there.


def may_compact(session: object) -> bool:
    """Return whether a session will be asked to compact itself after a run, so that the run keeps it until then."""
    # On the class, never by attribute delegation: an encrypting wrapper must not be bypassed.
    return session is not None and hasattr(type(session), "run_compaction")


async def compact_after(loop: Loop, scope: RunScope) -> None:
    """Compact the session's history, if the session decides so."""
    session = scope.session.session if scope.session is not None else None
    compact: Any = getattr(session, "run_compaction", None) if may_compact(session) else None
    run = loop.run
    if compact is None or not callable(compact) or not run.progress.ended or not len(run.responses):
        return
    response_id = next((one.response_id for one in reversed(list(run.responses)) if not one.hidden), None)
    args: dict[str, Any] = {"force": False}
    if response_id is not None and _saw_everything(scope, run):
        args["response_id"] = response_id
    store = _store_setting(scope, run)
    if store is not None:
        args["store"] = store
    try:
        if len(run.ledger) and run.ledger[-1].kind in _LOCAL_OUTPUTS:
            await _defer(session, response_id, store)
            return
        deferred = getattr(session, "deferred_response_id", None) or getattr(session, _THEIR_DEFERRED, None)
        args["force"] = (await maybe_await(deferred() if callable(deferred) else deferred)) is not None
        named = {"wrapper": scope.wrapper} if pass_wrapper(compact) else {}
        made = await maybe_await(compact(args, **named))
    except Exception as error:
        logger.warning("the session's history was not compacted: %s: %s", type(error).__name__, error)
        return
    entries = _entries(made, run.progress.agent)
    if entries:
        loop.apply(Compacted(entries))


def _entries(made: object, agent: str) -> tuple[Entry, ...]:
    if not isinstance(made, list):
        return ()
    items: list[Item] = [item for item in made if isinstance(item, dict) and item.get("type") == "compaction"]
    return tuple(Entry("compaction_item", agent, item) for item in items)


def _saw_everything(scope: RunScope, run: Run) -> bool:
    """Return whether the last reply answers the whole history. Items withheld from the model are not in its chain, and
    would be lost if that chain were compacted in the history's place.
    """
    config, session = scope.config, scope.session
    assert session is not None
    limit = session.limit()
    return (
        config.call_model_input_filter is None
        and not scope.seen.open_turns  # a placeholder is in that chain, and must not be in what stands for the history
        and all(view.base is None for view in run.views)  # neither a session callback nor a handoff made one
        and (limit is None or len(scope.history) + len(session.cut) < limit)
    )


def _store_setting(scope: RunScope, run: Run) -> bool | None:
    agent = scope.graph.agent(run.progress.agent)
    store: bool | None = agent.model_settings.resolve(scope.config.model_settings).store
    return store


async def _defer(session: Any, response_id: str | None, store: bool | None) -> None:
    defer = getattr(session, "defer_compaction", None) or getattr(session, "_defer_compaction", None)
    if defer is not None and response_id is not None:
        await maybe_await(defer(response_id, store=store))
