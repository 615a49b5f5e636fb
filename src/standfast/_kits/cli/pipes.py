"""Handling of a pipe without a reader."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # type checkers know the name; `typing` is slow to import, and this is imported for `--help`
if TYPE_CHECKING:
    from typing import TextIO


def point_nowhere(stream: TextIO) -> None:
    """Discard buffered output, so that Python does not complain about the closed pipe at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # it is no file, and complains of nothing
