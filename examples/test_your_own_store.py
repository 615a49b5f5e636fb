"""A session store of your own, held to the contract: forty lines of store, five lines of test.

Run it with `pytest examples/test_your_own_store.py`, or as a program. The last thing it prints is a scorecard.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from standfast import InvalidLimitError
from standfast.conformance import Backend, suite


class JsonFileSession:
    """A conversation as one JSON file, which every change replaces whole."""

    session_settings = None

    def __init__(self, session_id: str, folder: Path) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise ValueError("a session id is a non-empty string")
        self.session_id = session_id
        # Any string may be an id, and few may be a file name.
        self.path = folder / f"{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()}.json"

    async def get_items(self, limit: int | None = None) -> list[dict]:
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidLimitError(f"{limit!r} is no limit", "Give a number of items, or None.")
        items = json.loads(self.path.read_bytes()) if self.path.exists() else []
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[dict]) -> None:
        for item in items:
            if not isinstance(item, dict) or json.loads(json.dumps(item, allow_nan=False)) != item:
                raise TypeError("an item is a JSON object")
        with self.locked():
            self.write(await self.get_items() + items)

    async def pop_item(self) -> dict | None:
        with self.locked():
            *rest, newest = [None, *await self.get_items()]
            self.write(rest[1:])
            return newest

    async def clear_session(self) -> None:
        with self.locked():
            self.path.unlink(missing_ok=True)

    def write(self, items: list[dict]) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(items))
        new.replace(self.path)

    @contextmanager
    def locked(self):
        with open(self.path.with_suffix(".lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class JsonFiles(Backend):
    name = "a JSON file per conversation"
    persistent, files, settings, deadlines = True, True, False, False
    not_applicable = {  # noqa: RUF012 — the kit only reads it
        "A3": "it has no settings",
        "A8": "it never retries",
        "A14": "a file is valid or it is not: single records cannot be corrupt",
        "A15": "it has no names to configure",
        "A19": "it keeps nothing open, so there is nothing to close",
        "A20": "nothing expires",
    }

    def open(self, session_id, **options):
        return JsonFileSession(session_id, self.folder)


TestJsonFiles = suite(JsonFiles(), parts="A")

if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "--conformance-rounds=5", "-p", "no:cacheprovider"]))
