"""What a function's docstring says, as the SDK's `function_schema` module gives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from standfast._src.tools.docstrings import DocstringStyle, read_docstring


@dataclass
class FuncDocumentation:
    """A function's name, and what its docstring says of it and of its parameters."""

    name: str
    description: str | None
    param_descriptions: dict[str, str] | None


def generate_func_documentation(func: Callable[..., Any], style: DocstringStyle | None = None) -> FuncDocumentation:
    """Read a function's docstring, in this style or in the one it looks like."""
    said = read_docstring(inspect.getdoc(func), style)
    return FuncDocumentation(func.__name__, said.description, said.parameters or None)
