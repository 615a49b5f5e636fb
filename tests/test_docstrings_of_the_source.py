"""Every module, class, function and method of the source that is not private says what it does.

Ruff's rules for this (D1) take everything below a folder with an underscore for private, and ask nothing of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import standfast

SOURCE = Path(standfast.__file__).parent
NAMED_IN_FULL = ("conformance/checks/", "conformance/stateful.py")  # the name of each check is the sentence it proves


def silent_in(node: ast.Module | ast.ClassDef, where: str) -> Iterator[str]:
    """What in a module or class lacks a docstring."""
    for part in node.body:
        if not isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or part.name.startswith("_"):
            continue
        decorators = [ast.unparse(decorator) for decorator in part.decorator_list]
        is_told_elsewhere = any(name == "overload" or name.endswith((".setter", ".deleter")) for name in decorators)
        is_told_elsewhere |= ast.unparse(part.body[-1]) == "..."  # a protocol's, whose class says it
        if ast.get_docstring(part) is None and not is_told_elsewhere:
            yield f"{where}:{part.name}"
        if isinstance(part, ast.ClassDef):
            yield from silent_in(part, f"{where}:{part.name}")


def test_everything_that_is_not_private_has_a_docstring():
    silent = []
    for file in SOURCE.rglob("*.py"):
        where = file.relative_to(SOURCE).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        silent += [] if ast.get_docstring(tree) else [where]
        silent += [] if any(place in where for place in NAMED_IN_FULL) else silent_in(tree, where)
    assert silent == []
