"""A session of one's own: the base class, four methods and `close`."""

from __future__ import annotations

from agents.items import TResponseInputItem
from agents.memory.session import SessionABC


class NotebookSession(SessionABC):
    """Keeps a conversation as the lines of a notebook."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.lines: list[TResponseInputItem] = []
        self.is_shut = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        first = 0 if limit is None else max(0, len(self.lines) - limit)
        return self.lines[first:]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self.lines += items

    async def pop_item(self) -> TResponseInputItem | None:
        return self.lines.pop() if self.lines else None

    async def clear_session(self) -> None:
        self.lines = []

    async def close(self) -> None:
        self.is_shut = True
