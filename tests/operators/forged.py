"""Exported files as a stranger can write them: any line changed, and the last one made to agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

Change = Callable[[dict[str, Any]], None]


def closed(lines: Sequence[bytes]) -> bytes:
    """These lines with a last line that counts and digests them, as anyone can write it."""
    body = b"".join(lines)
    records = sum(b'"kind":"record"' in line[:40] or b'"kind": "record"' in line[:40] for line in lines)
    digest = blake2b(body, digest_size=16).hexdigest()
    end = {"kind": "end", "lines": len(lines), "records": records, "blake2b": digest}
    return body + json.dumps(end).encode() + b"\n"


def forged(data: bytes, kind: str, change: Change) -> bytes:
    """The file with the lines of a kind changed ("": the first line)."""
    lines = []
    for place, line in enumerate(data.splitlines(keepends=True)[:-1]):
        values = json.loads(line)
        if values.get("kind", "") == kind or (not kind and not place):
            change(values)
            line = json.dumps(values).encode() + b"\n"
        lines.append(line)
    return closed(lines)


def with_line(data: bytes, line: dict[str, Any] | bytes) -> bytes:
    """The file with one more line before its last."""
    given = line if isinstance(line, bytes) else json.dumps(line).encode()
    return closed([*data.splitlines(keepends=True)[:-1], given + b"\n"])
