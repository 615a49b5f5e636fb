"""Settings that follow from a model's name, for agents that do not say any.

Only for names given by the agent (or by OPENAI_DEFAULT_MODEL): a `Model` object, or a provider's own default, gets
empty settings, since a setting that a provider does not know makes it refuse the request.
"""

from __future__ import annotations

import os
import re
from typing import Any

from standfast.llm.settings import ModelSettings

_CHAT_ALIAS = re.compile(r"gpt-5(\.\d+)?-chat-latest")
_EFFORTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), effort)
    for pattern, effort in (
        (r"gpt-5(-\d{4}-\d{2}-\d{2})?", "low"),
        (r"gpt-5\.[1-9]\d*(-\d{4}-\d{2}-\d{2})?", "none"),
        (r"gpt-5\.[24]-pro(-\d{4}-\d{2}-\d{2})?", "medium"),
        (r"gpt-5\.4-(mini|nano)(-\d{4}-\d{2}-\d{2})?", "none"),
        (r"gpt-5\.2-codex", "low"),
        (r"gpt-5\.3-codex", "none"),
    )
)
# An effort that a variant does not know is refused by the provider: variants not listed get none.


def get_default_model_settings(model: Any = None) -> ModelSettings:
    """The settings of an agent with this model that says none itself."""
    name = os.environ.get("OPENAI_DEFAULT_MODEL", "").lower() if model is None else model
    if not isinstance(name, str) or not name.startswith("gpt-5") or _CHAT_ALIAS.fullmatch(name):
        return ModelSettings()
    effort = next((effort for pattern, effort in _EFFORTS if pattern.fullmatch(name)), None)
    return ModelSettings(reasoning=None if effort is None else {"effort": effort}, verbosity="low")
