"""Id of a program's registration at OpenAI, and its sources.

standfast sends no traces to OpenAI, so there the id registers nothing; it is put on the metadata of a program's traces,
which go where OpenTelemetry sends them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standfast._src.base.errors import SettingTypeError
from standfast._src.base.type_names import describe_type

OPENAI_HARNESS_ID_TRACE_METADATA_KEY = "agent_harness_id"
"""The key of the id in the metadata of a trace."""

_VARIABLE = "OPENAI_AGENT_HARNESS_ID"


@dataclass(frozen=True)
class OpenAIAgentRegistrationConfig:
    """Registration of a program: the id, or None to use the next source."""

    harness_id: str | None


@dataclass(frozen=True)
class ResolvedOpenAIAgentRegistrationConfig:
    """The id in force."""

    harness_id: str


class _Default:
    config: OpenAIAgentRegistrationConfig | None = None


def set_default_openai_agent_registration(config: OpenAIAgentRegistrationConfig | dict[str, Any] | None) -> None:
    """Set the registration of providers without their own; None restores the environment's."""
    _Default.config = None if config is None else _read(config)


set_default_openai_agent_registration_config = set_default_openai_agent_registration
"""`set_default_openai_agent_registration` under the name it has in `agents.models.openai_agent_registration`."""


def set_default_openai_harness(harness_id: str | None) -> None:
    """Set the id of providers without their own; None restores the environment's."""
    _Default.config = None if harness_id is None else OpenAIAgentRegistrationConfig(harness_id)


def get_default_openai_agent_registration_config() -> OpenAIAgentRegistrationConfig | None:
    """Return the registration set for the process."""
    return _Default.config


def resolve_openai_agent_registration_config(
    config: OpenAIAgentRegistrationConfig | dict[str, Any] | None,
) -> ResolvedOpenAIAgentRegistrationConfig | None:
    """Resolve the id: `config`, then the process's, then OPENAI_AGENT_HARNESS_ID; None if all are unset."""
    given = None if config is None else _read(config).harness_id
    default = None if _Default.config is None else _Default.config.harness_id
    for candidate in (given, default, os.environ.get(_VARIABLE)):
        if candidate is not None and candidate.strip():
            return ResolvedOpenAIAgentRegistrationConfig(candidate.strip())
    return None


def resolve_openai_harness_id_for_model_provider(model_provider: object) -> str | None:
    """Return the id of a provider, else the process's or the environment's."""
    for provider in (model_provider, getattr(model_provider, "openai_provider", None)):
        own = getattr(getattr(provider, "agent_registration", None), "harness_id", None)
        if isinstance(own, str) and own.strip():
            return own
    found = resolve_openai_agent_registration_config(None)
    return None if found is None else found.harness_id


def add_openai_harness_id_to_metadata(
    metadata: dict[str, Any] | None, *, model_provider: object
) -> dict[str, Any] | None:
    """Add the id to a trace's metadata, unless already present or unknown."""
    harness_id = resolve_openai_harness_id_for_model_provider(model_provider)
    if harness_id is None or (metadata is not None and OPENAI_HARNESS_ID_TRACE_METADATA_KEY in metadata):
        return metadata
    return {**(metadata or {}), OPENAI_HARNESS_ID_TRACE_METADATA_KEY: harness_id}


def _read(config: OpenAIAgentRegistrationConfig | Mapping[str, Any]) -> OpenAIAgentRegistrationConfig:
    if isinstance(config, OpenAIAgentRegistrationConfig):
        return config
    if isinstance(config, Mapping) and config.keys() <= {"harness_id"}:
        return OpenAIAgentRegistrationConfig(config.get("harness_id"))
    raise SettingTypeError(
        f"{describe_type(config)} is no registration", "Give OpenAIAgentRegistrationConfig(harness_id=...)."
    )
