"""What the OpenAI Agents SDK documents as `agents.models.openai_agent_registration`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.models.providers.registration import (
        OPENAI_HARNESS_ID_TRACE_METADATA_KEY as OPENAI_HARNESS_ID_TRACE_METADATA_KEY,
        OpenAIAgentRegistrationConfig as OpenAIAgentRegistrationConfig,
        ResolvedOpenAIAgentRegistrationConfig as ResolvedOpenAIAgentRegistrationConfig,
        add_openai_harness_id_to_metadata as add_openai_harness_id_to_metadata,
        get_default_openai_agent_registration_config as get_default_openai_agent_registration_config,
        resolve_openai_agent_registration_config as resolve_openai_agent_registration_config,
        resolve_openai_harness_id_for_model_provider as resolve_openai_harness_id_for_model_provider,
        set_default_openai_agent_registration_config as set_default_openai_agent_registration_config,
    )

__getattr__, __dir__ = lazy(__name__)
