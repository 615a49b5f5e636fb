"""What the OpenAI Agents SDK documents as `agents.run_error_handlers`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .agents.error_handlers import (
        RunErrorData,
        RunErrorHandler,
        RunErrorHandlerInput,
        RunErrorHandlerResult,
        RunErrorHandlers,
    )

__all__ = ["RunErrorData", "RunErrorHandler", "RunErrorHandlerInput", "RunErrorHandlerResult", "RunErrorHandlers"]
__getattr__, __dir__ = lazy(__name__)
