"""What the OpenAI Agents SDK documents as `agents.run_error_handlers`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.error_handlers import (
        RunErrorData as RunErrorData,
        RunErrorHandler as RunErrorHandler,
        RunErrorHandlerInput as RunErrorHandlerInput,
        RunErrorHandlerResult as RunErrorHandlerResult,
        RunErrorHandlers as RunErrorHandlers,
    )

__getattr__, __dir__ = lazy(__name__)
