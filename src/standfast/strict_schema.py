"""What the OpenAI Agents SDK documents as `agents.strict_schema`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.tools.strict_schema import ensure_strict_json_schema as ensure_strict_json_schema

__getattr__, __dir__ = lazy(__name__)
