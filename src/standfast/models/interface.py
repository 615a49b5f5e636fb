"""What the OpenAI Agents SDK documents as `agents.models.interface`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.llm.interface import Model, ModelProvider, ModelTracing

__all__ = ["Model", "ModelProvider", "ModelTracing"]
__getattr__, __dir__ = lazy(__name__)
