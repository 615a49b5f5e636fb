"""Carry out `tools/rename.toml`: move modules, rename what they define, and rewrite everything that names them.

    python tools/rename.py --check     # say what would be refused, change nothing
    python tools/rename.py             # do it; then `./dev names` writes the generated modules
    python tools/rename.py --rows      # print rows for strings that the map does not list yet

The map is what a person reviews. This script adds nothing to it: a name is rewritten where it is imported, a string
only if the map lists it under its file. `tools/rename_proof.py` compares the result with the old tree and does not
use this script. Run it on a clean checkout; run it again on a branch that was made before the move.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/standfast/"
CODE = ("src", "tests", "tools", "bench", "examples")
OWN = {"tools/rename.py", "tools/rename_proof.py", "tools/rename.toml"}
TEXTS = {".md", ".toml", ".yml", ".yaml", ".txt", ".html", ".js", ".cff"}
DOTTED = re.compile(r"(?<![\w./-])(standfast|tests)((?:\.[A-Za-z_]\w*)+)")
PATH = re.compile(
    r"(?<![\w.-])(src/standfast/|tests/|standfast/)?((?:[a-z_][a-z_0-9]*/)+)([a-z_0-9]+\.(?:py|lua|sql|md))?(?![\w/])"
)
WIDTH = 120


class Refused(SystemExit):
    """The map does not fit this checkout; nothing was changed."""


class Edit(NamedTuple):
    """New text for a range of bytes of a file."""

    start: int
    end: int
    text: str


class Map:
    """The map, with the questions that rewriting asks of it."""

    def __init__(self, root: Path, data: dict[str, Any]) -> None:
        self.root = root
        self.modules: dict[str, str] = data["modules"]
        self.packages: dict[str, str] = data["packages"]
        self.tests: dict[str, str] = data["tests"]
        self.public: set[str] = set(data["public"])
        self.outside: dict[str, str] = data["outside"]
        self.names: dict[str, dict[str, str]] = data["names"]
        self.everywhere: dict[str, str] = data["everywhere"]
        self.in_file: dict[str, dict[str, str]] = data["in_file"]
        self.strings: dict[str, dict[str, str]] = data["strings"]
        self.keep: dict[str, list[str]] = data["keep"]
        self.edits: list[dict[str, str]] = data["edits"]
        self.loggers: set[str] = set(data["frozen"]["loggers"])

    @cached_property
    def files(self) -> list[str]:
        """Every file of the checkout that is tracked, or new and not ignored."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        found = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout.splitlines()
        return sorted(name for name in set(found) if (self.root / name).is_file() and name not in OWN)

    @cached_property
    def file_set(self) -> set[str]:
        """The same, to look one up."""
        return set(self.files)

    @cached_property
    def folders(self) -> set[str]:
        """Every folder that has a file."""
        return {parent.as_posix() for name in self.files for parent in Path(name).parents}

    @cached_property
    def old_modules(self) -> dict[str, str]:
        """Every module below `standfast` today, with its file."""
        found = {}
        for name in self.files:
            if name.startswith(SOURCE) and name.endswith(".py"):
                module = name.removeprefix(SOURCE).removesuffix(".py").replace("/", ".")
                found[module.removesuffix(".__init__")] = name
        return found

    @cached_property
    def old_tests(self) -> set[str]:
        """Every module and package below `tests` today, dotted."""
        modules = {
            name[6:-3].replace("/", ".") for name in self.files if name.startswith("tests/") and name.endswith(".py")
        }
        return modules | {module.rpartition(".")[0] for module in modules if "." in module}

    def moved(self, module: str) -> str:
        """The new dotted name of a module below `standfast`; the same if it stays."""
        parts = module.split(".")
        for count in range(len(parts), 0, -1):
            if (head := ".".join(parts[:count])) in self.modules:
                return ".".join([self.modules[head], *parts[count:]])
        return module

    def moved_test(self, path: str) -> str:
        """The new path below `tests` of a file or folder there, without its ending."""
        parts = path.split("/")
        for count in range(len(parts), 0, -1):
            if (head := "/".join(parts[:count])) in self.tests:
                return "/".join([self.tests[head], *parts[count:]]).lstrip("/")
        return path

    def new_file(self, name: str) -> str:
        """Where a file of the checkout is afterwards."""
        if name.startswith(SOURCE):
            inner = Path(name.removeprefix(SOURCE))
            if inner.suffix == ".py" and inner.stem != "__init__":
                return SOURCE + self.moved(".".join(inner.with_suffix("").parts)).replace(".", "/") + ".py"
            if len(inner.parts) > 1:
                return SOURCE + self.moved(".".join(inner.parent.parts)).replace(".", "/") + "/" + inner.name
        if name.startswith("tests/"):
            inner = Path(name.removeprefix("tests/"))
            if inner.suffix == ".py" and inner.stem != "__init__":
                return "tests/" + self.moved_test(inner.with_suffix("").as_posix()) + ".py"
            if len(inner.parts) > 1:
                return "tests/" + self.moved_test(inner.parent.as_posix()) + "/" + inner.name
        return name

    def reference(self, module: str, file: str) -> str:
        """How a file names a module below `standfast` afterwards: by its public path where there is one."""
        if not file.startswith(SOURCE) and module in self.public:
            return module
        if file.startswith(("docs/", "examples/", "README")) and module in self.outside:
            return self.outside[module]
        return self.moved(module)

    def dotted(self, text: str, file: str) -> str | None:
        """The new form of `standfast.a.b.Name` or `tests.a.b.name`; None if nothing of it moves."""
        root, *parts = text.split(".")
        if text in self.loggers:
            return None
        for count in range(len(parts), 0, -1):
            head = ".".join(parts[:count])
            if root == "standfast" and head in self.old_modules:
                new, rest = self.reference(head, file), parts[count:]
                if rest:
                    rest[0] = self.names.get(head, {}).get(rest[0], self.everywhere.get(rest[0], rest[0]))
                made = ".".join(part for part in (root, new, *rest) if part)
                return None if made == text else made
            if root == "tests" and head in self.old_tests:
                made = ".".join([root, *self.moved_test(head.replace(".", "/")).split("/"), *parts[count:]])
                return None if made == text else made
        return None

    def path(self, prefix: str, folder: str, name: str, file: str) -> str | None:
        """The new form of a path of the checkout, or of one below `src/standfast` or `tests`; None if it stays."""
        written = prefix + folder + name
        below = [prefix] if prefix in (SOURCE, "tests/") else ["standfast/"] if prefix else ["tests/", SOURCE]
        if not prefix and (self.root / written).exists() and file != "docs/explanation/architecture.md":
            return None
        if not prefix and file.startswith("docs/explanation/architecture"):
            below.reverse()
        for base in below:
            inside = (folder + name).rstrip("/")
            full = (SOURCE if base == "standfast/" else base) + inside
            if name and full in self.file_set:
                new = self.new_file(full)
            elif not name and full in self.folders:
                new = self.new_file(full + "/x.md").removesuffix("x.md")
            else:
                continue
            if new == full + ("" if name else "/"):
                return None
            cut = "" if prefix == base else "src/" if base == "standfast/" else base
            made = new.removeprefix(cut) if cut else new
            return None if made == written else made
        return None

    def prose(self, text: str, file: str, local: dict[str, str] | None = None) -> str:
        """A comment, a docstring or a page with the new names in it."""
        # A reader is told the public path, also in a docstring: the help of a command is printed from one.
        reader = "a docstring" if file.startswith(SOURCE) else file
        text = DOTTED.sub(lambda found: self.dotted(found[0], reader) or found[0], text)
        text = PATH.sub(lambda found: self.path(found[1] or "", found[2], found[3] or "", file) or found[0], text)
        text = re.sub(r"`([a-z_]+(?:\.[a-z_0-9]+)+)`", lambda found: f"`{self._below(found[1], file)}`", text)
        names = self.unique_names | self.everywhere if local is None else self.everywhere | local
        for old, new in names.items():
            if re.search(r"[a-z][A-Z]|_", old.strip("_")):
                text = re.sub(rf"(?<![\w.\"/-]){re.escape(old)}(?!\w)", new, text)
            elif local is not None:  # on a page `started` may be a state, in its own module it is the function
                text = re.sub(rf"(?<=`){re.escape(old)}(?=[`(\[.])", new, text)
        return text

    def _below(self, module: str, file: str) -> str:
        if module not in self.old_modules or (self.root / module).exists():
            return module
        return self.reference(module, file)

    @cached_property
    def unique_names(self) -> dict[str, str]:
        """The names of module level whose old form is defined in one module only."""
        seen: dict[str, set[str]] = {}
        for module in self.old_modules:
            for name in defined_in(self.tree(self.old_modules[module])):
                seen.setdefault(name, set()).add(module)
        return {old: new for rows in self.names.values() for old, new in rows.items() if len(seen.get(old, ())) == 1}

    @cache  # noqa: B019 — one map for each process
    def tree(self, file: str) -> ast.Module:
        """A file as it is today, parsed."""
        return ast.parse((self.root / file).read_bytes())


