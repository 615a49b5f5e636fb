"""Default model by this process's environment, and settings derived from a model's name."""

from __future__ import annotations

import os

from standfast._src.models.default_models import default_model, gpt_5_reasoning_settings_required, settings_for
from standfast._src.models.interface import Model
from standfast._src.models.model_settings import ModelSettings


def get_default_model() -> str:
    """Return the model of an agent without one: `OPENAI_DEFAULT_MODEL`, else the SDK's default."""
    return default_model(os.environ)


def is_gpt_5_default() -> bool:
    """Return whether the default model takes reasoning settings."""
    return gpt_5_reasoning_settings_required(get_default_model())


def get_default_model_settings(model: str | Model | None = None) -> ModelSettings:
    """Return the settings of an agent without its own, by model; None means the default model."""
    return settings_for(get_default_model() if model is None else model)
