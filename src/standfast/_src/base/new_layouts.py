"""Decide which version of a layout this process writes while workers of two releases share a store (D9).

A release that brings a new layout reads both, and writes the older one: during a rolling upgrade, workers of the older
release must be able to read all records. The operator sets the variable when every worker runs the newer release.
"""

from __future__ import annotations

import os

from standfast._src.base.errors import InvalidSettingError

VARIABLE = "STANDFAST_NEW_LAYOUTS"


def version_to_write(newest: int, before: int) -> int:
    """Return `newest` if the operator allows new layouts, else `before`, the newest that the release before reads."""
    allowed = os.environ.get(VARIABLE, "0")
    if allowed not in ("0", "1"):
        raise InvalidSettingError(
            f"{VARIABLE}={allowed[:20]!r} says neither that new layouts may be written nor that they may not",
            "Set it to 1 when every worker on the store runs this release; leave it out until then.",
        )
    return newest if allowed == "1" else before
