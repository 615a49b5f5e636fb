"""What the OpenAI Agents SDK documents as `agents.retry`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.retry_policies import retry_policies as retry_policies
    from ._src.models.retry import (
        ModelRetryAdvice as ModelRetryAdvice,
        ModelRetryAdviceRequest as ModelRetryAdviceRequest,
        ModelRetryBackoffSettings as ModelRetryBackoffSettings,
        ModelRetryNormalizedError as ModelRetryNormalizedError,
        ModelRetrySettings as ModelRetrySettings,
        RetryDecision as RetryDecision,
        RetryPolicy as RetryPolicy,
        RetryPolicyContext as RetryPolicyContext,
    )

__getattr__, __dir__ = lazy(__name__)
