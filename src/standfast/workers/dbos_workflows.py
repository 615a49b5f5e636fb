"""Public path of `standfast._kits.workers.dbos_workflows`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.workers.dbos_workflows import CLOSING_S as CLOSING_S, RunWorkflows as RunWorkflows

__getattr__, __dir__ = forward(__name__)
