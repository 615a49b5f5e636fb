"""Check and encode the arguments of a session's methods in the caller's task, before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from standfast._src.base.errors import CallerError, ItemNotStorableError, SettingTypeError
from standfast._src.base.identifiers import is_name
from standfast._src.base.json_values import DIGEST_BYTES, Item, digest, digest_many, encode_many
from standfast._src.base.type_names import describe_type
from standfast._src.sessions.item_sizes import check_item_sizes
from standfast._src.sessions.protocol import Head, Position
from standfast._src.sessions.rules.append import AppendBatch


def encoded_of(items: Iterable[Item], bound: int | None = None) -> list[bytes]:
    """Encode the items of a batch for storage; raise ItemNotStorableError for an item above `bound` bytes."""
    if type(items) is not list and not isinstance(items, Iterable):
        raise ItemNotStorableError(f"{describe_type(items)} is no batch of items", "Give a list of dicts.")
    encoded = encode_many(items)
    if bound is not None:
        check_item_sizes(encoded, bound)
    return encoded


def batch_of(
    items: Sequence[Item],
    writer: str,
    start: int,
    expect: Head | None,
    digests: Sequence[bytes] | None,
    bound: int | None = None,
) -> AppendBatch:
    """Check and encode the arguments of an append."""
    encoded = encoded_of(items, bound)
    known_by = digest_many(encoded) if digests is None else [_digest(given) for given in digests]
    if len(known_by) != len(encoded):
        raise CallerError(
            f"{len(encoded)} items came with {len(known_by)} digests", "Give one digest for each item, or none."
        )
    if type(start) is not int:
        check_ordinal(start)
    if expect is not None:
        check_head(expect)
    return AppendBatch(checked_writer(writer), start, encoded, known_by, expect)


def checked_writer(writer: object) -> str:
    """Return the name of a writer; raises CallerError for anything else."""
    if is_name(writer):
        return writer
    raise CallerError(
        f"{writer!r} is not the name of a writer", "Use a non-empty string of valid Unicode, for example the run's id."
    )


def check_ordinal(number: object) -> None:
    """Refuse a value that does not number an item."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise CallerError(f"{number!r} does not number an item", "Give how many items the writer wrote before it.")


def check_head(head: object, *, or_none: bool = False) -> None:
    """Refuse a value that is not a head: as a condition it would refuse every write."""
    if not isinstance(head, Head) and not (or_none and head is None):
        raise SettingTypeError(f"{describe_type(head)} is no head of a session", "Give what head() or a write gave.")


def check_position(at: object) -> None:
    """Refuse a value that is not a position to fork from."""
    if at is None or (isinstance(at, Position) and type(at.index) is int and isinstance(at.generation, str | None)):
        return
    raise SettingTypeError(
        f"{at!r} is no position of a history", "Give Position(how many items), with a generation's id for a kept one."
    )


def checked_timeout(timeout_s: object) -> float:
    """Return a deadline in seconds; raises CallerError for anything else."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise CallerError(f"a timeout_s of {timeout_s!r} leaves no time", "Give a positive number of seconds.")
    return float(timeout_s)


def _digest(given: bytes) -> bytes:
    """Return a digest of the stored length, whatever the length of the caller's digest."""
    return given if len(given) == DIGEST_BYTES else digest(given)
