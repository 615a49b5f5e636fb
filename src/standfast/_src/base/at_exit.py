"""Work at the end of a process, also of a child process of multiprocessing."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable


class AtExit:
    """Calls `work` when the process ends; call `ensure` where there is something to do then, after a fork too.

    A child of multiprocessing never runs what `atexit` knows: it has a list of its own, which it empties at its start.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._told_in: int | None = None
        atexit.register(work)

    def ensure(self) -> None:
        """Register `work` in this process unless already registered; cheap to call again."""
        process, pid = sys.modules.get("multiprocessing.process"), os.getpid()
        if self._told_in == pid or process is None or process.parent_process() is None:
            return
        self._told_in = pid
        from multiprocessing.util import Finalize

        Finalize(None, self._work, exitpriority=0)
