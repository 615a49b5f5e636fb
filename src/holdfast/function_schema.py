"""Schemas of functions, under the path the OpenAI Agents SDK documents."""

from __future__ import annotations

from .tools.docstrings import DocstringStyle
from .tools.schema import FuncSchema, function_schema

__all__ = ["DocstringStyle", "FuncSchema", "function_schema"]
