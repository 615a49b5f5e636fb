"""The model of agents that name none, by this process's environment, and the settings that follow from a name."""

from __future__ import annotations

import os

from standfast._src.models.default_models import default_model, gpt_5_reasoning_settings_required, settings_for
from standfast._src.models.interface import Model
from standfast._src.models.model_settings import ModelSettings


def get_default_model() -> str:
    """The model of an agent that names none: `OPENAI_DEFAULT_MODEL`, else what the SDK would take."""
    return default_model(os.environ)


def is_gpt_5_default() -> bool:
    """Whether the model of an agent that names none takes reasoning settings."""
    return gpt_5_reasoning_settings_required(get_default_model())


def get_default_model_settings(model: str | Model | None = None) -> ModelSettings:
    """The settings of an agent with this model that says none itself; None asks about the default model."""
    return settings_for(get_default_model() if model is None else model)
