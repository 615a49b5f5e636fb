"""Prove that a tree is another one under the map `tools/rename.toml`: the same programs, with other names.

    python tools/rename_proof.py OLD NEW      # two checkouts: before and after `tools/rename.py` and `./dev names`
    python tools/rename_proof.py              # the commit that carried the map out, beside the one before it

Every module of OLD is compared with its new one, node by node, docstrings left out. Identifiers are equal or a pair of
the map, and within one file no two names become one. Strings are byte-equal, but for the words that the map lists for
their file. This script reads the map and shares no code with the one that carries it out.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE = "src/standfast/"
CODE = ("src/", "tests/", "tools/", "bench/", "examples/")
OWN = {"tools/rename.py", "tools/rename_proof.py"}
MARK = "Written by `./dev names`"


class Different(Exception):
    """Two files are not the same under the map."""


class Proof:
    """The map, and what is compared under it."""

    def __init__(self, old: Path, new: Path) -> None:
        self.old, self.new = old, new
        data = tomllib.loads((Path(__file__).parent / "rename.toml").read_text(encoding="utf-8"))
        self.modules: dict[str, str] = data["modules"]
        self.tests: dict[str, str] = data["tests"]
        self.outside: dict[str, str] = data["outside"]
        self.public = set(data["public"])
        self.strings: dict[str, dict[str, str]] = data["strings"]
        self.edits: list[dict[str, str]] = data["edits"]
        self.everywhere: dict[str, str] = data["everywhere"]
        self.in_file: dict[str, dict[str, str]] = data["in_file"]
        self.by_module: dict[str, dict[str, str]] = data["names"]
        self.names = {(old, new) for rows in data["names"].values() for old, new in rows.items()}
        listing = subprocess.run(["git", "ls-files"], cwd=old, capture_output=True, text=True, check=True).stdout
        self.files = [name for name in listing.splitlines() if name.endswith(".py") and name.startswith(CODE)]
        self.files = [name for name in self.files if name not in OWN and (old / name).is_file()]
        self.ours = {"standfast", "tests"}
        for name in self.files:
            module = name.removeprefix("src/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            if name.startswith(("src/", "tests/")):
                self.ours |= {module, *([module.removeprefix("tests.")] if name.startswith("tests/") else [])}
        # A module that is imported by its last name changes that name in the files that import it.
        pairs = {(key.rpartition(".")[2], value.rpartition(".")[2]) for key, value in self.modules.items()}
        pairs |= {(key.rpartition("/")[2], value.rpartition("/")[2]) for key, value in self.tests.items()}
        self.last_names = {pair for pair in pairs if pair[0] != pair[1]}

    def place(self, name: str, table: dict[str, str], mark: str) -> str:
        """A dotted name or a path with its longest known beginning replaced."""
        parts = name.split(mark)
        for count in range(len(parts), 0, -1):
            head = mark.join(parts[:count])
            if head in table:
                return mark.join([table[head], *parts[count:]])
        return name

    def new_file(self, name: str) -> str:
        """Where a file is afterwards."""
        for base, table, mark in ((SOURCE, self.modules, "."), ("tests/", self.tests, "/")):
            if name.startswith(base):
                inner = name.removeprefix(base).removesuffix(".py").replace("/", mark)
                if inner.endswith(f"{mark}__init__"):
                    inner = self.place(inner.removesuffix(f"{mark}__init__"), table, mark) + f"{mark}__init__"
                else:
                    inner = self.place(inner, table, mark)
                return base + inner.replace(mark, "/") + ".py"
        return name

    def compare(self, name: str) -> None:
        """Raise if a file is not its new one."""
        before = (self.old / name).read_text(encoding="utf-8")
        for row in self.edits:
            if row["file"] == name:
                before = before.replace(row["old"], row["new"])
        after = (self.new / self.new_file(name)).read_text(encoding="utf-8")
        if MARK in after[:400] and name.startswith(SOURCE):
            return
        comparison = Comparison(self, name)
        comparison.bound_inside = bound_in_functions(ast.parse(before))
        comparison.bodies(ast.parse(before).body, ast.parse(after).body, "module")


def bound_in_functions(tree: ast.Module) -> set[str]:
    """The names that some function or class of a module binds for itself: those may mean two things in one file."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    inner = [part for node in ast.walk(tree) if isinstance(node, scopes) for part in ast.walk(node)]
    bound = {part.arg for part in inner if isinstance(part, ast.arg)}
    bound |= {
        part.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return bound | {part.id for part in inner if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


class Comparison:
    """One file against its new one."""

    def __init__(self, proof: Proof, file: str) -> None:
        self.proof, self.file = proof, file
        self.became: dict[str, str] = {}
        self.bound_inside: set[str] = set()
        self.came_from: dict[str, str] = {}
        self.deeper = proof.new_file(file).count("/") - file.count("/")
        package = proof.new_file(file).removeprefix("src/").removesuffix(".py").split("/")[:-1]
        self.new_package = package
        self.old_package = file.removeprefix("src/").removesuffix(".py").split("/")[:-1]

    def fail(self, what: str) -> None:
        """Say that the files differ."""
        raise Different(f"{self.file}: {what}")

    def name(self, old: str, new: str) -> None:
        """A name that the file binds or uses: the same everywhere in it, and no two become one."""
        if old != new and not self.allowed(old, new):
            self.fail(f"{old!r} became {new!r}, which the map does not say")
        if self.became.setdefault(old, new) != new and old not in self.bound_inside:
            self.fail(f"{old!r} became both {self.became[old]!r} and {new!r}")
        if old != new and self.came_from.setdefault(new, old) != old:
            self.fail(f"{old!r} and {self.came_from[new]!r} both became {new!r}")

    def allowed(self, old: str, new: str) -> bool:
        """Whether the map has this pair."""
        proof = self.proof
        if new in (proof.everywhere.get(old), proof.in_file.get(self.file, {}).get(old)):
            return True
        return (old, new) in proof.names or (old, new) in proof.last_names

    # --- statements ----------------------------------------------------------------------------------------------

    def bodies(self, old: list[Any], new: list[Any], where: str) -> None:
        """Lists of statements: without docstrings, and with imports that stand together as one set."""
        ours, theirs = list(self.grouped(old, is_old=True)), list(self.grouped(new, is_old=False))
        if len(ours) != len(theirs):
            self.fail(f"{where} has {len(ours)} statements and then {len(theirs)}")
        for one, other in zip(ours, theirs, strict=True):
            if isinstance(one, set) or isinstance(other, set):
                if one != other:
                    self.fail(f"imports: {sorted(map(str, set(one) ^ set(other)))[:4]}")
            else:
                self.nodes(one, other)

    def grouped(self, body: list[Any], *, is_old: bool) -> Iterator[Any]:
        """Statements, with each run of imports as a set of what it imports."""
        imports: set[tuple[str, ...]] = set()
        for node in body:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= set(self.imported(node, is_old=is_old))
                continue
            if imports:
                yield imports
                imports = set()
            yield node
        if imports:
            yield imports

    def imported(self, node: ast.Import | ast.ImportFrom, *, is_old: bool) -> Iterator[tuple[str, ...]]:
        """What an import makes known, as (module, name), under the new names."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = self.module(alias.name) if is_old else alias.name
                yield full, "", alias.asname or ""
            return
        base = node.module or ""
        if node.level:
            package = self.old_package if is_old else self.new_package
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            if is_old and full in self.proof.ours:
                full = self.module(full)
            elif is_old and base in self.proof.ours:
                rows = self.proof.by_module.get(base.removeprefix("standfast."), {})
                name = rows.get(alias.name, self.proof.everywhere.get(alias.name, alias.name))
                full = f"{self.module(base)}.{name}"
            yield full.removeprefix("tests."), "", ""

    def module(self, full: str) -> str:
        """The new full name of a module of ours; of any other the same."""
        proof = self.proof
        if full not in proof.ours:
            return full
        root, _, inner = full.partition(".")
        if root == "standfast":
            if not inner or (not self.file.startswith("src/") and inner in proof.public):
                return full
            return f"standfast.{proof.place(inner, proof.modules, '.')}"
        inner = (inner if root == "tests" else full).replace(".", "/")
        return f"tests.{proof.place(inner, proof.tests, '/')}".replace("/", ".") if inner else full

    # --- nodes -----------------------------------------------------------------------------------------------------

    def nodes(self, old: Any, new: Any) -> None:
        """Two nodes and everything below them."""
        if isinstance(old, ast.Attribute) and self.is_module_chain(old, new):
            return
        if type(old) is not type(new):
            self.fail(f"line {getattr(old, 'lineno', '?')}: {type(old).__name__} became {type(new).__name__}")
        if isinstance(old, ast.Constant):
            return self.constants(old.value, new.value)
        if isinstance(old, ast.Subscript) and re.fullmatch(r".*__file__.*\.parents\[\d\]", ast.unparse(old)):
            if int(ast.unparse(old.slice)) + self.deeper != int(ast.unparse(new.slice)):
                self.fail("a number of parents")
            return self.nodes(old.value, new.value)
        if isinstance(old, ast.JoinedStr):
            return self.joined(old, new)
        for field in old._fields:
            self.values(field, getattr(old, field), getattr(new, field))
        return None

    def values(self, field: str, old: Any, new: Any) -> None:
        """A field of two nodes."""
        if field in ("body", "orelse", "finalbody") and isinstance(old, list):
            self.bodies(old, new, field)
        elif isinstance(old, list):
            if len(old) != len(new):
                self.fail(f"{field} has {len(old)} parts and then {len(new)}")
            for one, other in zip(old, new, strict=True):
                self.values(field, one, other)
        elif isinstance(old, ast.AST):
            self.nodes(old, new)
        elif isinstance(old, str) and field in ("id", "name", "names", "rest"):
            self.name(old, new)
        elif isinstance(old, str) and field in ("attr", "arg", "kwd_attrs"):
            if old != new and not self.allowed(old, new):
                self.fail(f"{field} {old!r} became {new!r}, which the map does not say")
        elif old != new:
            self.fail(f"{field}: {old!r} became {new!r}")

    def is_module_chain(self, old: ast.Attribute, new: Any) -> bool:
        """Whether two attributes are one module of ours by its old and new full name, and the same of it."""
        parts = ast.unparse(old).split(".")
        if parts[0] != "standfast" or not all(part.isidentifier() for part in parts):
            return False
        for count in range(len(parts), 1, -1):
            if (head := ".".join(parts[:count])) in self.proof.ours:
                expected = [*self.module(head).split("."), *parts[count:]]
                after = ast.unparse(new).split(".")
                pairs = zip(expected, after, strict=False)
                return len(after) == len(expected) and all(a == b or self.allowed(a, b) for a, b in pairs)
        return False

    def constants(self, old: Any, new: Any) -> None:
        """Two constants: equal, or a string with the words that the map lists for this file."""
        if old == new and type(old) is type(new):
            return
        if not isinstance(old, str) or self.listed(old) != new:
            self.fail(f"a string changed that the map does not list: {old!r:.80} became {new!r:.80}")

    def listed(self, text: str) -> str:
        """A string with the listed words of this file replaced."""
        rows = self.proof.strings.get(self.file, {})
        whole = {key.strip("\"'"): value.strip("\"'") for key, value in rows.items() if key[0] in "\"'"}
        if text in whole:
            return whole[text]
        rows = {key: value for key, value in rows.items() if key[0] not in "\"'"}
        if not rows:
            return text
        words = "|".join(re.escape(key) for key in sorted(rows, key=lambda key: (-len(key), key)))
        return re.sub(rf"(?<![\w.]|/(?=\w))(?:{words})(?!\w)", lambda found: rows[found[0]], text)

    def joined(self, old: ast.JoinedStr, new: ast.JoinedStr) -> None:
        """Two f-strings."""
        if len(old.values) != len(new.values):
            self.fail("an f-string has other parts")
        for one, other in zip(old.values, new.values, strict=True):
            self.nodes(one, other)


LANDING = "Move the code under _src and _kits, under the names of the field"
"""Subject of the commit that carried the map out."""


def check_out_landing(folder: Path) -> tuple[Path, Path]:
    """Check out the landing commit and its parent below `folder`; return the parent's tree, then the landing's."""
    root = Path(__file__).resolve().parent.parent
    find = ["git", "log", "--format=%H", "--fixed-strings", f"--grep={LANDING}"]
    found = subprocess.run(find, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    if not found:
        raise SystemExit(f"This history has no commit {LANDING!r}. Give two checkouts: before and after.")
    trees = (folder / "before", folder / "after")
    for tree, commit in zip(trees, (f"{found[-1]}^", found[-1]), strict=True):
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(root), str(tree)], check=True)
        subprocess.run(["git", "checkout", "--quiet", "--detach", commit], cwd=tree, check=True)
    return trees


def main() -> int:
    """The command: how many files are equal, and what is different in the others."""
    if len(sys.argv) == 1:
        shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
        if shallow.stdout.strip() == "true":  # the landing cannot be looked at there; whole clones do
            print("this clone has no history: the proof of the landing was not run")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            return compare_trees(*check_out_landing(Path(folder)))
    return compare_trees(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())


def compare_trees(old: Path, new: Path) -> int:
    """Compare every module of two checkouts, print those that differ, and return the exit code."""
    proof = Proof(old, new)
    equal, written, different = 0, 0, []
    for name in proof.files:
        if MARK in (proof.old / name).read_text(encoding="utf-8")[:400] and name.startswith(SOURCE):
            written += 1
            continue
        try:
            proof.compare(name)
            equal += 1
        except (Different, FileNotFoundError) as error:
            different.append(str(error))
    for line in different:
        print(line)
    print(f"{equal} files are equal under the map, {len(different)} differ, {written} are written by ./dev names")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
