"""What is looked at after every test of voice calls: nothing is left, and every frame was one of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_args, get_origin

import pytest
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import BaseModel

from standfast._kits.testing.realtime import journal
from standfast.testing import no_leaks


def by_type(union: Any) -> dict[str, type[BaseModel]]:
    """The events of a union, by the one text that each has as its type."""
    kinds = get_args(get_args(union)[0] if get_origin(union) is Annotated else union)
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in kinds}


EVENTS = {"received": by_type(RealtimeClientEvent), "sent": by_type(RealtimeServerEvent)}
_looked_at: set[object] = set()


def shape(value: Any) -> object:
    """What a frame looks like, without what it says: a shape is looked at once in a process."""
    if isinstance(value, dict):
        return tuple((name, inner if name == "type" else shape(inner)) for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return tuple({shape(inner): None for inner in value})
    return type(value).__name__


@contextmanager
def frames_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect the frames of every loopback server meanwhile, and look at them in the end.

    What is no object or has a fault on cue is meant to be wrong; so may be what is sent to a server that refuses it.
    """
    frames: list[journal.Frame] = []
    add = journal.Journal.add

    def noted(self: journal.Journal, frame: journal.Frame) -> None:
        frames.append(frame)
        add(self, frame)

    monkeypatch.setattr(journal.Journal, "add", noted)
    yield
    refusing = {frame.connection for frame in frames if frame.type == "error"}
    for frame in frames:
        if frame.faults or not isinstance(frame.body, dict):
            continue
        if frame.direction == "received" and frame.connection in refusing:
            continue
        seen = (frame.direction, shape(frame.body))
        if seen not in _looked_at:
            EVENTS[frame.direction][frame.type].model_validate(frame.body)
            _looked_at.add(seen)


async def nothing_left_and_every_frame_right(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The fixture of the folders with tests of voice calls."""
    with frames_of_the_protocol(monkeypatch):
        async with no_leaks():
            yield
