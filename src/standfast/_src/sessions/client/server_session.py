"""Base of the sessions on a server: a subclass says which server, and how to connect.

All sessions of one store in this process share one executor, and with it a few connections. The executor ends some
seconds after the last of them (`lingering`).
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
    use_executor,
)


class ServerSession(StoredSession):
    """A conversation on a server."""

    _found: Executor | None = None
    _use: EngineUse[ThreadedExecutor] | None = None
    linger_s: float = LINGER_S

    @abstractmethod
    def _make_executor(self) -> Executor:
        """Build an executor to the store, for all sessions in it."""

    @abstractmethod
    def _carrier_key(self) -> Hashable:
        """Return a key equal for sessions with shared connections: one store, connected to in one way.

        `_store_key` leaves the connection out: two URLs, two clients or another expiry still mean one conversation.
        """

    @abstractmethod
    def _constructor_arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments for another session of the same store."""

    async def ping(self) -> bool:
        """Return whether the server answers now, within a few seconds."""
        return await self._answers()

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session object, now; awaiting the result is allowed and not needed."""
        done = super().close()
        self._found = self._use = None  # connections linger after the last session that uses them, and end
        return done

    def _carrier(self) -> Executor:
        found = self._found
        if found is None:
            shared, use = use_executor(self._carrier_key(), self._make_executor, self.linger_s)
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
    """Return a host in its canonical spelling."""
    name = str(host or "localhost").lower()
    return "127.0.0.1" if name == "localhost" else name
