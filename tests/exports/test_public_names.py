"""Every public name can be imported, costs nothing until used, and is documented."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import standfast
from standfast._src.base import extras
from standfast._src.exports import table
from standfast._src.exports.sdk_paths import DOORS
from tests.helpers.tables import for_each
from tools import names as tool

ROOT = Path(__file__).resolve().parents[2]
NAMES = [(home, name) for home, names in table.PUBLIC.items() for name in names]


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


THIRD_PARTY_LOADED = """
import sys
known = set(sys.modules)  # what site customisation loads before any program runs is not ours
{statement}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - known}}
print(*sorted(loaded - set(sys.stdlib_module_names) - {{"standfast"}}))
"""


# --- what importing costs --------------------------------------------------------------------------------------------


def test_import_standfast_loads_no_third_party_package():
    assert in_a_new_process(THIRD_PARTY_LOADED.format(statement="import standfast")) == ""


def test_import_standfast_loads_no_event_loop_and_no_database():
    loaded = in_a_new_process("import sys, standfast; print(*sys.modules)").split()
    assert not {"asyncio", "sqlite3", "inspect", "dataclasses", "json"} & set(loaded)


def test_using_sessions_loads_only_the_json_library():
    statement = "from standfast import SessionABC, SessionSettings, abilities, SessionConflictError"
    assert in_a_new_process(THIRD_PARTY_LOADED.format(statement=statement)).split()[:1] == ["msgspec"]


# --- that every name is there ----------------------------------------------------------------------------------------


@for_each(("home", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_public_name_resolves_from_standfast(home: str, name: str):
    assert getattr(standfast, name) is getattr(import_module(f"standfast.{home}"), name)


CLASSES = [(name, value) for _, name in NAMES if inspect.isclass(value := getattr(standfast, name))]


def resolves(value: type) -> bool:
    try:
        get_type_hints(value)
    except NameError:
        return False
    return True


def test_the_type_hints_of_public_classes_resolve():
    """As pydantic and msgspec resolve them: in the module that `__module__` names."""
    ours = [(name, value) for name, value in CLASSES if value.__module__.partition(".")[0] == "standfast"]
    assert [name for name, value in ours if not resolves(value)] == []


def test_tracebacks_name_errors_by_the_path_they_are_imported_from():
    errors = {value for _, value in CLASSES if issubclass(value, standfast.StandfastError)}
    assert {value.__name__ for value in errors if value.__module__ != "standfast"} == set()
    of_kits = [
        (path, value)
        for path in table.KIT_PATHS
        for name in getattr(import_module(f"standfast.{path}"), "__all__", ())
        if inspect.isclass(value := getattr(import_module(f"standfast.{path}"), name)) and issubclass(value, Exception)
    ]
    assert len(of_kits) > 5
    found = [getattr(import_module(kind.__module__), kind.__name__, None) for _, kind in of_kits]
    assert found == [kind for _, kind in of_kits]
    assert [kind for _, kind in of_kits if "._" in kind.__module__] == []
    assert pickle.loads(pickle.dumps(standfast.UserError("what", "remedy"))).remedy == "remedy"


def test_no_name_is_listed_twice():
    names = [name for _, name in NAMES]
    assert sorted(names) == sorted(set(names))


def test_dir_and_all_show_every_public_name():
    expected = {name for _, name in NAMES}
    assert set(standfast.__all__) == expected
    assert expected <= set(dir(standfast))


@for_each("path", list(DOORS))
def test_each_door_offers_its_names(path: str):
    module = import_module(f"standfast.{path}")
    for name, home in table.homes(path).items():
        assert getattr(module, name) is getattr(import_module(f"standfast.{home}"), name)
    assert sorted(module.__all__) == sorted(table.homes(path))


def test_no_public_name_is_also_a_module():
    """Importing `standfast.x` the module would silently replace `standfast.x` the function."""
    modules = {entry.stem for entry in Path(standfast.__file__).parent.iterdir()}
    assert not modules & {name for _, name in NAMES}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'standfast' has no attribute 'Sesion'"):
        standfast.Sesion  # noqa: B018
    with pytest.raises(ImportError):
        exec("from standfast.extensions.memory import NoSuchSession")


@for_each("path", DOORS)
def test_every_name_behind_a_door_has_a_home(path: str):
    assert set(DOORS[path].split()) <= table.homes(path).keys()


def test_a_name_whose_package_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setitem(extras.EXTRAS, "msgspec", "json")
    monkeypatch.delitem(sys.modules, "standfast._src.base.json_values", raising=False)
    monkeypatch.delitem(sys.modules, "standfast._src.sessions.protocol", raising=False)
    lookup: Any = standfast.__getattr__
    with pytest.raises(ImportError, match=r"Session needs the package 'msgspec'.*standfast\[json\]"):
        lookup("Session")


# --- that every name is documented -----------------------------------------------------------------------------------


KIT_NAMES = [(kit, name) for kit in table.KITS for name in getattr(import_module(f"standfast.{kit}"), "__all__", ())]
DOCUMENTED = [*NAMES, *KIT_NAMES]
DOCUMENTED_IDS = [f"{home}.{name}" for home, name in DOCUMENTED]


@for_each(("home", "name"), DOCUMENTED, ids=DOCUMENTED_IDS)
def test_a_public_name_has_a_docstring(home: str, name: str):
    assert tool.documentation(home, name).strip(), f"{home}.{name} needs a docstring (or a string below its assignment)"


@for_each(("home", "name"), DOCUMENTED, ids=DOCUMENTED_IDS)
def test_the_public_methods_of_a_public_class_have_docstrings(home: str, name: str):
    value = getattr(import_module(f"standfast.{home}"), name)
    if not inspect.isclass(value) or not value.__module__.startswith("standfast"):
        return
    silent = [
        method
        for method, member in vars(value).items()
        if not method.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod))
        and not inspect.getdoc(getattr(value, method))
    ]
    assert not silent, f"{name}: {', '.join(silent)} lack a docstring"


@cache
def reference_pages() -> list[str]:
    return [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")]


@for_each(("home", "name"), DOCUMENTED, ids=DOCUMENTED_IDS)
def test_a_public_name_is_in_the_reference(home: str, name: str):
    assert any(f"`{name}`" in page for page in reference_pages()), f"{name} is not in docs/reference; run ./dev names"


def test_what_is_written_from_the_table_is_up_to_date():
    """`__init__` modules with their imports for type checkers, alias modules, the reference of names."""
    stale = [
        str(file.relative_to(ROOT))
        for file, text in tool.written_files().items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"run ./dev names; it would rewrite {stale}"


def test_no_alias_module_is_left_over():
    """A module written for an entry that is gone from the table would keep an old path alive, untested."""
    written = set(tool.written_files())
    marked = [
        file
        for file in (ROOT / "src").rglob("*.py")
        if "Written by `./dev names`" in (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
    ]
    assert not [file for file in marked if file not in written]
