"""What the OpenAI Agents SDK documents as `agents.result`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.runs.loop.made_results import QueueCompleteSentinel as QueueCompleteSentinel
    from ._src.runs.loop.result import RunResult as RunResult, RunResultBase as RunResultBase
    from ._src.runs.loop.run_scope import AgentToolInvocation as AgentToolInvocation
    from ._src.runs.loop.streamed_result import RunResultStreaming as RunResultStreaming

__getattr__, __dir__ = lazy(__name__)
