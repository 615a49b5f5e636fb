"""What the OpenAI Agents SDK documents as `agents.logger`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.base.logs import (
        log_model_action_debug as log_model_action_debug,
        log_model_action_error as log_model_action_error,
        log_model_action_warning as log_model_action_warning,
        log_model_and_tool_action_debug as log_model_and_tool_action_debug,
        log_model_and_tool_action_error as log_model_and_tool_action_error,
        log_model_and_tool_action_warning as log_model_and_tool_action_warning,
        log_model_and_tool_data_warning as log_model_and_tool_data_warning,
        log_tool_action_debug as log_tool_action_debug,
        log_tool_action_error as log_tool_action_error,
        log_tool_action_warning as log_tool_action_warning,
        logger as logger,
    )

__getattr__, __dir__ = lazy(__name__)
