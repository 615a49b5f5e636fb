"""Redis store over the caller's `redis.asyncio` client, awaited in the client's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeGuard

import redis.exceptions as failed

from standfast._src.sessions.backends.redis.cluster_storage import ClusterStore
from standfast._src.sessions.backends.redis.keys import Layout
from standfast._src.sessions.backends.redis.redis_errors import LOST, lost, unreachable
from standfast._src.sessions.backends.redis.redis_storage import Codec
from standfast._src.sessions.backends.redis.sansio import Command, run_exchange_async
from standfast._src.sessions.storage import Answer, Ask

# Answers must be bytes, whatever the client's setting: one record that is not a text would fail the whole read.
_RAW: dict[str, Any] = {"NEVER_DECODE": []}


class AsyncClient(Protocol):
    """As much of a `redis.asyncio` client as is used here."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]:
        """Send a command and await the answer."""
        ...

    def pipeline(self, transaction: bool = ...) -> Any:
        """Several commands, sent at once."""
        ...


class AsyncClusterClient(AsyncClient, Protocol):
    """As much of a `redis.asyncio` client for a cluster as is used here."""

    def initialize(self) -> Awaitable[Any]:
        """Ask the nodes for the assignment of slots."""
        ...

    def get_node_from_key(self, key: Any) -> Any:
        """Return the node with the slot of a key."""
        ...


def is_cluster_client(client: object) -> TypeGuard[AsyncClusterClient]:
    """Return whether a client is for a cluster."""
    return hasattr(client, "get_default_node")


class ClientStore(Codec):
    """A handed-in client as a store."""

    def __init__(
        self, client: AsyncClient, *, prefix: str, layout: Layout, ttl_ms: int | None, wait_replicas: int = 0
    ) -> None:
        self._client, self._where = client, _address(client)
        super().__init__(prefix=prefix, layout=layout, ttl_ms=ttl_ms, where=self._where, wait_replicas=wait_replicas)

    async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Send all questions in one write, except listings."""
        return await run_exchange_async(self.exchange(questions), self._send)

    async def _send(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        try:
            if len(commands) == 1:
                try:
                    return [await self._client.execute_command(*commands[0], **_RAW)]
                except failed.ResponseError as error:
                    return [error]
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command, **_RAW)
            found: list[Any] = await pipe.execute(raise_on_error=False)
        except LOST as error:
            raise lost(error, self._where, reading=reading) from error
        return found


class BorrowedLink:
    """A `redis.asyncio` client for a cluster, as a link: asked in a thread, it answers in the client's own loop."""

    def __init__(self, client: AsyncClusterClient) -> None:
        self._client, self.where = client, _address(client)
        self.loop: asyncio.AbstractEventLoop | None = None

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """Return the answers in order, with a node's errors among them."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(self._send(commands, reading), self.loop).result()

    async def _send(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        found: list[Any] = []
        for place, command in enumerate(commands):
            options = dict(_RAW)
            try:
                if command[0] == "WAIT":  # the node that has what was just written
                    options["target_nodes"] = self._client.get_node_from_key(commands[place - 1][3])
                found.append(await self._client.execute_command(*command, **options))
            except LOST as error:
                raise lost(error, self.where, reading=reading) from error
            except failed.ResponseError as error:
                found.append(error)
        return found

    def close(self) -> None:
        """The client is the caller's."""


class ClusterClientStore:
    """Store over the caller's client for a cluster, used in a thread: finding a name's slot takes
    questions of its own.
    """

    def __init__(self, client: AsyncClusterClient, **options: Any) -> None:
        self._client, self._link = client, BorrowedLink(client)
        self._store = ClusterStore(self._link, **options)

    async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Ask each question in the slot of its name."""
        if self._link.loop is None:
            try:
                await self._client.initialize()  # many tasks at once must not begin it
            except (failed.RedisError, *LOST) as error:
                raise unreachable(error, self._link.where) from error
            self._link.loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._store.ask_many, questions)


def _address(client: object) -> str:
    """Return a client's server address for messages."""
    options = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {})
    return f"{options.get('host', 'a client of yours')}:{options.get('port', id(client))}"
