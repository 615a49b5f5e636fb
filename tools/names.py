"""Write everything that follows from the table of public names (`./dev names`).

The table in `src/standfast/_src/exports/table.py` is what a person edits. From it come `standfast/__init__.py` and the
public modules, with the imports that type checkers read, and the reference of names with the first sentence of each
docstring. The page of the contract is written from the clauses that the kit tests.
`tests/exports/test_public_names.py` fails when a written file is not what this script would write.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path

from standfast._kits.contract import clauses
from standfast._kits.contract.clause import Clause
from standfast._src.exports import table
from standfast._src.exports.absent import ABSENT
from standfast._src.exports.sdk_paths import DOORS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "standfast"

MARK = "Written by `./dev names`"
PUBLIC_DOC = """An agent runtime whose conversations hold.

Every public name can be imported from here; each is loaded when it is first used.
Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""
DOOR_DOC = """What the OpenAI Agents SDK documents as `agents.{path}`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""
KIT_PATH_DOC = """Public path of `standfast.{home}`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""
COMMAND_DOC = """`python -m {package}`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""
NAMES_DOC = """# Every public name

Written by `./dev names` from the docstrings. All of these can be imported from `standfast`; the heading is where they
live.
"""
KIT_DOC = """# Every name of the kit

For tests. These are imported from their own packages: nothing of standfast needs them.
"""
CONTRACT_DOC = """# The contract

Written by `./dev names` from `standfast._kits.contract.clauses`. Every promise has a name: the conformance kit
tests it under that name, and an error may mention it. An *item* is one JSON object of history, a *session* the history
of one conversation, a *store* what sessions live in, a *run* one call of the runner. A clause with several sentences is
a group (C15): each sentence has a letter (C15a) and can be tested by itself.
"""


def written_files() -> dict[Path, str]:
    """Every file that follows from the table, with what it should say."""
    modules = {SOURCE / "__init__.py": lazy_module("", PUBLIC_DOC, version=True)}
    below = [*DOORS, *(module for kind in ABSENT.values() for module in kind.modules), *table.KIT_PATHS]
    below += [f"{path}.__main__" for path in table.COMMANDS]
    for path in (*DOORS, *table.KIT_PATHS):
        is_package = any(other.startswith(f"{path}.") for other in below)
        file = SOURCE / path.replace(".", "/")
        file = file / "__init__.py" if is_package else file.with_suffix(".py")
        if path in table.KIT_PATHS:
            modules[file] = kit_module(path, table.KIT_PATHS[path], is_package=is_package)
            continue
        modules[file] = lazy_module(path, DOOR_DOC.format(path=path), is_package=is_package, version=path == "version")
    for path, home in table.COMMANDS.items():
        modules[SOURCE / path.replace(".", "/") / "__main__.py"] = command_module(path, home)
    return tidied(modules) | {
        ROOT / "docs" / "reference" / "names.md": names_page(),
        ROOT / "docs" / "reference" / "contract.md": contract_page(),
    }


def lazy_module(path: str, doc: str, *, is_package: bool = True, version: bool = False) -> str:
    """The source of a module that offers its names lazily, and shows them to type checkers."""
    homes = table.homes(path)
    depth = (path.count(".") + 1 if path else 0) + (1 if is_package else 0)
    dots = "." if depth == 1 else "standfast."  # as everywhere: relative within a package, absolute beyond it
    by_home: dict[str, list[str]] = {}
    for name, home in homes.items():
        by_home.setdefault(home, []).append(name)
    lines = [f'"""{doc}"""', "from __future__ import annotations"]
    if by_home and path:
        lines.append("from typing import TYPE_CHECKING")
    lines.append(f"from {dots}_src.exports.lazy import lazy")
    if by_home and not path:
        # Type checkers go by the name. Importing `typing` for it would cost as much as an empty Python.
        lines.append("TYPE_CHECKING = False")
    if by_home:
        lines.append("if TYPE_CHECKING:")
        lines += [typed_import(dots + home, names) for home, names in sorted(by_home.items())]
    lines.append("")
    if version:
        lines.append('__version__ = "' + project_version() + '"')
    lines.append("__getattr__, __dir__ = lazy(__name__)")
    return "\n".join(lines) + "\n"


def kit_module(path: str, home: str, *, is_package: bool) -> str:
    """The source of the public path of a kit's module."""
    dots = "." if path.count(".") + is_package == 0 else "standfast."
    names = public_names(SOURCE / home.replace(".", "/"))
    return "\n".join(
        [
            f'"""{KIT_PATH_DOC.format(home=home)}"""',
            "from __future__ import annotations",
            *(["from typing import TYPE_CHECKING"] if names else []),
            f"from {dots}_src.exports.lazy import forward",
            *(["if TYPE_CHECKING:", typed_import(dots + home, names)] if names else []),
            "",
            "__getattr__, __dir__ = forward(__name__)",
            "",
        ]
    )


def typed_import(home: str, names: Iterable[str]) -> str:
    """The import of names for type checkers: `name as name` marks a name that the module offers."""
    return f"    from {home} import {', '.join(f'{name} as {name}' for name in names)}"


