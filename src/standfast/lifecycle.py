"""What the OpenAI Agents SDK documents as `agents.lifecycle`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.context import AgentHookContext
    from ._src.agents.hooks import AgentHooks, AgentHooksBase, RunHooks, RunHooksBase, TAgent

__all__ = ["AgentHookContext", "AgentHooks", "AgentHooksBase", "RunHooks", "RunHooksBase", "TAgent"]
__getattr__, __dir__ = lazy(__name__)
