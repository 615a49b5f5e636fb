"""Documentation of a function from its docstring, in the form of the SDK's `function_schema` module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from standfast._src.tools.docstrings import DocstringStyle, read_docstring


@dataclass
class FuncDocumentation:
    """Name of a function, and the descriptions from its docstring."""

    name: str
    description: str | None
    param_descriptions: dict[str, str] | None


def generate_func_documentation(func: Callable[..., Any], style: DocstringStyle | None = None) -> FuncDocumentation:
    """Read a function's docstring, in the given style or in the detected one."""
    said = read_docstring(inspect.getdoc(func), style)
    return FuncDocumentation(func.__name__, said.description, said.parameters or None)
