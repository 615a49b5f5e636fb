"""What the OpenAI Agents SDK documents as `agents.result`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.runs.loop.result import RunResult, RunResultBase, RunResultStreaming
    from ._src.runs.loop.run_scope import AgentToolInvocation

__all__ = ["AgentToolInvocation", "RunResult", "RunResultBase", "RunResultStreaming"]
__getattr__, __dir__ = lazy(__name__)
