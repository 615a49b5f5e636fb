"""What a page of the documentation may import: what the extras that it names bring, and nothing else that is here."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from run_blocks import blocks

ROOT = Path(__file__).resolve().parent.parent.parent
EXTRAS = re.compile(r"standfast\[([\w,-]+)\]")
INSTALLS = re.compile(r"pip install ([^\n`#]+)")
FROM_STANDFAST = "standfast"


def named(text: str) -> set[str]:
    """The requirements that a page names before its first block: `standfast[…]`, and packages that it installs."""
    before = "\n".join(text.splitlines()[: blocks(text)[0][0]])
    found = {f"standfast[{extra}]" for extras in EXTRAS.findall(before) for extra in extras.split(",")}
    for line in INSTALLS.findall(before):
        words = [word.strip("'\",.;:)") for word in line.split()]
        found |= {word for word in words if re.fullmatch(r"[a-z][\w-]*(\[[\w,-]+\])?", word)}
    return found | {FROM_STANDFAST}


@cache
def _project() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def brought(wanted: set[str]) -> set[str]:
    """The distributions that installing these brings, what they need included."""
    todo, seen, found = [Requirement(one) for one in wanted], set[tuple[str, str]](), set[str]()
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *one.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                found.add(name)
                todo += _needs(name, extra)
    return found


def _needs(name: str, extra: str) -> list[Requirement]:
    if name == FROM_STANDFAST:
        return [Requirement(line) for line in _project()[extra]]
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # of another system or Python
        return []
    needs = [Requirement(line) for line in lines]
    return [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]


@cache
def _owners() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())  # reads every installed package's list of files


def hidden(text: str) -> list[str]:
    """The modules that are installed here and would not be for somebody who installed what the page names."""
    there = brought(named(text))
    owners = _owners()
    return sorted(
        module
        for module, names in owners.items()
        if module != FROM_STANDFAST and not any(canonicalize_name(name) in there for name in names)
    )
