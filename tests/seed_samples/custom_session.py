from agents.memory.session import SessionABC
from agents.items import TResponseInputItem

class InMemorySession(SessionABC):
    def __init__(self, session_id: str):
        self.session_id = session_id
        self._store: list[TResponseInputItem] = []

    async def get_items(self, limit: int | None = None):
        if limit is None:
            return list(self._store)
        return self._store[-limit:]

    async def add_items(self, items: list[TResponseInputItem]):
        self._store.extend(items)

    async def pop_item(self):
        return self._store.pop() if self._store else None

    async def clear_session(self):
        self._store.clear()

    async def close(self):
        pass
