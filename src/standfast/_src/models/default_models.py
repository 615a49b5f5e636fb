"""The default model, and settings derived from a model's name.

Only names (given by the run, the agent or OPENAI_DEFAULT_MODEL) have derived settings. A `Model` object gets empty
settings, since a provider refuses a request with an unknown setting. For the same reason a name that no pattern knows
gets no reasoning effort.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from standfast._src.models.model_settings import ModelSettings

if TYPE_CHECKING:
    from standfast._src.models.interface import Model

OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME = "OPENAI_DEFAULT_MODEL"
"""Environment variable with the model of agents without their own."""

DEFAULT_MODEL = "gpt-5.6-luna"
_CHAT_ALIAS = re.compile(r"gpt-5(\.[1-3])?-chat-latest")
_EFFORTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern + (r"(-\d{4}-\d{2}-\d{2})?" if dated else "")), effort)
    for pattern, effort, dated in (
        (r"gpt-5", "low", True),
        (r"gpt-5\.[12456]", "none", True),
        (r"gpt-5\.[24]-pro", "medium", True),
        (r"gpt-5\.4-(mini|nano)", "none", True),
        (r"gpt-5\.6-(sol|terra|luna)", "none", True),
        (r"gpt-5\.2-codex", "low", False),
        (r"gpt-5\.3-codex", "none", False),
    )
)
# An effort that a variant does not know is refused by the provider: variants not listed get none.


def default_model(environment: Mapping[str, str]) -> str:
    """Return the model of an agent without one: `OPENAI_DEFAULT_MODEL`, else the SDK's default."""
    return environment.get(OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME, DEFAULT_MODEL).lower()


def gpt_5_reasoning_settings_required(model_name: str) -> bool:
    """Return whether a model takes reasoning settings: the GPT-5 family except its chat aliases."""
    return model_name.startswith("gpt-5") and _CHAT_ALIAS.fullmatch(model_name) is None


def settings_for(model: str | Model | None) -> ModelSettings:
    """Return the settings derived from a GPT-5 name; empty settings for any other name and for a `Model` object."""
    if not isinstance(model, str) or not gpt_5_reasoning_settings_required(model):
        return ModelSettings()
    effort = next((effort for pattern, effort in _EFFORTS if pattern.fullmatch(model)), None)
    return ModelSettings(reasoning=None if effort is None else {"effort": effort}, verbosity="low")
