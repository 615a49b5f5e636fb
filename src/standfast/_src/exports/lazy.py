"""Lazy lookup of names: the only file that reaches modules it does not import.

`standfast` offers everything, and a program uses little of it. A module that calls `lazy` gets its names from the table
in `table`, imports a name's home at the first use of that name, and keeps the value, so that the second use is a plain
attribute; a public module below it (`standfast.run`) is an attribute too. The error for a missing name has the reason:
no such name, a name that standfast lacks with its replacement, or the extra to install.
"""

from __future__ import annotations

import sys

# The tables and what serves them are imported at the first name that is looked up: `standfast --help` needs none of it,
# and every process pays for what this file imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROOT = __name__.partition(".")[0]


def lazy(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module, by `table`."""
    path = module.removeprefix(ROOT).removeprefix(".")
    tables: list[tuple[dict[str, str], set[str]]] = []  # one, once they were needed

    def looked_up() -> tuple[dict[str, str], set[str]]:
        if not tables:
            tables.append(_tables(path))
        return tables[0]

    def resolve(name: str) -> Any:
        home_of, doors = looked_up()
        if name == "__all__":  # asked for by `from … import *`
            return sorted(home_of)
        if name not in home_of:
            if name in doors:
                from importlib import import_module

                return import_module(f"{module}.{name}")  # which sets the attribute, too
            from standfast._src.exports.absent import absent

            if reason := absent(path, name):
                raise ImportError(reason, name=module)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(_import_home(home_of[name], name), name)
        setattr(sys.modules[module], name, value)
        return value

    def offer() -> list[str]:
        return sorted({*vars(sys.modules[module]), *looked_up()[0]})

    return resolve, offer


def _tables(path: str) -> tuple[dict[str, str], set[str]]:
    """Return a module's names, each with its home, and the public modules below it."""
    from standfast._src.exports.sdk_paths import DOORS
    from standfast._src.exports.table import homes

    below = f"{path}." if path else ""
    return homes(path), {door.removeprefix(below).partition(".")[0] for door in DOORS if door.startswith(below)}


def forward(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the public path of a kit, which looks names up in the kit's module."""

    def resolve(name: str) -> Any:
        from importlib import import_module

        from standfast._src.exports.sdk_paths import DOORS
        from standfast._src.exports.table import KIT_PATHS

        path = module.removeprefix(f"{ROOT}.")
        if f"{path}.{name}" in KIT_PATHS or f"{path}.{name}" in DOORS:
            return import_module(f"{module}.{name}")
        if name == "__all__":
            return list(getattr(import_module(f"{ROOT}.{KIT_PATHS[path]}"), "__all__", ()))
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{ROOT}.{KIT_PATHS[path]}"), name)
        except AttributeError:
            raise AttributeError(f"module {module!r} has no attribute {name!r}") from None
        setattr(sys.modules[module], name, value)
        return value

    def offer() -> list[str]:
        return sorted({*vars(sys.modules[module]), *resolve("__all__")})

    return resolve, offer


def edge(home: str) -> Any:
    """Import a module below `standfast` at its first use, for a caller that needs a part of the edge."""
    if home not in _edges:
        _edges[home] = _import_home(home, home)
    return _edges[home]


_edges: dict[str, Any] = {}
# Kept here and not looked for in sys.modules: there, another thread finds a module that is still being imported.


class _Explanations:
    """Last finder of modules: explains a missing module of the SDK.

    A finder and not modules that fail, because the SDK's packages about such things have modules without number.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise the explanation of `absent` for a module of this name; never find a module."""
        root, _, module = name.partition(".")
        if root != ROOT:
            return
        from standfast._src.exports.absent import absent_module

        if reason := absent_module(module):
            raise ModuleNotFoundError(reason, name=name)


if not any(getattr(finder, "__name__", "") == _Explanations.__name__ for finder in sys.meta_path):
    sys.meta_path.append(_Explanations)


def _import_home(home: str, name: str) -> Any:
    from importlib import import_module

    from standfast._src.base.extras import needed_by
    from standfast._src.exports.table import LOADED_WITH

    with needed_by(name):
        module = import_module(f"{ROOT}.{home}")
        if home in LOADED_WITH:
            import_module(f"{ROOT}.{LOADED_WITH[home]}")
        return module
