"""What the OpenAI Agents SDK documents as `agents.extensions.models.any_llm_model`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.providers.other_packages import AnyLLMModel

__all__ = ["AnyLLMModel"]
__getattr__, __dir__ = lazy(__name__)