def defined_in(tree: ast.Module) -> set[str]:
    """The names that a module defines or assigns at its top level."""
    found = set()
    for node in _top(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found


def _top(tree: ast.Module) -> list[ast.stmt]:
    """The statements of module level, those below `if` and `try` too."""
    found, waiting = [], list(tree.body)
    while waiting:
        node = waiting.pop()
        found.append(node)
        for part in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
                waiting += getattr(node, part, [])
    return found


class Scopes(ast.NodeVisitor):
    """Find the uses of names of module level: a function that binds such a name itself means its own."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self.wanted = set(wanted)
        self.found: list[ast.Name] = []
        self._hidden: list[set[str]] = [set()]

    def visit_Name(self, node: ast.Name) -> None:
        """Note a use that no function around it hides."""
        if node.id in self.wanted - self._hidden[-1]:
            self.found.append(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outer = [*node.args.defaults, *(one for one in node.args.kw_defaults if one)]
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        every += [one for one in (node.args.vararg, node.args.kwarg) if one]
        outer += [one.annotation for one in every if one.annotation]
        if not isinstance(node, ast.Lambda):
            outer += [*node.decorator_list, *([node.returns] if node.returns else [])]
        for part in outer:
            self.visit(part)
        bound = {one.arg for one in every} | _bound_in(node)
        self._hidden.append(self._hidden[-1] | bound)
        for inner in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.visit(inner)
        self._hidden.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """What a class body binds is its own there, and not in the functions below it."""
        for outer in (*node.decorator_list, *node.bases, *(word.value for word in node.keywords)):
            self.visit(outer)
        own = {part.id for stmt in node.body for part in _targets(stmt)}
        own |= {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
        for part in node.body:
            is_scope = isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            self._hidden.append(self._hidden[-1] | (set() if is_scope else own))
            self.visit(part)
            self._hidden.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function  # noqa: N815 — as NodeVisitor wants it


def _targets(node: ast.stmt) -> list[ast.Name]:
    """The names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _bound_in(node: ast.AST) -> set[str]:
    """The names that a function's own body binds, without what functions and classes inside it bind."""
    bound: set[str] = set()
    free: set[str] = set()
    waiting: list[ast.AST] = list(ast.iter_child_nodes(node))
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Global | ast.Nonlocal):
            free |= set(part.names)
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(part.name)
            continue
        elif isinstance(part, ast.Lambda):
            continue
        elif isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            bound.add(part.id)
        elif isinstance(part, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and part.name:
            bound.add(part.name)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in part.names} - _imported(node)
        waiting += ast.iter_child_nodes(part)
    return bound - free


