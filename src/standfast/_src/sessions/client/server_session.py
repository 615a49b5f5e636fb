"""A session on a server: which server, and how it is reached, is all that its class still says.

All sessions of one store in this process share one executor, and with it a few connections. It ends some seconds after
the last of them (`lingering`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Hashable
from typing import Any, Self

from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.lingering import LINGER_S, EngineUse
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import (
    ThreadedExecutor,
    end_lingering,
    get_or_create_executor,
)


class ServerSession(StoredSession):
    """A conversation on a server."""

    _found: Executor | None = None
    _use: EngineUse[ThreadedExecutor] | None = None
    linger_s: float = LINGER_S

    @abstractmethod
    def _make_executor(self) -> Executor:
        """An executor to the store, for all sessions in it."""

    @abstractmethod
    def _carrier_key(self) -> Hashable:
        """Equal for sessions that may share connections: the same store, reached in the same way.

        `_store_key` leaves the way out: two URLs, two clients or another expiry make no second conversation.
        """

    @abstractmethod
    def _constructor_arguments(self) -> dict[str, Any]:
        """The constructor's arguments that another session of the same store is made with."""

    async def ping(self) -> bool:
        """Whether the server answers now, within a few seconds."""
        return await self._answers()

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session object, now; awaiting the result is allowed and not needed."""
        done = super().close()
        self._found = self._use = None  # connections linger after the last session that uses them, and end
        return done

    def _carrier(self) -> Executor:
        found = self._found
        if found is None:
            shared, use = get_or_create_executor(self._carrier_key(), self._make_executor, self.linger_s)
            self._found, self._use = shared, use
            return shared
        return found

    def _end_lingering(self) -> None:
        end_lingering(self._carrier_key())

    def _another(self, new_id: str) -> Self:
        given = {
            "session_settings": self._copied_settings(),
            "timeout_s": self.timeout_s,
            "linger_s": self.linger_s,
            **self._constructor_arguments(),
        }
        return type(self)(new_id, **given)


def host_key(host: object) -> str:
    """A host as it is known, however it was written."""
    name = str(host or "localhost").lower()
    return "127.0.0.1" if name == "localhost" else name
