"""What the OpenAI Agents SDK documents as `agents.guardrail`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.guardrails import (
        GuardrailFunctionOutput as GuardrailFunctionOutput,
        InputGuardrail as InputGuardrail,
        InputGuardrailResult as InputGuardrailResult,
        OutputGuardrail as OutputGuardrail,
        OutputGuardrailResult as OutputGuardrailResult,
        input_guardrail as input_guardrail,
        output_guardrail as output_guardrail,
    )

__getattr__, __dir__ = lazy(__name__)
