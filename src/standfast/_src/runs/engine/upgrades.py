"""Version number of saved runs, and the upgrade step from each older version to the next.

Every version that a release wrote is read by all later ones: `tests/golden/` holds states of each, replayed for ever.
To change the layout, raise VERSION and add the step that makes the old layout into the new one, and the step back:
the old layout is written until the operator allows new ones (`base/new_layouts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from standfast._src.base.errors import RunStateError
from standfast._src.base.new_layouts import version_to_write
from standfast._src.base.type_names import describe_type

SCHEMA = "standfast.run"
OLDEST = 2
_RELEASE = re.compile(r"\d{1,3}(\.\d{1,3}){0,2}")

VERSION, BEFORE = 2, 2
"""The newest version that this release reads, and the newest that the release before it reads. 1 was never released."""

Payload = dict[str, Any]
Step = Callable[[Payload], Payload]
"""Convert a whole run, the head of a run (with lengths), or the record of an ended run."""

STEPS: dict[int, Step] = {}
"""From version N to N + 1."""

STEPS_BACK: dict[int, Step] = {}
"""From version N to N - 1, for as long as the release before may share a store with this one."""


def choose_version() -> int:
    """Return the version for saving runs."""
    return version_to_write(VERSION, BEFORE)


def downgrade(payload: Payload, version: int) -> Payload:
    """Return a payload of today's layout in an older one."""
    for newer in range(VERSION, version, -1):
        payload = STEPS_BACK[newer](payload) | {"version": newer - 1}
    return payload


def upgrade(payload: object) -> Payload:
    """The payload in today's layout; newer, unknown and foreign ones are refused by name (D9)."""
    if not isinstance(payload, dict):
        raise RunStateError(
            f"{describe_type(payload)} is not a saved run", "Pass what RunState.to_json() or to_string() gave."
        )
    if payload.get("schema") != SCHEMA:
        foreign, other = payload.get("$schemaVersion"), payload.get("schema")
        # Only a value that looks like a version is repeated: anything else may be private content.
        release = f", version {foreign!r}" if isinstance(foreign, str) and _RELEASE.fullmatch(foreign) else ""
        what = f"a run state of the OpenAI Agents SDK{release}" if foreign else "not a standfast run"
        if isinstance(other, str) and not foreign:
            what = f"not a standfast run but a record of another kind, {other[:40]!r}"
        raise RunStateError(f"this payload is {what}", "Resume it with the program that saved it.")
    version = payload.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < OLDEST:
        shown = version if isinstance(version, int) else type(version).__name__
        raise RunStateError(f"{shown} is not a version of a saved run", "Pass the payload unchanged.")
    if version > VERSION:
        raise RunStateError(
            f"this run was saved by a newer standfast (version {version}; this one reads up to {VERSION})",
            "Upgrade standfast in this process, or resume where it was saved.",
        )
    found: Payload = payload
    while version < VERSION:
        found = STEPS[version](dict(found)) | {"version": version + 1}
        version += 1
    return found
