"""What the OpenAI Agents SDK documents as `agents.models`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.default_models import get_default_model, get_default_model_settings, is_gpt_5_default
    from standfast._src.models.default_models import gpt_5_reasoning_settings_required
    from standfast._src.models.providers.registration import OpenAIAgentRegistrationConfig

__all__ = [
    "OpenAIAgentRegistrationConfig",
    "get_default_model",
    "get_default_model_settings",
    "gpt_5_reasoning_settings_required",
    "is_gpt_5_default",
]
__getattr__, __dir__ = lazy(__name__)
