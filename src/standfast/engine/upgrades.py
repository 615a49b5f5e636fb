"""One version number for saved runs, and one small step from each older version to the next.

Every version that a release wrote is read by all later ones: `tests/golden/` holds states of each, replayed for ever.
To change the layout, raise VERSION and add the step that makes the old layout into the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from standfast.ground.errors import RunStateError

SCHEMA = "standfast.run"
SCHEMAS = (SCHEMA, "holdfast.run")
"""What a saved run of ours says it is. Until 0.1 the package had another name, and its saved runs have it still."""

VERSION = 2


def _own_name(payload: dict[str, Any]) -> dict[str, Any]:
    """Version 2: the package's own name."""
    return payload | {"schema": SCHEMA, "version": 2}


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _own_name}
"""From version N to N + 1."""


def upgrade(payload: Any) -> dict[str, Any]:
    """The payload in today's layout; newer, unknown and foreign ones are refused by name (D9)."""
    if not isinstance(payload, dict):
        raise RunStateError(
            f"a {type(payload).__name__} is not a saved run", "Pass what RunState.to_json() or to_string() gave."
        )
    if payload.get("schema") not in SCHEMAS:
        foreign = payload.get("$schemaVersion")
        what = f"a run state of the OpenAI Agents SDK, version {foreign!r}" if foreign else "not a standfast run"
        raise RunStateError(f"this payload is {what}", "Resume it with the program that saved it.")
    version = payload.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RunStateError(f"{version!r} is not a version of a saved run", "Pass the payload unchanged.")
    if version > VERSION:
        raise RunStateError(
            f"this run was saved by a newer standfast (version {version}; this one reads up to {VERSION})",
            "Upgrade standfast in this process, or resume where it was saved.",
        )
    found: dict[str, Any] = payload
    while version < VERSION:
        found = STEPS[version](dict(found))
        version += 1
    return found
