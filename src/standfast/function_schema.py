"""What the OpenAI Agents SDK documents as `agents.function_schema`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.tools.docstrings import DocstringStyle as DocstringStyle
    from ._src.tools.documentation import (
        FuncDocumentation as FuncDocumentation,
        generate_func_documentation as generate_func_documentation,
    )
    from ._src.tools.schema import FuncSchema as FuncSchema, function_schema as function_schema

__getattr__, __dir__ = lazy(__name__)
