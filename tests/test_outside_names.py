"""Names that live outside Python do not change with the files they are written in.

A log filter, a dashboard, a database, a deployment and a shell script hold these names as text. Each test computes them
from the source or from what the package makes, and compares them with `tests/golden/outside_names.json`. A name that is
added on purpose gets its line there; a name that disappears breaks a program that is not in this repository.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import sqlite3
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import standfast
from standfast import SQLiteSession
from standfast._src.sessions.backends.redis.keys import Keys
from standfast._src.sessions.storage import Name

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(standfast.__file__).parent
FROZEN = json.loads((ROOT / "tests" / "golden" / "outside_names.json").read_text(encoding="utf-8"))
SPELLED_LIKE_A_NAME = re.compile(r"(?:standfast|gen_ai|server|error|exception)\.[a-z_.]+")


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the package, parsed, by its full name."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = ("standfast", *file.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def constants() -> Iterator[str]:
    """Every string of the package that is not a docstring."""
    for tree in trees().values():
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                yield node.value


def calls_of(name: str) -> Iterator[ast.Call]:
    """Every call of a function or method of that name."""
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
                yield node


def test_loggers_keep_their_names():
    named = [ast.unparse(argument) for call in calls_of("getLogger") for argument in call.args]
    assert sorted(set(named)) == FROZEN["loggers"]


def test_spans_attributes_and_metrics_keep_their_names():
    spelled = {text for text in constants() if SPELLED_LIKE_A_NAME.fullmatch(text)}
    loggers = {ast.literal_eval(name) for name in FROZEN["loggers"]}
    assert sorted(text for text in spelled - loggers if text not in trees()) == FROZEN["telemetry"]


def test_operational_events_keep_their_names_and_attributes():
    tables = [
        ast.literal_eval(re.sub(r"logging\.(\w+)", r'"\1"', ast.unparse(node.value)))
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and "EVENTS: Mapping[str, tuple[int, str]]" in ast.unparse(node)
        and node.value
    ]
    shown = {
        event: [level, *sorted(set(re.findall(r"%\((\w+)\)", line)))]
        for table in tables
        for event, (level, line) in table.items()
    }
    assert shown == FROZEN["operational events"]


def test_an_sqlite_file_keeps_its_tables(tmp_path: Path):
    file = tmp_path / "conversations.db"

    async def story() -> None:
        session = SQLiteSession("s", file)
        await session.add_items([{"role": "user", "content": "hi"}])
        await session.close()

    asyncio.run(story())
    connection = sqlite3.connect(file)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            table: sorted(row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")) for table in tables
        }
        indexes = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        found = {"tables": columns, "indexes": sorted(name for (name,) in indexes)}
    finally:
        connection.close()
    assert found == FROZEN["sqlite"]


def test_the_files_beside_the_modules_are_there_and_are_found():
    """SQL, Lua and the page are read as package data: each lies in a package from which somebody reads it."""
    data = [file for file in SOURCE.rglob("*") if file.suffix in {".sql", ".lua", ".html", ".css", ".js"}]
    assert sorted(file.name for file in data) == FROZEN["package data"]
    named = {ast.literal_eval(call.args[0]) for call in calls_of("files") if isinstance(call.args[0], ast.Constant)}
    folders = {file.parent for file in data if file.suffix in {".sql", ".lua"}}
    assert {Path(importlib.import_module(name).__path__[0]) for name in named} == folders


def test_postgres_keeps_its_tables_and_functions():
    (schema,) = SOURCE.rglob("schema.sql")
    text = schema.read_text(encoding="utf-8")
    made = re.findall(
        r"CREATE (?:OR REPLACE )?(?:TABLE|FUNCTION|TYPE|SEQUENCE|INDEX)(?: IF NOT EXISTS)? ([^\s(]+)", text
    )
    assert sorted(set(made)) == FROZEN["postgres"]


def test_redis_keys_keep_their_names():
    made = {
        layout: [key.decode() for kind in ("session", "run") for key in Keys("p", layout).of(Name(kind, "x"), 7).keys]
        for layout in ("sdk", "tagged")
    }
    assert made == FROZEN["redis"]


def test_lua_scripts_name_no_key_themselves():
    """Every key is an argument, so that the names of keys have one home."""
    for script in SOURCE.rglob("*.lua"):
        assert not re.findall(r"redis\.call\(\s*'[A-Z]+'\s*,\s*'", script.read_text(encoding="utf-8")), script.name


def test_every_module_that_a_child_process_is_started_with_is_there():
    named = []
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.List):
                items = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
                named += [after for flag, after in pairwise(items) if flag == "-m"]
    assert named
    assert [name for name in named if name not in trees()] == []


def test_entry_points_and_commands_keep_their_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {
        "scripts": sorted(project["scripts"]),
        "pytest plugins": sorted(project["entry-points"]["pytest11"]),
    } == FROZEN["entry points"]
    for place in (*project["scripts"].values(), *project["entry-points"]["pytest11"].values()):
        module, _, name = place.partition(":")
        found = importlib.import_module(module)
        assert not name or callable(getattr(found, name))
    for command in FROZEN["commands"]:
        folder = SOURCE.joinpath(*command.split(".")[1:])
        assert (folder / "__main__.py").is_file(), f"python -m {command}"


def test_public_paths_are_there():
    """What the documentation and the examples import besides `standfast` itself."""
    for path, names in FROZEN["public paths"].items():
        module = importlib.import_module(path)
        assert [name for name in names if not hasattr(module, name)] == [], path
