"""What tests of whole runs share: sessions of every kind, both ways of running, small words for items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standfast import InMemorySession, Runner, SessionABC, function_tool
from standfast.testing import assistant_message, function_call

from .observing import SESSIONS, SeedSession

KINDS = [kind for kind in SESSIONS if kind != "none"]
"""plain, memory, sqlite"""


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> list[Any]:
    return [assistant_message(text)]


@function_tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def adding(number: int, call_id: str) -> dict[str, Any]:
    """A call of `add`."""
    return function_call("add", {"a": number, "b": number}, call_id=call_id)


def kinds(items: Sequence[Any]) -> list[str]:
    """The types of items, messages by their role."""
    return [str(item.get("role") or item.get("type")) for item in items]


def outputs(items: Sequence[Any]) -> list[Any]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


async def go(agent: Any, given: Any, *, streamed: bool = False, **options: Any) -> Any:
    """Run to the end, watched or not; raises what ended it."""
    if not streamed:
        return await Runner.run(agent, given, **options)
    result = Runner.run_streamed(agent, given, **options)
    async for _ in result.stream_events():
        pass
    return result


class RecordingPlain(SeedSession):
    """A plain session that notes each batch, and may fail at chosen writes: before anything is taken, after all of it
    is, or in the middle."""

    def __init__(self, session_id: str = "s", *, fail: dict[int, str] | None = None) -> None:
        super().__init__(session_id)
        self.batches: list[list[Any]] = []
        self.pops = 0
        self.fail = fail or {}
        self.writes = 0

    async def add_items(self, items: list[Any]) -> None:
        self.writes += 1
        how = self.fail.get(self.writes)
        if how == "refused":
            raise OSError("the store refused")
        taken = items[: len(items) // 2] if how == "partly" else items
        await super().add_items(taken)
        self.batches.append(list(taken))
        if how is not None:
            raise OSError(f"the store failed ({how})")

    async def pop_item(self) -> Any:
        self.pops += 1
        return await super().pop_item()


class RecordingAble(InMemorySession):
    """A session with every ability that notes each append, and may fail likewise."""

    def __init__(self, session_id: str = "s", *, fail: dict[int, str] | None = None, **options: Any) -> None:
        super().__init__(session_id, **options)
        self.batches: list[list[Any]] = []
        self.fail = fail or {}
        self.writes = 0

    async def append(self, items: Any, **named: Any) -> Any:
        self.writes += 1
        how = self.fail.get(self.writes)
        if how == "refused":
            raise OSError("the store refused")
        head = await super().append(items, **named)
        self.batches.append(list(items))
        if how is not None:
            raise OSError(f"the store failed ({how})")
        return head


class Taking(SessionABC):
    """A plain session whose four methods take the run context (C10)."""

    def __init__(self, session_id: str = "s") -> None:
        self.session_id = session_id
        self.items: list[Any] = []
        self.wrappers: list[Any] = []

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        self.wrappers.append(wrapper)
        return list(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
        self.wrappers.append(wrapper)
        self.items.extend(items)

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        self.wrappers.append(wrapper)
        return self.items.pop() if self.items else None

    async def clear_session(self, *, wrapper: Any = None) -> None:
        self.wrappers.append(wrapper)
        self.items.clear()
