"""Session stores that break one promise each, on purpose, and are right otherwise.

Each is the reference, or SQLite, or a small file store, with one mistake that a person could make. The kit has to see
every one of them, by the clause it breaks: `BROKEN` says which. A kit that lets one through has no teeth there.
"""

from tests.conformance.mistakes import (
    abilities,
    databases,
    files,
    history,
    interruptions,
    lifetime,
    looking,
    steps,
    values,
    whole_stores,
)
from tests.conformance.mistakes.mistake import BROKEN, Mistake

__all__ = [
    "BROKEN",
    "Mistake",
    "abilities",
    "databases",
    "files",
    "history",
    "interruptions",
    "lifetime",
    "looking",
    "steps",
    "values",
    "whole_stores",
]
