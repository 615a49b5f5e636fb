"""Listing of a store's names, newest change first.

Each kind has an index, a sorted set whose scores only grow, and so has each label's value. An index may know a name
that no longer exists (it expired, or the SDK cleared it) or whose label has changed since: each is looked at before it
is shown, and wrong entries are removed. Sessions that only the SDK has written to are in no index: layout "sdk" walks
over the keys below its prefix when a listing begins, which costs what the database has, and puts them into the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from standfast._src.base.digits import whole_number
from standfast._src.sessions.backends.redis.keys import Keys, bucket_of, session_of, to_bytes, to_text
from standfast._src.sessions.backends.redis.sansio import Command, Exchange, answers
from standfast._src.sessions.backends.redis.scripts import TAKE_OUT, times_of
from standfast._src.sessions.storage import Kind, Listed, Listing, Name
from standfast._src.sessions.storage_helpers import NUMBER_MAX, labels_of, not_a_cursor

_ABOUT = ("standfast_epoch", "created_at", "updated_at", "standfast_created", "standfast_updated", "standfast_labels")
SCAN_COUNT = 1000


def page(keys: Keys, asked: Listing) -> Exchange[list[Listed]]:
    """Return a page of names."""
    kind, after, limit, labels = asked
    if after is None:
        yield from _adopt(keys, kind)
    indexes = yield from _indexes(keys, kind, labels)
    below = None if after is None else _parse_cursor(after)
    found: list[Listed] = []
    wrong: dict[bytes, list[tuple[bytes, int]]] = {}
    while len(found) < limit:
        batch = yield from _next(indexes, below, max(limit - len(found), 16))
        if not batch:
            break
        metas = [keys.of(Name(kind, id_), indexes[index]).keys[0] for _, id_, index in batch]
        abouts = yield from answers([("HMGET", meta, *_ABOUT) for meta in metas])
        for (score, id_, index), about in zip(batch, abouts, strict=True):
            below = (score, id_)
            created, updated = times_of(about)
            has = labels_of(about[5])
            if created is None or updated is None or any(has.get(key) != value for key, value in labels.items()):
                wrong.setdefault(index, []).append((to_bytes(id_), score))
            elif len(found) < limit:
                found.append(Listed(id_, created, updated, has, f"{score}:{id_}"))
    for index, some in wrong.items():
        yield from _remove_stale(index, some)
    return found


def _remove_stale(index: bytes, wrong: Sequence[tuple[bytes, int]]) -> Exchange[None]:
    """Take out of an index what was found to be wrong there, and has not come again since."""
    for start in range(0, len(wrong), SCAN_COUNT):
        flat = [part for id_, score in wrong[start : start + SCAN_COUNT] for part in (id_, b"%d" % score)]
        # Not `answers`: the caller may be allowed only to read. Then the entry stays there, and is passed over again.
        yield [("EVAL", TAKE_OUT[0], 1, index, *flat)], True


def count(keys: Keys, kind: Kind) -> Exchange[int]:
    """Count the names, after removing deleted names from the index."""
    yield from _adopt(keys, kind)
    total = 0
    for index, bucket in (yield from _indexes(keys, kind, {})).items():
        (entries,) = yield from answers([("ZRANGE", index, 0, -1, "WITHSCORES")])
        members = list(_pairs(entries))
        for start in range(0, len(members), SCAN_COUNT):
            some = members[start : start + SCAN_COUNT]
            metas = [keys.of(Name(kind, to_text(id_)), bucket).keys[0] for id_, _ in some]
            there = yield from answers([("EXISTS", meta) for meta in metas])
            gone = [entry for entry, exists in zip(some, there, strict=True) if not exists]
            yield from _remove_stale(index, gone)
            total += len(some) - len(gone)
    return total


def _indexes(keys: Keys, kind: Kind, labels: Mapping[str, str]) -> Exchange[dict[bytes, int]]:
    """Return the smallest index of all names with these labels for every bucket, each with its bucket."""
    found: dict[bytes, int] = {}
    # A session's runs are where it is.
    is_in_one = keys.layout == "tagged" and "session" in labels
    for bucket in (bucket_of(labels["session"]),) if is_in_one else keys.buckets:
        every = [keys.index(bucket, kind, label) for label in labels.items()] or [keys.index(bucket, kind)]
        sizes = (yield from answers([("ZCARD", index) for index in every])) if len(every) > 1 else [0]
        found[every[sizes.index(min(sizes))]] = bucket
    return found


Entry = tuple[int, str, bytes]
"""A score, the id that has it, and the index that says so."""


def _next(indexes: Iterable[bytes], below: tuple[int, str] | None, limit: int) -> Exchange[list[Entry]]:
    """Return the newest `limit` entries of all indexes together that come behind `below`."""
    start: str | int = "+inf" if below is None else below[0]
    which = (start, "-inf", "BYSCORE", "REV", "LIMIT", 0, limit + 1, "WITHSCORES")
    found: list[Entry] = []
    for index, entries in zip(indexes, (yield from answers([("ZRANGE", one, *which) for one in indexes])), strict=True):
        for id_, score in _pairs(entries):
            if below is None or (score, to_text(id_)) < below:
                found.append((score, to_text(id_), index))
    found.sort(key=lambda one: (one[0], one[1]), reverse=True)
    return found[:limit]


def _pairs(entries: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
    """Members with scores: flat in RESP2, in pairs in RESP3."""
    is_flat = not entries or not isinstance(entries[0], (list, tuple))
    pairs = zip(entries[::2], entries[1::2], strict=True) if is_flat else entries
    return ((member, int(float(score))) for member, score in pairs)


def _adopt(keys: Keys, kind: Kind) -> Exchange[None]:
    """Index the sessions written by the SDK alone, or by the SDK since our last write, at the time of writing."""
    if kind != "session" or keys.layout != "sdk":
        return
    index = keys.index(0, "session")
    pattern = to_bytes("".join(f"\\{c}" if c in "*?[]\\^-" else c for c in keys.prefix) + ":*")
    cursor: bytes | int | None = None
    adopted, behind = list[Command](), list[Command]()
    while cursor is None or int(cursor):
        ((cursor, found),) = yield from answers(
            [("SCAN", cursor or 0, "MATCH", pattern, "COUNT", SCAN_COUNT, "TYPE", "hash")]
        )
        ids = [(key, id_) for key in found if (id_ := session_of(key, keys.prefix)) is not None]
        if not ids:
            continue
        commands = [("HMGET", key, "updated_at", "standfast_updated", "session_id") for key, _ in ids]
        listed = ("ZMSCORE", index, *(to_bytes(id_) for _, id_ in ids))
        *abouts, scores = yield from answers([*commands, listed])
        for (_, id_), (seconds, own, said), score in zip(ids, abouts, scores, strict=True):
            at, is_ours = int(float(seconds or 0) * 1_000_000), False
            if own is not None and at <= int(own) + 1_000_000:
                at, is_ours = int(own), score is not None  # else the index was lost
            elif own is None and said is not None and to_text(said) != id_:
                continue  # a hash of another program
            if at > float(score or 0):
                (behind if is_ours else adopted).append(("ZADD", index, "GT", at, to_bytes(id_)))
    # Nothing is written where nothing is lacking: the caller may be allowed only to read. What leads an index is not
    # put there again by its next append, so it may have to be moved before what another program wrote meanwhile.
    every = [*adopted, *behind] if adopted else []
    for start in range(0, len(every), SCAN_COUNT):
        yield from answers(every[start : start + SCAN_COUNT])


def _parse_cursor(text: str) -> tuple[int, str]:
    score, colon, id_ = text.partition(":")
    number = whole_number(score, below=NUMBER_MAX) if colon else None
    if number is None:
        raise not_a_cursor(text)
    return number, id_
