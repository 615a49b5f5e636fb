"""What the OpenAI Agents SDK documents as `agents.lifecycle`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .agents.hooks import AgentHooks, AgentHooksBase, RunHooks, RunHooksBase, TAgent

__all__ = ["AgentHooks", "AgentHooksBase", "RunHooks", "RunHooksBase", "TAgent"]
__getattr__, __dir__ = lazy(__name__)