def command_module(path: str, home: str) -> str:
    """The source of a `__main__`."""
    package = f"standfast.{path}".rstrip(".")
    dots = "standfast." if path else "."
    return "\n".join(
        [
            f'"""{COMMAND_DOC.format(package=package)}"""',
            "from __future__ import annotations",
            "import sys",
            f"from {dots}{home} import main",
            'if __name__ == "__main__":',
            "    raise SystemExit(main(sys.argv[1:]))",
            "",
        ]
    )


def public_names(stem: Path) -> list[str]:
    """What a module offers: its `__all__`, or what it defines without an underscore; read, not imported."""
    file = stem.with_suffix(".py")
    body = ast.parse((file if file.exists() else stem / "__init__.py").read_text(encoding="utf-8")).body
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=listed):
                return sorted(ast.literal_eval(listed))
    defined = [part.name for part in body if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                defined.append(name)
    return sorted({name for name in defined if not name.startswith("_")})


def project_version() -> str:
    """The version that pyproject.toml gives."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def tidied(modules: dict[Path, str]) -> dict[Path, str]:
    """The modules as ruff would leave them, so that linting a written file changes nothing. Ruff is started twice for
    all of them: once for each took half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        copies = {file: Path(folder) / file.relative_to(SOURCE) for file in modules}
        for file, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(modules[file], encoding="utf-8")
        config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--quiet", folder]
        own = ["--config", "lint.isort.known-first-party = ['standfast']"]  # the copies do not lie in the project
        for command in (["check", "--select", "I", "--fix", *own], ["format"]):
            subprocess.run([sys.executable, "-m", "ruff", *command, *config], check=True)
        return {file: copy.read_text(encoding="utf-8") for file, copy in copies.items()}


def names_page() -> str:
    """The reference of names: for each module its public names with the first sentence of their docstrings."""
    lines = [NAMES_DOC.strip()]
    for home, names in table.PUBLIC.items():
        lines += ["", f"## `standfast.{home}`", "", "| name | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {first_sentence(documentation(home, name))} |" for name in names]
    lines += ["", KIT_DOC.strip()]
    for kit in table.KITS:
        home = table.KIT_PATHS.get(kit, kit)
        names = tuple(sorted(getattr(importlib.import_module(f"standfast.{home}"), "__all__", ())))
        lines += ["", f"## `standfast.{kit}`", "", "| name | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {first_sentence(documentation(home, name))} |" for name in names]
    return "\n".join(lines) + "\n"


def contract_page() -> str:
    """The contract: every clause in full, under its part."""
    lines = [CONTRACT_DOC.strip()]
    for letter, title in clauses.PARTS.items():
        lines += ["", f"## {letter}. {title}", "", "| id | promise |", "|---|---|"]
        part = [clause for clause in clauses.CLAUSES.values() if clause.part == letter]
        # The anchor is what other pages link to: a row of a table has none of its own.
        for clause in part:
            lines += contract_rows(clause)
    return "\n".join(lines) + "\n"


def contract_rows(clause: Clause) -> Iterator[str]:
    """The rows of a clause: one for itself and, for a group, one for each of its sentences."""
    text = first_sentence(clause.text)
    if clause.sentences:
        first, *_, last = clause.lettered
        text = f"{first} to {last}, below."
    yield f'| <a id="{clause.id.lower()}"></a>{clause.id} {clause.title} | {text} |'
    for sentence, promised in clause.lettered.items() if clause.sentences else ():
        yield f'| <a id="{sentence.lower()}"></a>{sentence} | {first_sentence(promised)} |'


def first_sentence(text: str) -> str:
    """The docstring's first paragraph on one line, fit for a table cell."""
    paragraph = inspect.cleandoc(text).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def documentation(home: str, name: str) -> str:
    """A public name's own documentation: its docstring, or the string below its assignment; "" if it has none."""
    module = importlib.import_module(f"standfast.{home}")
    value = getattr(module, name)
    written = dict(assigned_docs(Path(inspect.getfile(module))))
    if name in written:
        return written[name]
    if inspect.isclass(value) or inspect.isroutine(value):
        return own_docstring(value)
    # A ready-made object, such as `retry_policies`, is documented by its class.
    return own_docstring(type(value)) if type(value).__module__.startswith("standfast.") else ""


def own_docstring(value: object) -> str:
    """The docstring written on this very object; not its base class's, and not the one dataclasses invent."""
    doc = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    invented = inspect.isclass(value) and doc is not None and doc.startswith(f"{value.__name__}(")
    return "" if doc is None or invented else doc


def assigned_docs(file: Path) -> Iterator[tuple[str, str]]:
    """Module-level assignments that are followed by a string saying what they are."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    # `if TYPE_CHECKING: … else: …` says one thing to checkers and another to Python; both are module level.
    branches = [
        branch for statement in body if isinstance(statement, ast.If) for branch in (statement.body, statement.orelse)
    ]
    for statement, follower in chain.from_iterable(map(pairwise, (body, *branches))):
        match statement, follower:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, text


def main() -> int:
    """Write what is not as it should be, and say which files changed."""
    for file, text in written_files().items():
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if before and MARK not in before:
            print(f"{file.relative_to(ROOT)} was written by a person; take its path out of the table", file=sys.stderr)
            return 1
        if before != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
