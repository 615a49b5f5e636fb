"""To a type checker every public name is something: one that is `Any` there switches the checker off for its users."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from standfast._src.exports import table
from standfast._src.exports.sdk_paths import DOORS

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["standfast", *(f"standfast.{path}" for path in (*DOORS, *table.KITS))]


def kinds_seen_by_mypy(folder: Path, names: list[str]) -> dict[str, str]:
    """What mypy takes each of these names for, by the module it is imported from.

    Asked in one run with the settings and the cache of `./dev lint`: after that it takes a few seconds.
    """
    file = folder / "names_of_doors.py"
    imports = sorted({f"import {name.rpartition('.')[0]}" for name in names})
    file.write_text("\n".join([*imports, *(f"reveal_type({name})" for name in names)]), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    revealed = re.findall(rf'{file.name}:(\d+): note: Revealed type is "(.*)"$', said, re.M)
    return {names[int(line) - 1 - len(imports)]: kind for line, kind in revealed}


def test_no_public_name_is_any_through_its_door(tmp_path: Path):
    names = [f"{path}.{name}" for path in MODULES for name in getattr(import_module(path), "__all__", ())]
    kinds = kinds_seen_by_mypy(tmp_path, names)
    assert sorted(kinds) == sorted(set(names))
    assert [name for name, kind in kinds.items() if kind == "Any"] == []


def test_a_name_that_is_any_would_be_noticed(tmp_path: Path):
    """Inside, raw items are anything, under a name that says so; this one must not get out."""
    name = "standfast._src.items.fields.RawItem"
    assert kinds_seen_by_mypy(tmp_path, [name]) == {name: "Any"}
