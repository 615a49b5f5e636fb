"""What the journals of `session_actors` say must be in a history, and what is wrong with the one that is there.

Every item that was acknowledged is there exactly once, itself or through a summary, unless somebody popped, rewound or
cleared it; nothing that was cleared is there; what one process added is in the order in which it did; a batch is whole
and nobody's is inside another's; and one head is the head of one history, whoever saw it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Deed:
    """One operation: from when to when it may have taken effect."""

    op: str
    since: float
    until: float = math.inf
    names: list[str] = field(default_factory=list)
    is_done: bool = False
    is_cut: bool = False
    is_refused: bool = False
    """It raised that nothing was done, and that nothing will be."""


@dataclass
class Books:
    """All journals of one story, for one session."""

    deeds: list[Deed] = field(default_factory=list)
    heads: dict[str, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))
    reads: list[list[str]] = field(default_factory=list)


def read(folder: Path, name: str) -> Books:
    """What every process wrote about this session."""
    books = Books()
    for path in sorted(folder.glob("*.journal")):
        last: Deed | None = None
        for line in path.read_text().splitlines():
            told = json.loads(line)
            op, at = told["op"], told["at"]
            if op == "saw":
                if told["s"] == name:
                    books.heads[told["head"]].add(tuple(told["names"]))
            elif op == "read":
                if told["s"] == name:
                    books.reads.append(told["names"])
            elif op in ("done", "cut", "answer"):
                if last is not None:
                    last.until = at
                    last.is_done = op == "done"
                    last.is_refused = told.get("error") in ("SessionConflictError", "StoreTimeoutError")
                    last.is_cut = op == "cut" or last.is_refused
                    if op == "done" and "names" in told:
                        last.names = told["names"]
                    last = None
            elif op in ("ended", "died"):
                last = None
            else:
                last = Deed(op, at, names=told.get("names", []))
                if told["s"] == name:
                    books.deeds.append(last)
    return books


def wrongs(books: Books, history: list[str]) -> list[str]:
    """What is wrong with this (unfolded) history."""
    found: list[str] = []
    there = Counter(history)
    found += [f"{name} is there {count} times" for name, count in there.items() if count > 1]
    of = defaultdict(list)
    for deed in books.deeds:
        of[deed.op].append(deed)
    popped = {name for deed in of["pop"] if deed.is_done for name in deed.names}
    rewound = {name for deed in of["rewind"] for name in deed.names}
    # What a summary stands for is not taken back with its writer's number, once the original is no longer kept.
    surely_rewound = {name for deed in of["rewind"] if deed.is_done and not of["replace"] for name in deed.names}
    lost_pops = sum(not deed.is_done and not deed.is_cut for deed in of["pop"])
    missing: list[str] = []
    added: set[str] = set()
    for deed in of["add"]:
        added.update(deed.names)
        for name in deed.names:
            cleared = [clear for clear in of["clear"] if clear.until > deed.since]
            if not there[name] and deed.is_done and name not in popped and name not in rewound and not cleared:
                missing.append(name)
            if there[name] and deed.is_refused:
                found.append(f"{name} was refused and is there")
            if there[name] and not of["restore"] and name in popped | surely_rewound:
                found.append(f"{name} was taken and is there")
            if there[name] and any(clear.since > deed.until and clear.is_done for clear in of["clear"]):
                found.append(f"{name} was cleared and is there")
    if len(missing) > lost_pops and not (lost_pops and of["replace"]):
        found.append(f"missing: {missing} ({lost_pops} pops of killed processes)")
    found += [f"{name} was never added" for name in there if name not in added]
    found += _order(history)
    if not of["pop"] and not of["rewind"]:
        for names in [history, *books.reads]:
            found += _whole(names)
    for head, histories in books.heads.items():
        if len(histories) > 1:
            found.append(f"head {head} of {len(histories)} histories: {sorted(histories)}")
    return found


def _order(names: list[str]) -> list[str]:
    """Of one process: in the order in which it added them; and no batch inside another."""
    found: list[str] = []
    newest: dict[str, tuple[int, int]] = {}
    for name in names:
        _, who, batch, place, _ = name.split(":")
        here = (int(batch), int(place))
        if newest.get(who, (0, 0)) >= here:
            found.append(f"{name} stands behind {newest[who]} of the same process")
        newest[who] = here
    runs = [name.rsplit(":", 2)[0] for name in names]
    starts = [one for before, one in zip(["", *runs], runs, strict=False) if before != one]
    found += [f"batch {one} is in pieces" for one, count in Counter(starts).items() if count > 1]
    return found


def _whole(names: list[str]) -> list[str]:
    counted = Counter(name.rsplit(":", 2)[0] for name in names)
    size = {name.rsplit(":", 2)[0]: int(name.rsplit(":", 1)[1]) for name in names}
    return [f"batch {one} has {count} of {size[one]}" for one, count in counted.items() if count != size[one]]


def told(found: dict[Any, list[str]]) -> str:
    """For an assertion."""
    return "\n".join(f"{seed}: {wrong}"[:600] for seed, all_of in found.items() for wrong in all_of[:6])
