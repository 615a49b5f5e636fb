"""Which model is asked where none is named, and the settings that follow from a model's name.

Only for names (given by the run, the agent or OPENAI_DEFAULT_MODEL): a `Model` object gets empty settings, since a
setting that a provider does not know makes it refuse the request. The same holds for what is done by default with names
that no pattern knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from standfast._src.models.model_settings import ModelSettings

if TYPE_CHECKING:
    from standfast._src.models.interface import Model

OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME = "OPENAI_DEFAULT_MODEL"
"""The environment variable that names the model of agents that name none."""

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
    """The model of an agent that names none: `OPENAI_DEFAULT_MODEL`, else what the SDK would take."""
    return environment.get(OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME, DEFAULT_MODEL).lower()


def gpt_5_reasoning_settings_required(model_name: str) -> bool:
    """Whether a model of this name takes reasoning settings: those of the GPT-5 family, less its chat aliases."""
    return model_name.startswith("gpt-5") and _CHAT_ALIAS.fullmatch(model_name) is None


def settings_for(model: str | Model | None) -> ModelSettings:
    """The settings that follow from this model, if it is a name."""
    if not isinstance(model, str) or not gpt_5_reasoning_settings_required(model):
        return ModelSettings()
    effort = next((effort for pattern, effort in _EFFORTS if pattern.fullmatch(model)), None)
    return ModelSettings(reasoning=None if effort is None else {"effort": effort}, verbosity="low")
