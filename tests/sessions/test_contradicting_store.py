"""A store whose conditions contradict its answers is told, and not asked for ever."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import InMemorySession
from standfast.backends.memory.session import InMemoryStore
from standfast.ground.errors import StoreError
from standfast.sessions.port import Change, Done, Refused, Step


class AlwaysChanged(InMemoryStore):
    """Refuses every step under a condition as if somebody had just been faster."""

    def commit(self, step: Step) -> Done | Refused:
        wrong = [Change(change.name, mark="never") for change in step]
        return super().commit(wrong)


@pytest.mark.parametrize(
    "write",
    [
        lambda session: session.pop_item(),
        lambda session: session.append([{"n": 1}], writer="w", start=0),
        lambda session: session.fork("t"),
    ],
    ids=["pop_item", "append", "fork"],
)
async def test_it_is_refused_with_a_remedy_instead_of_being_asked_for_ever(write: Any) -> None:
    honest = InMemoryStore()
    await InMemorySession("s", store=honest).add_items([{"n": 0}])
    store = AlwaysChanged()
    store.__dict__.update(honest.__dict__)
    with pytest.raises(StoreError, match="conformance kit"):
        await write(InMemorySession("s", store=store))
