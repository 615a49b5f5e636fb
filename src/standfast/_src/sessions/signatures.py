"""Arguments that a foreign method accepts, decided from its signature alone.

A foreign session receives the run context only if it asks for it: every one of its four history methods has a parameter
literally named `wrapper` (C10). `**kwargs` is not asking, and an unreadable signature counts as a no.
"""

from __future__ import annotations

import inspect

HISTORY_METHODS = ("get_items", "add_items", "pop_item", "clear_session")

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def has_parameter(method: object, name: str) -> bool:
    """Return whether a callable has a parameter of exactly this name that can be given as a keyword."""
    if not callable(method):
        return False
    try:
        parameter = inspect.signature(method).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in _NAMED


def pass_wrapper(method: object) -> bool:
    """Return whether a method, such as `run_compaction`, receives the run context (C10)."""
    return callable(method) and has_parameter(method, "wrapper")


def accepts_wrapper(session: object) -> bool:
    """Return whether a session receives the run context: only if all four of its history methods ask for it."""
    return all(pass_wrapper(getattr(session, name, None)) for name in HISTORY_METHODS)
