"""Exit codes: the end of a command, for the shell and in words.

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
    """Invalid command line."""


class RefusedError(CallerError):
    """Refusal by a rule or by a person; nothing was changed."""


class BrokeOffError(StandfastError):
    """Interrupted work that can be repeated: finished parts stay, and a repetition does the rest."""


# The first that fits counts: special types precede general ones.
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
    """Return the exit code of an error; DEFECT for an unforeseen error."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BROKE_OFF
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    return UNREACHABLE if isinstance(error, OSError) else DEFECT


class Ending(NamedTuple):
    """Failure of a command: exit code, message and remedy."""

    code: int
    what: str
    remedy: str = ""


def ending_of(error: BaseException) -> Ending:
    """Describe an error as the failure of a command."""
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
    """Return the exit code of a command, after running a coroutine to its end."""
    if isinstance(ending, int):
        return ending
    import asyncio

    return asyncio.run(ending)