def _imported(node: ast.AST) -> set[str]:
    """What a function imports: those names are rewritten with the import, so they do not hide it."""
    imports = [part for part in ast.walk(node) if isinstance(part, ast.ImportFrom)]
    return {alias.asname or alias.name for part in imports for alias in part.names}


class PythonFile:
    """One Python file, and the edits that the map makes in it."""

    def __init__(self, chart: Map, file: str, text: str) -> None:
        self.map, self.file, self.text = chart, file, text
        self.data = text.encode()
        self.tree = ast.parse(text)
        self.nodes = list(ast.walk(self.tree))
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self.module = ""
        if file.startswith(SOURCE):
            self.module = file.removeprefix(SOURCE).removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.is_package = file.endswith("__init__.py")
        self.local: dict[str, str] = dict(chart.names.get(self.module, {})) if self.module else {}
        self.anywhere = chart.everywhere | chart.in_file.get(file, {})
        self.aliases: dict[str, str] = {}  # local name of a module of ours to the module
        self.words = {part.id for part in self.nodes if isinstance(part, ast.Name)}
        self.words |= {part.arg for part in self.nodes if isinstance(part, ast.arg)}
        self.words |= {
            part.name for part in self.nodes if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        every = [part for part in self.nodes if isinstance(part, ast.Import | ast.ImportFrom)]
        self.words |= {alias.asname or alias.name for part in every for alias in part.names}
        self.literals = self._literals()
        self.problems: list[str] = []

    # --- where things are ----------------------------------------------------------------------------------------

    def span(self, node: Any) -> tuple[int, int]:
        """The bytes of a node."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _literals(self) -> list[tuple[int, int, ast.expr, bool]]:
        """The outermost strings: where, the node, and whether it is prose (a statement of its own)."""
        prose = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        found = []
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                found.append((*self.span(node), node, id(node) in prose and isinstance(node, ast.Constant)))
                continue
            waiting += ast.iter_child_nodes(node)
        return sorted(found, key=lambda one: one[:2])

    def _start_of(self, token: tokenize.TokenInfo) -> int:
        line, column = token.start
        text = self.data[self._starts[line - 1] : self._starts[line]].decode()
        return self._starts[line - 1] + len(text[:column].encode())

    def _in_literal(self, start: int) -> bool:
        return any(first <= start < last for first, last, _, _ in self.literals)

    # --- what is rewritten ---------------------------------------------------------------------------------------

    def rewritten(self) -> str:
        """The file with the new names."""
        edits = [*self._imports(), *self._chains()]
        taken = [(edit.start, edit.end) for edit in edits]
        edits += [edit for edit in self._identifiers() if not any(a <= edit.start < b for a, b in taken)]
        edits += [*self._literal_edits(), *self._comments(), *self._depths()]
        data = self.data
        last = len(data) + 1
        for edit in sorted(set(edits), reverse=True):
            if edit.end > last:
                raise Refused(f"{self.file}: two rewritings overlap at {data[edit.start : edit.end]!r}")
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
            last = edit.start
        return data.decode()

    def _absolute(self, node: ast.ImportFrom) -> str | None:
        """The full name of the module that is imported from, "standfast.…" or "tests.…"; None if it is not ours."""
        if node.level:
            parts = self.file.removeprefix("src/").removesuffix(".py").split("/")
            base = parts[: len(parts) - node.level]
            return ".".join([*base, *((node.module or "").split(".") if node.module else [])])
        name = node.module or ""
        if name.partition(".")[0] in ("standfast", "tests"):
            return name
        if not self.file.startswith("src/") and name in self.map.old_tests:
            return f"tests.{name}"
        if not self.file.startswith("src/") and any(
            f"{name}.{alias.name}" in self.map.old_tests for alias in node.names
        ):
            return f"tests.{name}"
        return None

    def _imports(self) -> Iterator[Edit]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                start, end = self.span(node)
                text = self.data[start:end].decode()
                made = text
                for alias in node.names:
                    if new := self.map.dotted(alias.name, self.file):
                        made = re.sub(rf"\b{re.escape(alias.name)}(?![\w.])", new, made)
                    if alias.asname and alias.name.startswith("standfast."):
                        self.aliases[alias.asname] = alias.name.removeprefix("standfast.")
                if made != text:
                    yield Edit(start, end, made)
            elif isinstance(node, ast.ImportFrom) and (base := self._absolute(node)):
                yield from self._import_from(node, base)

    def _import_from(self, node: ast.ImportFrom, base: str) -> Iterator[Edit]:
        root, _, inner = base.partition(".")
        groups: dict[str, list[tuple[str, str | None]]] = {}
        is_plain = True
        for alias in node.names:
            full = f"{inner}.{alias.name}".lstrip(".")
            known = self.map.old_modules if root == "standfast" else self.map.old_tests
            name, asname = alias.name, alias.asname
            if full in known:
                new = self._new(root, full)
                home, _, name = new.rpartition(".")
                if root == "standfast":
                    self.aliases[asname or alias.name] = full
                if name != alias.name and asname is None:
                    if name in self.words:
                        asname = alias.name
                    else:
                        self.local[alias.name] = name
                elif name == asname != alias.name:
                    asname = None  # the file has it under its new name already
            else:
                home = self._new(root, inner)
                rows = self.map.names.get(inner, {}) if root == "standfast" else {}
                name = rows.get(name, self.map.everywhere.get(name, name))
                if name != alias.name and asname is None and alias.name in rows:
                    if name in self.words:
                        self.problems.append(f"{self.file}: {name!r} is in use already ({base}.{alias.name})")
                    self.local[alias.name] = name
            is_plain = is_plain and name == alias.name and asname == alias.asname
            groups.setdefault(home, []).append((name, asname))
        start, end = self.span(node)
        text = self.data[start:end].decode()
        written = ("." * node.level) + (node.module or "")
        heads = {home: self._written(home, node) for home in groups}
        if is_plain and len(groups) == 1:
            (head,) = heads.values()
            if head != written:
                yield Edit(start, end, re.sub(rf"^from\s+{re.escape(written)}\s", f"from {head} ", text))
            return
        if "#" in text:
            self.problems.append(f"{self.file}:{node.lineno}: a comment inside an import that is taken apart")
        indent = " " * node.col_offset
        lines = []
        for home, names in groups.items():
            listed = ", ".join(name + (f" as {asname}" if asname else "") for name, asname in names)
            line = f"from {heads[home]} import {listed}"
            if len(indent + line) > WIDTH:
                line = (
                    f"from {heads[home]} import (\n"
                    + "".join(f"{indent}    {name.strip()},\n" for name in listed.split(","))
                    + indent
                    + ")"
                )
            lines.append(line)
        yield Edit(start, end, f"\n{indent}".join(lines))

    def _new(self, root: str, inner: str) -> str:
        """The new full name of a module of ours."""
        if root == "tests":
            return ".".join(["tests", *self.map.moved_test(inner.replace(".", "/")).split("/")]) if inner else "tests"
        return ".".join(part for part in ("standfast", self.map.reference(inner, self.file) if inner else "") if part)

    def _written(self, home: str, node: ast.ImportFrom) -> str:
        """How an import names a module: relative, or without `tests`, if it was written so."""
        if node.level:
            here = self.map.new_file(self.file).removeprefix("src/").removesuffix(".py").split("/")
            package = here[: len(here) - 1]
            parts = home.split(".")
            if parts[: len(package)] == package:
                return "." + ".".join(parts[len(package) :])
            return home
        is_bare = home.startswith("tests.") and not (node.module or "").startswith("tests")
        return home.removeprefix("tests.") if is_bare else home

    def _chains(self) -> Iterator[Edit]:
        """`standfast.a.b` where the program says it by `import standfast.a.b`."""
        inside: set[int] = set()
        for node in self.nodes:
            if not isinstance(node, ast.Attribute) or id(node) in inside:
                continue
            nodes, parts = [node], [node.attr]
            while isinstance(nodes[-1].value, ast.Attribute):
                nodes.append(nodes[-1].value)
                parts.append(nodes[-1].attr)
            if not isinstance(nodes[-1].value, ast.Name) or nodes[-1].value.id != "standfast":
                continue
            inside |= {id(one) for one in nodes}
            for count, one in enumerate(nodes):
                name = ".".join(["standfast", *reversed(parts[count:])])
                if name.removeprefix("standfast.") in self.map.old_modules:
                    start, end = self.span(one)
                    new = self.map.dotted(name, self.file)
                    if new and not self._in_literal(start):
                        yield Edit(start, end, new)
                    if count:
                        attr = parts[count - 1]
                        row = self.map.names.get(name.removeprefix("standfast."), {}).get(attr)
                        if row:
                            stop = self.span(nodes[count - 1])[1]
                            yield Edit(stop - len(attr.encode()), stop, row)
                    break

    def _identifiers(self) -> Iterator[Edit]:
        local = {old: new for old, new in self.local.items() if old != new}
        for old, new in local.items():
            if new in self.words:
                self.problems.append(f"{self.file}: {new!r}, the new name of {old!r}, is in use already")
        scopes = Scopes(local)
        scopes.visit(self.tree)
        self._in_fstrings: set[str] = set()
        for name in scopes.found:
            start, end = self.span(name)
            if self._in_literal(start) or self.data[start:end].decode() != name.id:
                self._in_fstrings.add(name.id)
            else:
                yield Edit(start, end, local[name.id])
        for node in _top(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in local:
                yield self._definition(node, local[node.name])
        for part in self.nodes:
            if isinstance(part, ast.Global) and any(name in local for name in part.names):
                start, end = self.span(part)
                text = self.data[start:end].decode()
                yield Edit(start, end, re.sub(r"\w+", lambda found: local.get(found[0], found[0]), text))
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in self.aliases:
                row = self.map.names.get(self.aliases[part.value.id], {}).get(part.attr)
                end = self.span(part)[1]
                if row and not self._in_literal(end - 1):
                    yield Edit(end - len(part.attr.encode()), end, row)
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline) if self.anywhere else ():
            if token.type == tokenize.NAME and token.string in self.anywhere:
                start = self._start_of(token)
                if not self._in_literal(start):
                    yield Edit(start, start + len(token.string.encode()), self.anywhere[token.string])

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, new: str) -> Edit:
        start = self.span(node)[0]
        found = re.compile(rb"(?:async\s+def|def|class)\s+(\w+)").match(self.data, start)
        assert found is not None
        return Edit(found.start(1), found.end(1), new)

    def _literal_edits(self) -> Iterator[Edit]:
        listed = self.map.strings.get(self.file, {})
        local = {old: new for old, new in self.local.items() if old in self._in_fstrings} | self.anywhere
        for start, end, node, is_prose in self.literals:
            text = self.data[start:end].decode()
            if is_prose:
                made = self.map.prose(text, self.file, self.local | self.anywhere)
            else:
                made = replaced(text, listed)
                if isinstance(node, ast.JoinedStr):
                    made = in_fields(made, local, self._module_attributes())
            if made != text:
                yield Edit(start, end, made)

    def _module_attributes(self) -> dict[str, str]:
        """`alias.name` to `alias.new` for modules that this file has under an alias."""
        return {
            f"{self.local.get(alias, alias)}.{old}": f"{self.local.get(alias, alias)}.{new}"
            for alias, module in self.aliases.items()
            for old, new in self.map.names.get(module, {}).items()
        }

    def _comments(self) -> Iterator[Edit]:
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                start = self._start_of(token)
                made = self.map.prose(token.string, self.file, self.local | self.anywhere)
                if made != token.string:
                    yield Edit(start, start + len(token.string.encode()), made)

    def _depths(self) -> Iterator[Edit]:
        """`Path(__file__).parents[2]` counts folders: one more if the file is one folder deeper."""
        deeper = self.map.new_file(self.file).count("/") - self.file.count("/")
        for node in self.nodes if deeper else ():
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
                continue
            if re.fullmatch(r"Path\(__file__\)(\.resolve\(\))?\.parents", ast.unparse(node.value)):
                yield Edit(*self.span(node.slice), str(int(str(node.slice.value)) + deeper))

    # --- what the map must list ------------------------------------------------------------------------------------

    def candidates(self) -> Iterator[tuple[str, str]]:
        """What strings name that moves: old text and new."""
        names = self.anywhere | self.local | self.map.unique_names
        for start, end, _, is_prose in self.literals:
            if is_prose:
                continue
            text = self.data[start:end].decode()
            for found in DOTTED.finditer(text):
                if dotted := self.map.dotted(found[0], self.file):
                    yield found[0], dotted
            for found in PATH.finditer(text):
                if path := self.map.path(found[1] or "", found[2], found[3] or "", self.file):
                    yield found[0], path
            for found in re.finditer(r"(?<=[\"'])([a-z_]+(?:\.[a-z_0-9]+)+)(?=[\"'])", text):
                if found[0] in self.map.old_modules and (new := self.map.moved(found[0])) != found[0]:
                    yield found[0], new
                elif found[0] in self.map.old_tests:
                    new = self.map.moved_test(found[0].replace(".", "/")).replace("/", ".")
                    if new != found[0]:
                        yield found[0], new
            for found in re.finditer(
                r"\b[A-Z][a-z]+[A-Z]\w*", text
            ):  # an annotation, or the name of a class in a message
                if found[0] in self.local or found[0] in self.map.unique_names:
                    yield found[0], self.local.get(found[0], self.map.unique_names.get(found[0], ""))
            if re.search(r"mutants|mistakes", self.file):  # their strings are source
                for found in re.finditer(r"\b[A-Za-z_]\w*", text):
                    if found[0] in names:
                        yield found[0], names[found[0]]
            for found in re.finditer(r"(?<=[\"'.])(\w+)(?=[\"'(])", text):
                if found[0] in names and "_" in found[0].strip("_"):
                    yield found[0], names[found[0]]


def replaced(text: str, listed: dict[str, str]) -> str:
    """A text with each listed word replaced, the longest first."""
    if not listed:
        return text
    words = "|".join(re.escape(word) for word in sorted(listed, key=lambda word: (-len(word), word)))
    return re.sub(rf"(?<![\w.]|/(?=\w))(?:{words})(?!\w)", lambda found: listed[found[0]], text)


def in_fields(text: str, names: dict[str, str], dotted: dict[str, str]) -> str:
    """An f-string with names replaced inside its fields, and nowhere else."""
    if not names and not dotted:
        return text
    made, depth, place = [], 0, 0
    field: list[str] = []
    while place < len(text):
        char = text[place]
        if depth == 0 and text[place : place + 2] in ("{{", "}}"):
            made.append(text[place : place + 2])
            place += 2
            continue
        if char == "{":
            depth += 1
            if depth == 1:
                made.append(char)
                place += 1
                continue
        if char == "}" and depth:
            depth -= 1
            if depth == 0:
                made.append(_names_in("".join(field), names, dotted))
                field = []
                made.append(char)
                place += 1
                continue
        (field if depth else made).append(char)
        place += 1
    return "".join(made)


def _each_word(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\w+", lambda found: names.get(found[0], found[0]), text)


def _names_in(field: str, names: dict[str, str], dotted: dict[str, str]) -> str:
    for old, new in dotted.items():
        field = re.sub(rf"(?<![\w.\"']){re.escape(old)}(?!\w)", new, field)
    for old, new in names.items():
        field = re.sub(rf"(?<![\w\"']){re.escape(old)}(?![\w\"'])", new, field)
    return field


# --- lines that became too long --------------------------------------------------------------------------------------


def wrapped(text: str, before: str) -> str:
    """Prose lines that a longer name pushed over the edge, broken at a space."""
    old = set(before.splitlines())
    tree = ast.parse(text)
    prose: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    made: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip()
        if len(line) <= WIDTH or line in old or not (number in prose or stripped.startswith("#")):
            if len(line) > WIDTH and line not in old and "  # " in line and "noqa" not in line:
                code, _, comment = line.rpartition("  # ")
                indent = line[: len(line) - len(stripped)]
                made += [f"{indent}# {comment}", code]
                continue
            made.append(line)
            continue
        indent = line[: len(line) - len(stripped)] + ("# " if stripped.startswith("#") else "")
        rest = line
        while len(rest) > WIDTH:
            cut = rest.rfind(" ", len(indent) + 1, WIDTH + 1)
            if cut < 0:
                break
            made.append(rest[:cut])
            rest = indent + rest[cut + 1 :]
        made.append(rest)
    return "\n".join(made) + ("\n" if text.endswith("\n") else "")


# --- doing it --------------------------------------------------------------------------------------------------------


def edited(chart: Map, file: str, text: str) -> str:
    """A file with the edits that the map spells out for it."""
    for row in chart.edits:
        if row["file"] == file:
            if text.count(row["old"]) != 1:
                raise Refused(
                    f"{file}: an edit's text is there {text.count(row['old'])} times, not once:\n{row['old']}"
                )
            text = text.replace(row["old"], row["new"])
    return text


def python_files(chart: Map) -> dict[str, PythonFile]:
    """Every Python file of the checkout, with its edits made and ready to be rewritten."""
    found = {}
    for name in chart.files:
        if name.endswith(".py") and name.split("/")[0] in CODE:
            text = edited(chart, name, (chart.root / name).read_text(encoding="utf-8"))
            found[name] = PythonFile(chart, name, text)
    return found


def check(chart: Map, files: dict[str, PythonFile]) -> list[str]:
    """What of the map does not fit this checkout."""
    wrong = []
    for old, new in chart.modules.items():
        if old not in chart.old_modules:
            wrong.append(f"[modules] {old}: there is no such module")
        elif new in chart.old_modules and new not in chart.modules:
            wrong.append(f"[modules] {old}: {new} is there already")
    wrong += [f"[public] {path}: there is no such module" for path in chart.public if path not in chart.old_modules]
    targets: dict[str, str] = {}
    for name in chart.files:
        new = chart.new_file(name)
        if new in targets:
            wrong.append(f"{name} and {targets[new]} would both become {new}")
        targets[new] = name
    for old in chart.tests:
        if old.replace("/", ".") not in chart.old_tests and not any(
            one.startswith(f"tests/{old}/") for one in chart.files
        ):
            wrong.append(f"[tests] {old}: there is no such file or folder")
    for module, rows in chart.names.items():
        if module not in chart.old_modules:
            wrong.append(f"[names] {module}: there is no such module")
            continue
        there = defined_in(files[chart.old_modules[module]].tree)
        wrong += [f"[names] {module}: it does not define {old}" for old in rows if old not in there]
        wrong += [f"[names] {module}: {new} is there already" for new in rows.values() if new in there]
    every = {word for file in files.values() for word in file.words}
    every |= {part.attr for file in files.values() for part in file.nodes if isinstance(part, ast.Attribute)}
    for old, new in chart.everywhere.items():
        if old not in every:
            wrong.append(f"[everywhere] {old}: nothing has this name")
        if new in every:
            wrong.append(f"[everywhere] {old}: {new} is in use already")
    for name, rows in chart.in_file.items():
        if name not in files:
            wrong.append(f"[in_file] {name}: there is no such file")
            continue
        inside = {token.string for token in tokenize.generate_tokens(io.StringIO(files[name].text).readline)}
        wrong += [f"[in_file] {name}: it has no {old}" for old in rows if old not in inside]
        wrong += [f"[in_file] {name}: {new} is in use already" for new in rows.values() if new in inside]
        wrong += [f"[in_file] {name}: {old} is in [everywhere] too" for old in rows if old in chart.everywhere]
        wrong += [f"[in_file] {name}: {old} is in [names] too" for old in rows if old in files[name].local]
    listed: list[tuple[str, Iterable[str]]] = [*chart.strings.items(), *chart.keep.items()]
    for file, words in listed:
        if file not in files:
            wrong.append(f"[strings] or [keep] {file}: there is no such file")
            continue
        texts = [
            files[file].data[start:end].decode() for start, end, _, is_prose in files[file].literals if not is_prose
        ]
        wrong += [
            f"[strings] or [keep] {file}: no string has {word!r}"
            for word in words
            if not any(word in text for text in texts)
        ]
    for row in chart.edits:
        if row["file"] not in chart.files:
            wrong.append(f"[[edits]] {row['file']}: there is no such file")
    for file in missing_rows(chart, files):
        wrong.append(f"{file}: strings that the map lists neither under [strings] nor under [keep]; --rows prints them")
    return wrong


def skip_missing(chart: Map) -> list[str]:
    """Take the rows out of the map whose old side is not in this checkout; say which."""
    gone = [f"[modules] {old}" for old in chart.modules if old not in chart.old_modules]
    chart.modules = {old: new for old, new in chart.modules.items() if old in chart.old_modules}
    folders = {name.removeprefix("tests/") for name in chart.folders} | {
        one.replace(".", "/") for one in chart.old_tests
    }
    gone += [f"[tests] {old}" for old in chart.tests if old not in folders]
    chart.tests = {old: new for old, new in chart.tests.items() if old in folders}
    for module in list(chart.names):
        there = defined_in(chart.tree(chart.old_modules[module])) if module in chart.old_modules else set()
        gone += [f"[names] {module}.{old}" for old in chart.names[module] if old not in there]
        chart.names[module] = {old: new for old, new in chart.names[module].items() if old in there}
    chart.names = {module: rows for module, rows in chart.names.items() if rows}
    for name in list(chart.in_file):
        text = _read(chart.root / name) if name in chart.file_set else ""
        words = set(re.findall(r"\w+", text))
        gone += [f"[in_file] {name}: {old}" for old in chart.in_file[name] if old not in words]
        chart.in_file[name] = {old: new for old, new in chart.in_file[name].items() if old in words}
    chart.in_file = {name: rows for name, rows in chart.in_file.items() if rows}
    texts = {name: _read(chart.root / name) for name in (*chart.strings, *chart.keep) if name in chart.file_set}
    for name in {*chart.strings, *chart.keep}:
        rows = [*chart.strings.get(name, {}), *chart.keep.get(name, [])]
        gone += [f"[strings] or [keep] {name}: {word}" for word in rows if word not in texts.get(name, "")]
    chart.strings = {
        name: {old: new for old, new in rows.items() if old in texts[name]}
        for name, rows in chart.strings.items()
        if name in texts
    }
    chart.keep = {
        name: [word for word in rows if word in texts[name]] for name, rows in chart.keep.items() if name in texts
    }
    gone += [f"[[edits]] {row['file']}" for row in chart.edits if row["file"] not in chart.file_set]
    chart.edits = [row for row in chart.edits if row["file"] in chart.file_set]
    return gone


def missing_rows(chart: Map, files: dict[str, PythonFile]) -> dict[str, dict[str, str]]:
    """What strings name that moves, and that the map does not list."""
    found: dict[str, dict[str, str]] = {}
    for name, file in files.items():
        known = {*chart.strings.get(name, {}), *chart.keep.get(name, [])}
        for old, new in file.candidates():
            if old not in known:
                found.setdefault(name, {})[old] = new
    return found


def carry_out(chart: Map, files: dict[str, PythonFile]) -> None:
    """Write every file under its new name, and take the old folders away."""
    made: dict[str, str] = {}
    for name, file in files.items():
        made[name] = file.rewritten()
    problems = [problem for file in files.values() for problem in file.problems]
    if problems:
        raise Refused("\n".join(sorted(set(problems))))
    for name in chart.files:
        path = chart.root / name
        if name not in made and path.suffix in TEXTS and "golden" not in name:
            text = edited(chart, name, path.read_text(encoding="utf-8"))
            if name.startswith("tests/mistakes/"):
                text = planted(text, files)
            made[name] = chart.prose(text, name)
    changed = [name for name in chart.files if made.get(name) != _read(chart.root / name) and name in made]
    moves = {name: chart.new_file(name) for name in chart.files if chart.new_file(name) != name}
    before = {name: _read(chart.root / name) for name in changed}
    contents = {name: (chart.root / name).read_bytes() for name in moves}
    for name in moves:
        (chart.root / name).unlink()
    for name, new in moves.items():
        target = chart.root / new
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents[name])
    for name in changed:
        (chart.root / chart.new_file(name)).write_text(made[name], encoding="utf-8")
    for package, doc in chart.packages.items():
        target = chart.root / SOURCE / package.replace(".", "/") / "__init__.py"
        if target.exists():
            raise Refused(f"[packages] {package} is there already")
        target.write_text(f'"""{doc}"""\n', encoding="utf-8")
    _sweep(chart, moves)
    python = [chart.new_file(name) for name in changed if name.endswith(".py")]
    _tidy(chart.root, python)
    for name in changed:
        if name.endswith(".py"):
            path = chart.root / chart.new_file(name)
            text = path.read_text(encoding="utf-8")
            path.write_text(wrapped(text, before[name]), encoding="utf-8")
    _tidy(chart.root, python)
    sys.stdout.write(f"moved {len(moves)} files, rewrote {len(changed)}\n")


def planted(text: str, files: dict[str, PythonFile]) -> str:
    """A table of deliberate mistakes: what each has of the source of its file, with that file's new names."""
    made = []
    for block in re.split(r"(?m)^(?=\[\[mistake\]\]$)", text):
        place = re.search(r'(?m)^file = "([^"]+)"$', block)
        if place and (file := files.get(place[1])):
            head, mark, source = block.partition("\nold = ")
            block = head + mark + _each_word(source, file.local | file.anywhere)
        made.append(block)
    return "".join(made)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def _sweep(chart: Map, moves: dict[str, str]) -> None:
    """Take away folders that have nothing left but caches: they could be imported as name spaces."""
    for name in moves:
        folder = (chart.root / name).parent
        while folder != chart.root and folder.is_dir():
            if any(path.is_file() and path.suffix != ".pyc" for path in folder.rglob("*")):
                break
            shutil.rmtree(folder)
            folder = folder.parent
    for name in moves:  # what was compiled from a file that is not there any more
        for cache_file in (chart.root / name).parent.glob(f"__pycache__/{Path(name).stem}.*.pyc"):
            cache_file.unlink()


def _tidy(root: Path, names: list[str]) -> None:
    """Sort the imports and format, as `./dev lint` would."""
    ruff = [sys.executable, "-m", "ruff"]
    # Said here because the generated modules are not there yet, and Ruff asks the disk what is ours.
    ours = ["--no-cache", "--config", "lint.isort.known-first-party = ['standfast']"]
    # Ruff takes modules below `_src` for private and asks no docstrings of them: a `noqa` for that is unused there.
    subprocess.run(
        [*ruff, "check", "--fix", "--fixable", "I001,RUF100", "--quiet", *ours, *names],
        cwd=root,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run([*ruff, "format", "--quiet", *names], cwd=root, check=True)


def load(root: Path) -> Map:
    """The map, as it lies beside this script."""
    data = tomllib.loads((Path(__file__).parent / "rename.toml").read_text(encoding="utf-8"))
    return Map(root, data)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--rows", action="store_true", help="print rows for strings that the map does not list")
    parser.add_argument("--skip-missing", action="store_true", help="leave rows out whose old name is not there")
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the checkout (default: this one)")
    asked = parser.parse_args()
    chart = load(asked.root.resolve())
    if asked.skip_missing:
        sys.stdout.write("".join(f"left out: {row}\n" for row in skip_missing(chart)))
    files = python_files(chart)
    if asked.rows:
        for file, rows in missing_rows(chart, files).items():
            sys.stdout.write(f'[strings."{file}"]\n')
            sys.stdout.write("".join(f'"{old}" = "{new}"\n' for old, new in sorted(rows.items())))
        return 0
    if wrong := check(chart, files):
        sys.stderr.write("\n".join(wrong) + f"\n{len(wrong)} rows of the map do not fit; nothing was changed.\n")
        return 1
    if asked.check:
        for one in files.values():
            one.rewritten()
        problems = sorted({problem for one in files.values() for problem in one.problems})
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
        return 1 if problems else 0
    carry_out(chart, files)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
