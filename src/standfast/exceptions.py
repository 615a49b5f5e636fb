"""What the OpenAI Agents SDK documents as `agents.exceptions`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.error_handlers import RunErrorDetails as RunErrorDetails
    from ._src.base.errors import (
        AgentsException as AgentsException,
        InputGuardrailTripwireTriggered as InputGuardrailTripwireTriggered,
        MaxTurnsExceeded as MaxTurnsExceeded,
        MCPToolCancellationError as MCPToolCancellationError,
        ModelBehaviorError as ModelBehaviorError,
        ModelRefusalError as ModelRefusalError,
        ModelTimeoutError as ModelTimeoutError,
        OutputGuardrailTripwireTriggered as OutputGuardrailTripwireTriggered,
        ToolInputGuardrailTripwireTriggered as ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered as ToolOutputGuardrailTripwireTriggered,
        ToolTimeoutError as ToolTimeoutError,
        UserError as UserError,
    )

__getattr__, __dir__ = lazy(__name__)
