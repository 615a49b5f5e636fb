"""Stand-in for the distribution `openai-agents`, for packages that search it in `importlib.metadata`."""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[3]


class StandIn(Distribution):
    """Distribution without files: a name, a version, and its package."""

    def __init__(self, name: str, version: str, package: str) -> None:
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            "Summary: Answered by standfast, which has the public names of this version.\n",
            "top_level.txt": f"{package}\n",
            "INSTALLER": "standfast\n",
        }

    def read_text(self, filename: Any) -> str | None:
        """Return the text of a metadata file, if it exists."""
        return self._files.get(str(filename))

    def locate_file(self, path: Any) -> Path:
        """Return the path of a file beside the package `standfast`; the distribution lists none."""
        return PACKAGE / str(path)
