"""What the OpenAI Agents SDK documents as `agents.models.default_models`.

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
        OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME as OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME,
        gpt_5_reasoning_settings_required as gpt_5_reasoning_settings_required,
    )

__getattr__, __dir__ = lazy(__name__)
