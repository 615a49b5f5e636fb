"""What the OpenAI Agents SDK documents as `agents.model_settings`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.models.model_settings import (
        Headers as Headers,
        MCPToolChoice as MCPToolChoice,
        ModelSettings as ModelSettings,
        ToolChoice as ToolChoice,
    )

__getattr__, __dir__ = lazy(__name__)
