"""Bound of a stored item: a huge item would delay every session of a store (A6)."""

from __future__ import annotations

from collections.abc import Sequence

from standfast._src.base.errors import InvalidSettingError, ItemNotStorableError

ITEM_BYTES_MAX = 64 * 1024 * 1024
"""Bound of an item in a session without a setting."""
# Above the largest file that providers take, in base64. A server stores an item of 50 MB in seconds, and other sessions
# wait meanwhile; several hundred MB do not arrive before the deadline of a write.


def item_bytes_max(settings: object) -> int:
    """Return the bound of an item under a session's settings: of this package, of the SDK, a dict or None."""
    given = settings.get("max_item_bytes") if isinstance(settings, dict) else getattr(settings, "max_item_bytes", None)
    if given is None:
        return ITEM_BYTES_MAX
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidSettingError(
            f"max_item_bytes={given!r} is not a whole number of bytes", "Give a positive number, or None for 64 MiB."
        )
    return given


def check_item_sizes(records: Sequence[bytes], bound: int) -> None:
    """Raise ItemNotStorableError for the first encoded item above the bound."""
    for place, data in enumerate(records):
        if len(data) > bound:
            raise ItemNotStorableError(
                f"item {place} has {len(data):,} bytes, and this session stores items of at most {bound:,}",
                "Keep large contents elsewhere and name their place in the item, or give the session "
                "SessionSettings(max_item_bytes=...).",
            )
