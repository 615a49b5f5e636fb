"""The `python` blocks of a Markdown page, run in order in one namespace: `python run_blocks.py PAGE`."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
import textwrap
import types
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

HIDDEN = "STANDFAST_HIDDEN_MODULES"
"""Names, with commas between them, that a page cannot import: what would not be there for whoever reads it."""


def blocks(text: str) -> list[tuple[int, str]]:
    """The runnable `python` blocks of a Markdown text, each with the number of its first line.

    `<!-- no-run: why -->` on the line above a block leaves it out. Not a word behind the language: builders of sites do
    not know such a fence, and swallow what follows it.
    """
    found, lines = [], text.splitlines()
    start, language = 0, ""
    for number, line in enumerate(lines, start=1):
        if not start and line.strip().startswith("```"):
            start, language = number + 1, line.strip()[3:]
            if " " in language:
                raise ValueError(f"line {number}: {line.strip()!r} is understood by no builder; name the language only")
        elif start and line.strip() == "```":
            above = lines[start - 3].strip() if start > 2 else ""
            if language == "python" and not above.startswith("<!-- no-run: "):
                found.append((start, textwrap.dedent("\n".join(lines[start - 1 : number - 1]) + "\n")))
            start = 0
    return found


def run_page(page: Path) -> None:
    """Execute the page's blocks; those that use `await` at the top level share one event loop."""
    # A real module, so that dataclasses and pickling find the classes a page defines.
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    with asyncio.Runner() as runner:
        for first, source in blocks(page.read_text(encoding="utf-8")):
            # Lines are moved down to where they stand on the page, so that a traceback points there.
            padded = "\n" * (first - 1) + source
            code = compile(padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(types.FunctionType(code, module.__dict__)())
            else:  # outside the loop, so that a page may show asyncio.run and run_sync
                exec(code, module.__dict__)


class Visible(PathFinder):
    """Finds what is installed, but for the modules that are hidden."""

    hidden = frozenset(os.environ.get(HIDDEN, "").split(","))

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module, or not."""
        if fullname.partition(".")[0] in cls.hidden:
            return None
        return super().find_spec(fullname, path, target)


if __name__ == "__main__":
    if HIDDEN in os.environ:
        sys.meta_path[sys.meta_path.index(PathFinder)] = Visible
    run_page(Path(sys.argv[1]))
