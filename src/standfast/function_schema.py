"""What the OpenAI Agents SDK documents as `agents.function_schema`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .tools.docstrings import DocstringStyle
    from .tools.documentation import FuncDocumentation, generate_func_documentation
    from .tools.schema import FuncSchema, function_schema

__all__ = ["DocstringStyle", "FuncDocumentation", "FuncSchema", "function_schema", "generate_func_documentation"]
__getattr__, __dir__ = lazy(__name__)
