"""Ctrl-C at every place of our code at which Python would notice it, one after the other."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from typing import Any

LOOKS = ("CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD")
"""Behind these the interpreter looks whether a signal has come."""


class Interrupt:
    """Raises KeyboardInterrupt at the place number `at` of our code at which a signal could be noticed.

    `files` are the names of the modules that are ours; where a thread is started, waiting for it is a place, too.
    """

    def __init__(self, at: int, files: Collection[str]) -> None:
        self._left, self._files, self._last = at, files, dict[int, str]()
        self.is_raised = False

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        is_ours = path.name in self._files and "standfast" in path.parts
        if not is_ours and frame.f_code is not threading.Thread.start.__code__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._last[id(frame)] = ""
        return self._at

    def _at(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            del self._last[id(frame)]
            if frame.f_back is not None and id(frame.f_back) in self._last:
                self._last[id(frame.f_back)] = ""  # where a function of ours returns nobody looks
        elif event == "opcode":
            before = self._last[id(frame)]
            self._last[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in LOOKS:
                self._left -= 1
                if self._left < 0:
                    self.is_raised = True
                    raise KeyboardInterrupt
        return self._at
