"""What the OpenAI Agents SDK documents as `agents.lifecycle`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.context import AgentHookContext as AgentHookContext
    from ._src.agents.hooks import (
        AgentHooks as AgentHooks,
        AgentHooksBase as AgentHooksBase,
        RunHooks as RunHooks,
        RunHooksBase as RunHooksBase,
        TAgent as TAgent,
    )

__getattr__, __dir__ = lazy(__name__)
