"""Input of the next request, computed from owner and ledger. The only such place.

A client-owned conversation is sent whole: the view's base and the ledger behind it. A server-owned one gets the slice
after `acknowledged`, and the few ordinals a filter left out before (`owed`). Every delta is a slice; a retry leaves the
marks unchanged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from standfast._src.base.canonical_json import canonical_json
from standfast._src.base.json_values import Item
from standfast._src.items.texts_for_models import model_text
from standfast._src.runs.engine.advance import with_not_completed
from standfast._src.runs.engine.run import Run


def ordinals_to_send(run: Run) -> tuple[int, ...]:
    """The ordinals a server-owned conversation is still to be sent, in order (D2)."""
    if run.turn is not None and run.turn.acknowledged:
        return run.turn.owed  # its reply is in hand, so it has the rest
    return (*run.marks.owed, *range(run.marks.acknowledged, len(run.ledger)))


def stateful(run: Run) -> bool:
    """Return whether a server adds the next request to its own state, so that sending it twice could double a turn
    (D5).
    """
    # The first request of an automatic chain continues nothing, so repeating it doubles nothing.
    return run.spec.owner.kind == "conversation" or run.marks.response_id is not None


def view_items(run: Run, history: Sequence[Item] = ()) -> list[Item]:
    """Return the model's view of a client-owned conversation; `history` is the session's, used if the view refers to
    it.
    """
    view = run.view
    base = history if view.base is None else view.base
    return [*base, *(entry.item for entry in run.ledger.since(view.tail))]


def open_turn(run: Run) -> list[Item]:
    """Return the open turn of an unfinished run for another run's requests: every call has exactly one output (C15).

    A waiting call gets a fixed text, a different one if part of the call may have happened. The same holds for work
    that a provider has been allowed to do and has not done: told so by another run's request, it would do the work then
    and again later. None of this is stored; it is only part of requests. A turn that no input guardrail has passed is
    not shown (C6).
    """
    turn = run.turn
    if turn is None or run.progress.verdict != "passed":
        return []
    items = [entry.item for entry in turn.reply]
    for call in turn.calls:
        if call.state != "returned" or call.is_granted:
            if run.is_parked or call.state == "waiting":
                text = model_text("begun_and_waits" if call.has_begun else "waits_for_a_person")
            else:
                text = model_text("begun_and_left_open" if call.has_begun else "left_open")
            call = with_not_completed(run, call, text)
        items += [entry.item for entry in call.outputs]
    return items


def left_out(ordinals: Sequence[int], items: Sequence[Item], returned: Sequence[Any]) -> tuple[int, ...]:
    """Return the offered ordinals that a filter did not send (D3).

    The one place where equality of content decides, because a filter returns only a list. An item that came back
    unchanged was sent, in its place (then it is an anchor) or in another. For the rest, between two anchors: a new
    returned item means that all offered there were sent in some form; no returned item means that they are still owed.
    """
    offers, returns = [canonical_json(item) for item in items], [canonical_json(item) for item in returned]
    anchors = _anchors(offers, returns)
    missing = _without_copy(offers, returns, anchors)
    fresh = _without_copy(returns, offers, [(there, here) for here, there in anchors])
    if len(offers) == len(returns) and missing == fresh and {returns[place] for place in fresh}.isdisjoint(offers):
        return ()  # each was rewritten in its place
    owed: list[int] = []
    for gap, (end, end_returned) in enumerate([*anchors, (len(offers), len(returns))]):
        start, start_returned = anchors[gap - 1] if gap else (-1, -1)
        if bisect_right(fresh, start_returned) == bisect_left(fresh, end_returned):
            owed += [ordinals[place] for place in missing[bisect_right(missing, start) : bisect_left(missing, end)]]
    return tuple(owed)


def _without_copy(keys: list[bytes], others: list[bytes], anchors: list[tuple[int, int]]) -> list[int]:
    """Return the places of `keys` outside all anchors that have no copy among the loose ones in `others`."""
    held, held_there = {here for here, _ in anchors}, {there for _, there in anchors}
    copies = Counter(key for place, key in enumerate(others) if place not in held_there)
    places: list[int] = []
    for place, key in enumerate(keys):
        if place in held:
            continue
        if copies[key]:
            copies[key] -= 1
        else:
            places.append(place)
    return places


def _anchors(offers: list[bytes], returns: list[bytes]) -> list[tuple[int, int]]:
    """Items that came back unchanged and in order. From both ends first: filters mostly cut or append."""
    start, shorter = 0, min(len(offers), len(returns))
    while start < shorter and offers[start] == returns[start]:
        start += 1
    tail = 0
    while tail < shorter - start and offers[-1 - tail] == returns[-1 - tail]:
        tail += 1
    last, last_returned = len(offers) - tail, len(returns) - tail
    # Not the longest common subsequence: that costs the product of the lengths, and what it would find in addition is
    # found as a copy in another place.
    blocks = SequenceMatcher(None, offers[start:last], returns[start:last_returned]).get_matching_blocks()
    middle = [(start + at + step, start + there + step) for at, there, size in blocks for step in range(size)]
    ends = [(last + step, last_returned + step) for step in range(tail)]
    return [(place, place) for place in range(start)] + middle + ends
