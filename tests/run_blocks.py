"""The `python` blocks of a Markdown page, run in order in one namespace: `python run_blocks.py PAGE`."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
import textwrap
import types
from pathlib import Path


def blocks(text: str) -> list[tuple[int, str]]:
    """The runnable `python` blocks of a Markdown text, each with the number of its first line."""
    found, lines = [], text.splitlines()
    start = None
    for number, line in enumerate(lines, start=1):
        if start is None and line.strip().startswith("```"):
            start = (number + 1, line.strip()[3:].split())
        elif start is not None and line.strip() == "```":
            first, words = start
            if words[:1] == ["python"] and "no-run" not in words:
                found.append((first, textwrap.dedent("\n".join(lines[first - 1 : number - 1]) + "\n")))
            start = None
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


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
