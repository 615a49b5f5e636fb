"""Reader of the SDK's own tests: why a test says nothing about the SDK's public behaviour, from its source alone.

No test is run for it, and what a test's run showed is not known here. A test is followed through the functions,
classes, fixtures and modules of the test tree that it uses. What it touches of the SDK decides: a private name, a
module of the loop's internals, a patched module or library, or a thing that standfast has not (with the row of the
guide that says so).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from standfast._src.exports.absent import absent, absent_module

PRIVATE = "uses the SDK's private name {}"
INTERNAL = "uses {}, a module of the SDK's own loop"
PATCHED = "replaces {} inside the SDK's modules"
LIBRARY = "replaces {} and so says which function of a library the SDK calls"
LIBRARIES = ("websockets.", "httpx.", "openai.")
ABSENT = "is about {}, which standfast has not (move guide: What is not there)"
INTERNAL_MODULES = ("run_internal", "util")
OTHERS_PRIVATE = {"_asdict", "_replace", "_fields", "_exit", "_mock_name", "_spec_class", "_value_", "_name_"}
"""Names with an underscore that belong to Python or its libraries."""


@dataclass
class Module:
    """One file of the test tree: what it defines, what it imports, which private attributes are its own."""

    name: str
    defined: dict[str, ast.AST] = field(default_factory=dict)
    sdk: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Imported from the SDK: the local name, with module and name."""
    tests: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Imported from the test tree."""
    own_private: set[str] = field(default_factory=set)


def sdk_reason(module: str, name: str | None) -> str | None:
    """Return why a name of the SDK is not public or not here; None for a public name."""
    below = module.partition(".")[2]
    parts = [*below.split("."), *([name] if name else [])]
    shown = ".".join(part for part in (module, name) if part)
    if any(part.startswith("_") and not part.startswith("__") for part in parts):
        return PRIVATE.format(shown)
    if parts[0] in INTERNAL_MODULES:
        return INTERNAL.format(f"{module}")
    why = absent_module(below) or (absent(below, name) if name else None)
    if why is not None:
        return ABSENT.format(why.partition("standfast has no ")[2].partition(",")[0])
    return None


class Reader:
    """The test tree, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}
        self._reasons: dict[tuple[str, str], frozenset[str]] = {}

    def module(self, name: str) -> Module | None:
        """Read a module of the test tree, by its dotted name; None where there is no such file."""
        if name not in self._modules:
            path = self.root / Path(*name.split("."))
            file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
            self._modules[name] = self._read(name, file) if file.is_file() else None
        return self._modules[name]

    def _read(self, name: str, file: Path) -> Module:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found = Module(name)
        package = name.split(".")[: None if file.name == "__init__.py" else -1]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                target = node.module or ""
                if node.level:
                    base = package[: len(package) - node.level + 1]
                    target = ".".join([*base, *([target] if target else [])])
                for alias in node.names:
                    kind = found.sdk if target.split(".")[0] == "agents" else found.tests
                    kind[alias.asname or alias.name] = (target, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == "agents":
                        found.sdk[alias.asname or alias.name.split(".")[0]] = (
                            (alias.name, None) if alias.asname else ("agents", None)
                        )
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.startswith("_"):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    found.own_private.add(node.attr)
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        found.own_private.add(inner.name)
                    elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                        found.own_private.add(inner.target.id)
        for node in tree.body:
            for defined in names_defined(node):
                found.defined[defined] = node
        return found

    def reasons(self, module: Module, name: str, walking: frozenset[tuple[str, str]] = frozenset()) -> frozenset[str]:
        """Return why the name's definition, with all that it uses of the test tree, is not about public things."""
        key = (module.name, name)
        if key in self._reasons:
            return self._reasons[key]
        if key in walking or name not in module.defined:
            return frozenset()
        found = self.reasons_of_node(module, module.defined[name], walking | {key})
        if not walking:
            self._reasons[key] = found
        return found

    def reasons_of_node(
        self, module: Module, node: ast.AST, walking: frozenset[tuple[str, str]] = frozenset()
    ) -> frozenset[str]:
        """Return the reasons of one piece of source."""
        found = set(self._direct(module, node))
        for used in names_used(node):
            if used in module.defined and module.defined[used] is not node:
                found |= self.reasons(module, used, walking)
            elif used in module.tests:
                where, there = module.tests[used]
                other = self.module(where)
                if other is not None and there is not None:
                    found |= self.reasons(other, there, walking)
        return frozenset(found)

    def _direct(self, module: Module, node: ast.AST) -> Iterator[str]:
        # Names of types in annotations say nothing of what a test does; ast.walk sees them all the same, and a private
        # type's name in an annotation is rare.
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in module.sdk:
                reason = sdk_reason(*module.sdk[inner.id])
                if reason:
                    yield reason
            elif isinstance(inner, ast.Attribute):
                yield from self._of_attribute(module, inner)
            elif isinstance(inner, ast.Call):
                yield from self._of_call(module, inner)
            elif isinstance(inner, ast.ImportFrom) and (inner.module or "").split(".")[0] == "agents":
                for alias in inner.names:
                    reason = sdk_reason(inner.module or "", alias.name)
                    if reason:
                        yield reason

    def _of_attribute(self, module: Module, node: ast.Attribute) -> Iterator[str]:
        name = node.attr
        if isinstance(node.value, ast.Name) and node.value.id in module.sdk:
            where, what = module.sdk[node.value.id]
            if what is None:
                reason = sdk_reason(where, name)
                if reason:
                    yield reason
                return
        if not name.startswith("_") or name.startswith("__") or name in OTHERS_PRIVATE:
            return
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return
        others = (self.module(where) for where, _ in module.tests.values())
        if name in module.own_private or any(other is not None and name in other.own_private for other in others):
            return
        yield PRIVATE.format(f".{name}")

    def _of_call(self, module: Module, node: ast.Call) -> Iterator[str]:
        for keyword in node.keywords:
            if keyword.arg and keyword.arg.startswith("_"):
                yield PRIVATE.format(f"{keyword.arg}=")
        called = ast.unparse(node.func)
        if not (called.endswith(("patch", "setattr", "patch.object", "delattr", "patch.dict")) and node.args):
            return
        target = node.args[0]
        if isinstance(target, ast.Constant) and isinstance(target.value, str):
            if target.value.startswith("agents."):
                yield PATCHED.format(target.value)
            elif target.value.startswith(LIBRARIES):
                yield LIBRARY.format(target.value)
            return
        attribute = node.args[1] if len(node.args) > 1 else None
        text = attribute.value if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str) else ""
        if text.startswith("_") and not text.startswith("__") and text not in module.own_private:
            yield PRIVATE.format(f".{text}")
        root = target
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in module.sdk:
            where, what = module.sdk[root.id]
            if is_module(where, what):
                yield PATCHED.format(f"{where}.{what}" if what else where)


