"""Plant a mistake of the registry in this process: in the package as it is imported, or in a module beside it."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from tests.mistakes.registry import Mistake


@contextlib.contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Put the mistake into the imported package, in place, and take it out at the end."""
    module = importlib.import_module(mistake.module)
    before = dict(vars(module))
    exec(compile(mistake.wrong_source(), f"<{mistake.id}>", "exec"), vars(module))
    changed = {name: value for name, value in before.items() if callable(value) and vars(module)[name] is not value}
    elsewhere = list(_holders(module, changed))
    for owner, name, _ in elsewhere:
        setattr(owner, name, vars(module)[name])
    derived = [(one, old, vars(module)[name]) for name, old in changed.items() for one in _derived_from(old)]
    for one, old, new in derived:
        one.__bases__ = tuple(new if base is old else base for base in one.__bases__)
    try:
        yield
    finally:
        for one, old, new in derived:
            one.__bases__ = tuple(old if base is new else base for base in one.__bases__)
        for owner, name, value in elsewhere:
            setattr(owner, name, value)
        vars(module).clear()
        vars(module).update(before)


def _holders(module: Any, changed: dict[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    """Yield the modules of the package that imported what is changed by its name."""
    for owner_name, owner in list(sys.modules.items()):
        if owner is not module and owner_name.startswith("standfast."):
            yield from ((owner, name, value) for name, value in changed.items() if vars(owner).get(name) is value)


def _derived_from(changed: Any) -> list[type]:
    """Return the classes of other modules that derive from a changed one: they are not made anew with it."""
    return (
        [one for one in changed.__subclasses__() if one.__module__ != changed.__module__]
        if isinstance(changed, type)
        else []
    )


def wrong_module(mistake: Mistake) -> Any:
    """Return a second copy of the module with the mistake in it, which the package does not import."""
    return copied_module(mistake.module, mistake.wrong_source(), mistake.id)


def copied_module(name: str, source: str, title: str) -> Any:
    """Return a module of this name that is made of this source and is not registered anywhere."""
    made = types.ModuleType(name)
    made.__package__ = name.rpartition(".")[0]
    exec(compile(source, f"<{title}>", "exec"), made.__dict__)
    return made
