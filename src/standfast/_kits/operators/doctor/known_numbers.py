"""The file in which the doctor remembers how often each session's lease was taken (`doctor --remember FILE`).

Lease numbers only grow. A store whose numbers are lower than remembered was put back to an earlier time. Session ids
stand there as digests: the file may be kept where the conversations must not be.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from standfast._src.base.errors import InvalidSettingError

SCHEMA = "standfast.doctor-numbers/1"


class KnownNumbers:
    """Lease numbers remembered in a file; empty before the first examination."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers: dict[str, int] = {}
        try:
            text = path.read_text(encoding="ascii")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise _unreadable(path) from error
        try:
            found = json.loads(text)
            if found["schema"] != SCHEMA:
                raise ValueError(found["schema"])
            self._numbers = {str(digest): int(number) for digest, number in found["numbers"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(path) from error

    def __call__(self, session_id: str) -> int:
        """Return the highest known lease number of a session; 0 if unknown."""
        return self._numbers.get(_digest(session_id), 0)

    def remember(self, numbers: Mapping[str, int]) -> None:
        """Replace the file, keeping the higher of both numbers for each session. A crash leaves the old file."""
        for session_id, number in numbers.items():
            if number:
                self._numbers[_digest(session_id)] = max(number, self(session_id))
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            with open(part, "x", encoding="ascii") as file:
                json.dump({"schema": SCHEMA, "numbers": self._numbers}, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise InvalidSettingError(
                f"{self._path} cannot be written: {error.strerror}", "Name a file in a folder that may be written to."
            ) from error


def _digest(session_id: str) -> str:
    return hashlib.blake2b(session_id.encode(errors="surrogatepass"), digest_size=9).hexdigest()


def _unreadable(path: Path) -> InvalidSettingError:
    return InvalidSettingError(
        f"{path} is not a file that the doctor wrote", "Name another file, or remove it if what it knew may be lost."
    )
