"""What the OpenAI Agents SDK documents as `agents.models`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.default_models import (
        get_default_model as get_default_model,
        get_default_model_settings as get_default_model_settings,
        is_gpt_5_default as is_gpt_5_default,
    )
    from standfast._src.models.default_models import (
        gpt_5_reasoning_settings_required as gpt_5_reasoning_settings_required,
    )
    from standfast._src.models.providers.registration import (
        OpenAIAgentRegistrationConfig as OpenAIAgentRegistrationConfig,
    )

__getattr__, __dir__ = lazy(__name__)
