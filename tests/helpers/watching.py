"""Watching runs in tests: the facts of what was told, and a process that is cut off after a few updates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any

from helpers.processes import Child, Line

from standfast import Runner
from tests.helpers.stores import opened

Told = dict[str, Any]
"""An update as JSON."""


async def watch_some(
    line: Line, *, where: str, session_id: str | None, run_id: str, after: str | None, count: int
) -> list[Told]:
    """Watch until so many updates were told, or the run has ended; then end as somebody whose connection is cut."""
    session, told = opened(where, session_id or "-"), []
    given: Any = {"session": session} if session_id is not None else {"run_store": session.run_store()}
    try:
        async with aclosing(Runner.watch(run_id, after=after, poll_s=0.02, **given)) as updates:
            async for update in updates:
                told.append(update.to_json())
                if len(told) == count:
                    break
    finally:
        await session.close()
    return told


async def watched_in_pieces(
    where: str, run_id: str, session_id: str | None, seen: Callable[[Told], None] = lambda one: None
) -> list[Told]:
    """Everything that is told of a run to watchers of which each is cut off after one update: a process for each."""
    told: list[Told] = []
    while not told or told[-1]["type"] != "run_ended":
        after = told[-1]["cursor"] if told else None
        more = await asyncio.to_thread(_one_piece, where, session_id, run_id, after)
        assert more, f"nothing was told behind {after}"
        told += more
        for one in more:
            seen(one)
    assert await asyncio.to_thread(_one_piece, where, session_id, run_id, told[-1]["cursor"]) == []
    return told


def _one_piece(where: str, session_id: str | None, run_id: str, after: str | None) -> list[Told]:
    with Child(watch_some, where=where, session_id=session_id, run_id=run_id, after=after, count=1) as child:
        how, what = child.result()
        assert how == "ok", (how, what)
        return list(what)  # type: ignore[arg-type]  # what the program returned


def fact(one: Told) -> tuple[Any, ...] | None:
    """What is told once to everybody; None for how a run stands, which depends on when somebody looks."""
    match one["type"]:
        case "item_saved":
            return ("item", one["ordinal"], one["kind"], str(one["item"]))
        case "call_began":
            return ("began", one["call_id"], one["tool"], one["arguments"])
        case "call_ended":
            return ("ended", one["call_id"], one["tool"], str(one["output"]))
    return None


def facts(told: Iterable[Told]) -> list[tuple[Any, ...]]:
    return [known for one in told if (known := fact(one)) is not None]


def check_order(told: list[Told]) -> None:
    """Each fact once; items as they stand in the history; a call begins before it ends, and ends before its output."""
    found = facts(told)
    again = [one for one, count in Counter(found).items() if count > 1]
    assert not again, f"told more than once: {again}"
    ordinals = [one["ordinal"] for one in told if one["type"] == "item_saved"]
    assert ordinals == list(range(len(ordinals)))
    places: dict[tuple[str, str], list[int]] = {}  # an id may be used again, by another call
    for place, one in enumerate(told):
        item = one.get("item", {})
        if one["type"] in ("call_began", "call_ended"):
            places.setdefault((one["type"], one["call_id"]), []).append(place)
        elif "output" in item:
            places.setdefault(("output", item["call_id"]), []).append(place)
    for call_id in {known[1] for known in places}:
        began, ended, output = (places.get((kind, call_id), []) for kind in ("call_began", "call_ended", "output"))
        assert len(began) == len(ended) == len(output), call_id
        assert all(one < two < three for one, two, three in zip(began, ended, output, strict=True)), call_id
