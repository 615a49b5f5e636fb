"""What standfast logs, shown without setting up logging: for looking at a program while writing it."""

from __future__ import annotations

import logging
import sys


def enable_verbose_stdout_logging() -> None:
    """Print everything that standfast logs, debug messages too, to standard output. Again changes nothing."""
    logger = logging.getLogger("standfast")
    logger.setLevel(logging.DEBUG)
    if not any(getattr(handler, "stream", None) is sys.stdout for handler in logger.handlers):
        logger.addHandler(logging.StreamHandler(sys.stdout))
