"""What may be passed to somebody else's method, decided from its signature alone.

A session written by others receives the run context only if it asked for it: every one of its four history methods
has a parameter literally named `wrapper` (C10). `**kwargs` is not asking, and a signature that cannot be read is a no.
"""

from __future__ import annotations

import inspect

HISTORY_METHODS = ("get_items", "add_items", "pop_item", "clear_session")

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def has_parameter(method: object, name: str) -> bool:
    """Whether a callable can be given the keyword `name` because it has a parameter of exactly that name."""
    if not callable(method):
        return False
    try:
        parameter = inspect.signature(method).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in _NAMED


def pass_wrapper(method: object) -> bool:
    """Whether one method, such as `run_compaction`, is to receive the run context (C10)."""
    return callable(method) and has_parameter(method, "wrapper")


def accepts_wrapper(session: object) -> bool:
    """Whether a session is to receive the run context: all four of its history methods ask for it, or none gets it."""
    return all(pass_wrapper(getattr(session, name, None)) for name in HISTORY_METHODS)
