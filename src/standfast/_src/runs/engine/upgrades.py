"""Version number of saved runs, and the upgrade step from each older version to the next.

Every version that a release wrote is read by all later ones: `tests/golden/` holds states of each, replayed for ever.
To change the layout, raise VERSION and add the step that makes the old layout into the new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from standfast._src.base.errors import RunStateError

SCHEMA = "standfast.run"
_RELEASE = re.compile(r"\d{1,3}(\.\d{1,3}){0,2}")
SCHEMAS = (SCHEMA, "holdfast.run")
"""Schema names of saved runs. Until 0.1 the package had another name, still used in its saved runs."""

VERSION = 2


Payload = dict[str, Any]


def _own_name_and_logs(payload: Payload) -> Payload:
    """Version 2: the package's own name; what guardrails and people said are logs, no longer parts of the head."""
    return _with_logs(payload) | {"schema": SCHEMA, "version": 2}


def _with_logs(run: Payload) -> Payload:
    """A run of version 1 in the layout of version 2, the runs inside its calls included."""
    # A step gets whole runs, heads of runs (with lengths), and what is left of ended ones.
    if "ended" in run and "progress" not in run:
        return run  # only that it ended was kept
    run = dict(run)
    progress, turn = run.get("progress"), run.get("turn")
    if isinstance(progress, dict):
        moved = ("results", "decisions", "begun", "sent", "mark", "payload", "reply_id")
        run["progress"] = {name: value for name, value in progress.items() if name not in moved}
        run["progress"] |= {"outgoing": _upgrade_outgoing(progress), "after_item_id": progress.get("mark")}
        run["results"], run["decided"] = progress.get("results", []), progress.get("decisions", [])
    if isinstance(turn, dict):
        calls = turn.get("calls", [])
        if isinstance(calls, list):
            calls = [_call_with_logs(call) for call in calls]
        run["turn"] = {name: value for name, value in turn.items() if name != "again"}
        run["turn"] |= {"calls": calls, "is_unanswered": turn.get("again", False)}
    return run


def _upgrade_outgoing(progress: Payload) -> Payload | None:
    if progress.get("begun") is None:
        return None
    sent, payload, reply_id = progress.get("sent", []), progress.get("payload"), progress.get("reply_id")
    return {"key": progress["begun"], "sent": sent, "payload": payload, "reply_id": reply_id}


def _call_with_logs(call: object) -> object:
    if isinstance(call, dict) and isinstance(call.get("child"), dict):
        return call | {"child": _with_logs(call["child"])}
    return call


STEPS: dict[int, Callable[[Payload], Payload]] = {1: _own_name_and_logs}
"""From version N to N + 1."""


def upgrade(payload: object) -> Payload:
    """The payload in today's layout; newer, unknown and foreign ones are refused by name (D9)."""
    if not isinstance(payload, dict):
        raise RunStateError(
            f"a {type(payload).__name__} is not a saved run", "Pass what RunState.to_json() or to_string() gave."
        )
    if payload.get("schema") not in SCHEMAS:
        foreign, other = payload.get("$schemaVersion"), payload.get("schema")
        # Only a value that looks like a version is repeated: anything else may be private content.
        release = f", version {foreign!r}" if isinstance(foreign, str) and _RELEASE.fullmatch(foreign) else ""
        what = f"a run state of the OpenAI Agents SDK{release}" if foreign else "not a standfast run"
        if isinstance(other, str) and not foreign:
            what = f"not a standfast run but a record of another kind, {other[:40]!r}"
        raise RunStateError(f"this payload is {what}", "Resume it with the program that saved it.")
    version = payload.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        shown = version if isinstance(version, int) else type(version).__name__
        raise RunStateError(f"{shown} is not a version of a saved run", "Pass the payload unchanged.")
    if version > VERSION:
        raise RunStateError(
            f"this run was saved by a newer standfast (version {version}; this one reads up to {VERSION})",
            "Upgrade standfast in this process, or resume where it was saved.",
        )
    found: Payload = payload
    while version < VERSION:
        found = STEPS[version](dict(found))
        version += 1
    return found
