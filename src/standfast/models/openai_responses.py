"""What the OpenAI Agents SDK documents as `agents.models.openai_responses`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.models.providers.headers import _HEADERS_OVERRIDE as _HEADERS_OVERRIDE
    from standfast._src.models.providers.responses_converter import (
        ConvertedTools as ConvertedTools,
        Converter as Converter,
    )
    from standfast._src.models.providers.responses_model import OpenAIResponsesModel as OpenAIResponsesModel

__getattr__, __dir__ = lazy(__name__)
