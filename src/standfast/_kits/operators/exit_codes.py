"""Exit codes: how a command ended, told to the shell and in words.

The one place that knows which error is which code. A command raises what its store raises; it returns DONE or FOUND.
"""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any, NamedTuple

from standfast._src.base import errors
from standfast._src.base.errors import CallerError, StandfastError

DONE, FOUND, USAGE, NOT_THERE, UNREACHABLE, REFUSED, BROKE_OFF, DEFECT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 70, 130


class UsageError(CallerError, ValueError):
    """A command line that cannot be understood."""


class RefusedError(CallerError):
    """Something that is not done as it was asked for, or that a person did not agree to; nothing was changed."""


class BrokeOffError(StandfastError):
    """Work that stopped in the middle and can be repeated: what was done stays, the rest is done the next time."""


# The first that fits counts: what is special stands before what is general.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (KeyboardInterrupt, INTERRUPTED),
    (UsageError, USAGE),
    (RefusedError, REFUSED),
    (BrokeOffError, BROKE_OFF),
    (errors.NotFoundError, NOT_THERE),
    (errors.UnknownSchemeError, USAGE),
    (errors.InvalidLimitError, USAGE),
    (errors.InvalidSettingError, USAGE),
    (errors.InvalidSessionIdError, USAGE),
    (errors.InvalidNameError, USAGE),
    (errors.SettingTypeError, USAGE),
    (errors.StoreReadOnlyError, REFUSED),
    (errors.SchemaTooNewError, REFUSED),  # it is there and can be reached; this release must not touch it
    (errors.StoreUnavailableError, UNREACHABLE),
    (errors.StoreTimeoutError, UNREACHABLE),
    (errors.OutcomeUnknownError, BROKE_OFF),
    (errors.StoreFullError, BROKE_OFF),
    (errors.PartialBatchError, BROKE_OFF),
    (errors.ModelError, BROKE_OFF),
    (StandfastError, REFUSED),
    (FileNotFoundError, NOT_THERE),
    (PermissionError, REFUSED),
    (TimeoutError, UNREACHABLE),
    (ImportError, UNREACHABLE),
)


def code_of(error: BaseException) -> int:
    """The exit code of an error; DEFECT for one that nobody has thought of."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BROKE_OFF
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    return UNREACHABLE if isinstance(error, OSError) else DEFECT


class Ending(NamedTuple):
    """How a command failed: its exit code, what happened, and what to do about it."""

    code: int
    what: str
    remedy: str = ""


def ending_of(error: BaseException) -> Ending:
    """What is to be said of an error."""
    code = code_of(error)
    if code == DEFECT:
        return Ending(code, f"a defect of standfast: {type(error).__name__}: {error}", "Please report it.")
    if code == INTERRUPTED:
        return Ending(code, "interrupted")
    if isinstance(error, StandfastError):
        return Ending(code, error.what, error.remedy)
    return Ending(code, _explain(error))


def _explain(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def run_to_exit_code(ending: int | Coroutine[Any, Any, int]) -> int:
    """The exit code of a command, which is carried out first where it is a coroutine."""
    if isinstance(ending, int):
        return ending
    import asyncio

    return asyncio.run(ending)
