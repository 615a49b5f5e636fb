"""A session on a server: which server, and how it is reached, is all that its class still says.

All sessions of one store in this process share one carrier, and with it a few connections. It ends with the last of
them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Hashable
from typing import Any, Self

from standfast.carrying.carrier import Carrier
from standfast.carrying.session import StoredSession
from standfast.carrying.threads import shared


class ServerSession(StoredSession):
    """A conversation on a server."""

    _found: Carrier | None = None

    @abstractmethod
    def _made_carrier(self) -> Carrier:
        """A carrier to the store, for all sessions in it."""

    @abstractmethod
    def _carrier_key(self) -> Hashable:
        """Equal for sessions that may share connections: the same store, reached in the same way.

        `_store_key` leaves the way out: two URLs, two clients or another expiry make no second conversation.
        """

    @abstractmethod
    def _given(self) -> dict[str, Any]:
        """The constructor's arguments that another session of the same store is made with."""

    async def ping(self) -> bool:
        """Whether the server answers now, within a few seconds."""
        return await self._answers()

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session object, now; awaiting the result is allowed and not needed."""
        done = super().close()
        self._found = None  # connections end with the last session that uses them
        return done

    def _carrier(self) -> Carrier:
        found = self._found
        if found is None:
            found = self._found = shared(self._carrier_key(), self._made_carrier)
        return found

    def _another(self, new_id: str) -> Self:
        given = {"session_settings": self._copied_settings(), "timeout_s": self.timeout_s, **self._given()}
        return type(self)(new_id, **given)


def host_key(host: object) -> str:
    """A host as it is known, however it was written."""
    name = str(host or "localhost").lower()
    return "127.0.0.1" if name == "localhost" else name
