"""What the OpenAI Agents SDK documents as `agents.run_state`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.runs.api.run_state import RunState as RunState
    from ._src.runs.api.saved_context import (
        ContextDeserializer as ContextDeserializer,
        ContextOverride as ContextOverride,
        ContextSerializer as ContextSerializer,
    )

__getattr__, __dir__ = lazy(__name__)
