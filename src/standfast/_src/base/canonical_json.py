"""The one canonical form of a JSON value: bytes that are equal exactly when two values say the same.

Likeness decides only where the outside gives nothing better: what a filter sent, what stands in a plain session, what a
compaction saw. All of them compare this form, so that no two of them can disagree about what is alike.
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
    """How many values two sequences have in common from the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
