"""What the OpenAI Agents SDK documents as `agents.guardrail`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.guardrails import (
        GuardrailFunctionOutput,
        InputGuardrail,
        InputGuardrailResult,
        OutputGuardrail,
        OutputGuardrailResult,
        input_guardrail,
        output_guardrail,
    )

__all__ = [
    "GuardrailFunctionOutput",
    "InputGuardrail",
    "InputGuardrailResult",
    "OutputGuardrail",
    "OutputGuardrailResult",
    "input_guardrail",
    "output_guardrail",
]
__getattr__, __dir__ = lazy(__name__)
