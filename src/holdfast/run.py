"""What the OpenAI Agents SDK documents as `agents.run`.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from .run_config import CallModelData, CallModelInputFilter, ModelInputData, RunConfig
    from .runner import Runner

__all__ = ["CallModelData", "CallModelInputFilter", "ModelInputData", "RunConfig", "Runner"]
__getattr__, __dir__ = lazy(__name__)