@cache
def is_module(where: str, what: str | None) -> bool:
    """Tell whether an imported name of the SDK is a module (read from its spelling: modules are written small)."""
    return what is None or (what.islower() and what.replace("_", "").isalpha() and _in_modules(where, what))


def _in_modules(where: str, what: str) -> bool:
    return (where, what) in {
        ("agents", "run"), ("agents", "tool"), ("agents", "result"), ("agents", "agent"), ("agents.tracing", "setup"),
        ("agents", "logger"), ("agents", "util"), ("agents", "tracing"), ("agents", "repl"), ("agents", "guardrail"),
        ("agents.realtime", "session"), ("agents.models", "openai_responses"), ("agents.realtime", "openai_realtime"),
    }  # fmt: skip


def names_defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for inner in ast.walk(target):
                if isinstance(inner, ast.Name):
                    yield inner.id


def names_used(node: ast.AST) -> set[str]:
    """Return the names that a piece of source reads, its parameters (fixtures) among them."""
    used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            used |= {argument.arg for argument in [*inner.args.args, *inner.args.kwonlyargs]}
            # usefixtures("name") and the like
        if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith("usefixtures"):
            used |= {one.value for one in inner.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return used


def read_file(reader: Reader, path: str) -> dict[str, list[str]]:
    """Return the reasons of each test of a file; a test without a reason has an empty list."""
    module = reader.module(path.removesuffix(".py").replace("/", "."))
    assert module is not None, path
    autouse = [
        name for name, node in module.defined.items()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("autouse=True" in ast.unparse(one) for one in node.decorator_list)
    ]  # fmt: skip
    always = frozenset().union(*(reader.reasons(module, name) for name in autouse))
    found = {}
    for name, node in module.defined.items():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name.startswith("test"):
            found[name] = sorted(always | reader.reasons(module, name))
        elif isinstance(node, ast.ClassDef) and name.startswith("Test"):
            helpers = [
                one for one in node.body
                if not (isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test"))
            ]  # fmt: skip
            shared = always.union(*(reader.reasons_of_node(module, one) for one in helpers))
            for one in node.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test"):
                    found[f"{name}::{one.name}"] = sorted(shared | reader.reasons_of_node(module, one))
    return found


def read_files(root: str, *files: str) -> dict[str, list[str]]:
    """Return the reasons of each test function of these files, by `file::function`."""
    reader = Reader(Path(root))
    return {f"{file}::{name}": reasons for file in files for name, reasons in read_file(reader, file).items()}
