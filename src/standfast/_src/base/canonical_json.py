"""The canonical form of a JSON value: bytes that are equal exactly for equal values.

Comparing content is a last resort, for a filter's output, a foreign session's items and a compaction's input. All of
them compare this form, so that no two places can disagree about equality.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical_json(value: object) -> bytes:
    """The value's bytes with keys in order; never raises for JSON, and compares other objects by their `repr`."""
    try:
        return _encode_sorted(value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        # Numbers and texts that only Python's json can write. Whether we get here depends on the content alone, so two
        # equal values always take the same way.
        try:
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
        except (TypeError, ValueError, RecursionError):  # keys of several kinds, or a value that holds itself
            text = repr(value)
        return text.encode("utf-8", "surrogatepass")


def count_equal(one: Sequence[object], other: Sequence[object]) -> int:
    """Count the equal values at the beginning of two sequences."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
