"""What the OpenAI Agents SDK documents as `agents.exceptions`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.error_handlers import RunErrorDetails
    from ._src.base.errors import (
        AgentsException,
        InputGuardrailTripwireTriggered,
        MaxTurnsExceeded,
        MCPToolCancellationError,
        ModelBehaviorError,
        ModelRefusalError,
        ModelTimeoutError,
        OutputGuardrailTripwireTriggered,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered,
        ToolTimeoutError,
        UserError,
    )

__all__ = [
    "AgentsException",
    "InputGuardrailTripwireTriggered",
    "MCPToolCancellationError",
    "MaxTurnsExceeded",
    "ModelBehaviorError",
    "ModelRefusalError",
    "ModelTimeoutError",
    "OutputGuardrailTripwireTriggered",
    "RunErrorDetails",
    "ToolInputGuardrailTripwireTriggered",
    "ToolOutputGuardrailTripwireTriggered",
    "ToolTimeoutError",
    "UserError",
]
__getattr__, __dir__ = lazy(__name__)
