"""A program as a user of the OpenAI Agents SDK writes it, loaded as it is, or with one import changed.

Changed is nothing but the name `agents` in import statements. What a program returns is then written down in words that
do not depend on the library: results, items, events and errors by what a user can see of them.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import agents as sdk
import agents.testing  # so that `sdk.testing` is there

PROGRAMS = Path(__file__).parent / "programs"
SDK = "agents"


class OneImport(ast.NodeTransformer):
    """`from agents.x import y` becomes `from standfast.x import y`; a bare `import agents` keeps its name."""

    def __init__(self, library: str) -> None:
        self.library = library

    def renamed(self, module: str) -> str:
        root, dot, rest = module.partition(".")
        return f"{self.library}{dot}{rest}" if root == SDK else module

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        node.module = self.renamed(node.module or "")
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for name in node.names:
            if name.name == SDK:
                name.name, name.asname = self.library, SDK
        return node


@cache
def load(program: str, library: str) -> ModuleType:
    """The program as a module, with `library` in place of `agents`."""
    file = PROGRAMS / f"{program}.py"
    tree = ast.fix_missing_locations(OneImport(library).visit(ast.parse(file.read_text(encoding="utf-8"))))
    module = ModuleType(f"compat_{library}_{program}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # annotations are looked up where their class says it lives
    exec(compile(tree, file, "exec"), vars(module))
    return module


def examples() -> list[str]:
    """Every example of every program, as `program.example`."""
    found = []
    for file in sorted(PROGRAMS.glob("*.py")):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        functions = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        found += [f"{file.stem}.{name.removeprefix('example_')}" for name in functions if name.startswith("example_")]
    return found


# --- what a user sees ------------------------------------------------------------------------------------------------


def seen(value: Any) -> Any:
    """A value in plain words: the same for two libraries that behave the same."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): seen(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [seen(inner) for inner in value]
    if isinstance(value, BaseException):
        return f"raised {caught_as(value)}"
    if hasattr(value, "new_items") and hasattr(value, "final_output"):
        return run_result(value)
    if hasattr(value, "model_dump"):
        return seen(value.model_dump(mode="json", exclude_unset=True))
    if dataclasses.is_dataclass(value):
        return {type(value).__name__: {f.name: seen(getattr(value, f.name)) for f in dataclasses.fields(value)}}
    return f"a {type(value).__name__}"


def caught_as(error: BaseException) -> str:
    """The most exact name that a program written for the SDK can catch this error by."""
    for kind in type(error).__mro__:
        ours = kind.__module__.partition(".")[0] == "standfast"
        if not ours or hasattr(sdk, kind.__name__) or hasattr(sdk.testing, kind.__name__):
            return kind.__name__
    raise AssertionError("every exception is at least an Exception")


def run_result(result: Any) -> dict[str, Any]:
    """What a result shows."""
    usage = result.context_wrapper.usage
    return {
        "output": seen(result.final_output),
        "output kind": type(result.final_output).__name__,
        "items": [(type(item).__name__, item.type, item.agent.name) for item in result.new_items],
        "as input": [seen(item.to_input_item()) for item in result.new_items if item.type != "tool_approval_item"],
        "last agent": result.last_agent.name,
        "requests": usage.requests,
        "responses": [response.response_id for response in result.raw_responses],
        "replay": seen(result.to_input_list()),
        "asks for": [item.call_id for item in result.interruptions],
    }


def differences(theirs: Any, ours: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Where the two differ, by path, with both values."""
    if type(theirs) is type(ours) is dict:
        both = {**theirs, **ours}
        parts = [(f"{path}.{key}", theirs.get(key, MISSING), ours.get(key, MISSING)) for key in both]
    elif type(theirs) is type(ours) is list and len(theirs) == len(ours):
        parts = [(f"{path}[{place}]", *pair) for place, pair in enumerate(zip(theirs, ours, strict=True))]
    else:
        return {} if theirs == ours and type(theirs) is type(ours) else {path: (theirs, ours)}
    found: dict[str, tuple[Any, Any]] = {}
    for name, one, other in parts:
        found |= differences(one, other, name)
    return found


MISSING = "(not there)"
