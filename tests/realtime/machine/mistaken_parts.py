"""`Exchange` and `Link` of a call with a mistake of the registry in them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tests.mistakes.planting import copied_module, wrong_module
from tests.mistakes.registry import Mistake


def wrong_parts(mistake: Mistake) -> dict[str, Any]:
    """Return the parts of a call that this mistake changes, made beside the package."""
    name = mistake.module.rpartition(".")[2]
    changed = wrong_module(mistake)
    if name == "link":
        return {"Link": changed.Link}
    if name == "exchange":
        return {"Exchange": changed.Exchange}
    if name in ("calling", "joining", "surviving"):
        changed = _using(changed, "advance", mistake.id)
    return {"Exchange": _using(changed, "exchange", mistake.id).Exchange}


def _using(changed: Any, name: str, title: str) -> Any:
    """Return a copy of the module of this name that uses what the changed one defines in place of what it imports."""
    original = importlib.import_module(f"standfast._src.realtime.machine.{name}")
    made = copied_module(original.__name__, Path(str(original.__file__)).read_text(encoding="utf-8"), title)
    for own, value in vars(changed).items():
        if callable(value) and getattr(value, "__module__", "") == changed.__name__ and hasattr(made, own):
            setattr(made, own, value)
    return made
