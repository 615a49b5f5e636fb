"""What the OpenAI Agents SDK documents as `agents.models`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.agents.model_defaults import get_default_model_settings

__all__ = ["get_default_model_settings"]
__getattr__, __dir__ = lazy(__name__)
