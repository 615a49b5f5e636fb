"""A run that ends owing the server something says so, and hands it over (D11).

The server of a conversation refuses every later request as long as a call it made has no output. A run that ends with
outputs that were not sent (no turn was left, a tool's result was the final output, it was given up) therefore names
them: the next run on that conversation has to bring them along.
"""

from __future__ import annotations

from standfast.driver.run_scope import logger
from standfast.engine.request import delta
from standfast.engine.run import Run
from standfast.ground.jsonvalue import Item, copy_json

REMEDY = "Give them to the next run of that conversation, before its own input: Runner.run(agent, owed + [new input])."


def unsent_items(run: Run) -> list[Item]:
    """What the server that owns the conversation has not got; copies."""
    return [copy_json(item) for item in delta(run)] if run.spec.owner.is_server else []


def unsent_note(run: Run) -> str:
    """What a run's last words say about it; empty if nothing is owed."""
    items = unsent_items(run)
    return f"; the server has not got {len(items)} items of it ({_kinds(items)})" if items else ""


def warn_if_unsent(run: Run) -> None:
    """Say it where nothing is raised."""
    if run.finished and (items := unsent_items(run)):
        logger.warning(
            "run %s ended without sending %d items (%s), which are its result's `owed_items`. %s",
            run.spec.run_id,
            len(items),
            _kinds(items),
            REMEDY,
        )


def _kinds(items: list[Item]) -> str:
    return ", ".join(dict.fromkeys(str(item.get("type") or "message") for item in items))
