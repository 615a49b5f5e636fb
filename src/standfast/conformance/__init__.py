"""Public path of `standfast._kits.conformance`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.conformance import (
        Backend as Backend,
        ClauseBroken as ClauseBroken,
        Lab as Lab,
        Options as Options,
        Result as Result,
        Scorecard as Scorecard,
        batch as batch,
        check as check,
        message as message,
        proves as proves,
        suite as suite,
    )

__getattr__, __dir__ = forward(__name__)
