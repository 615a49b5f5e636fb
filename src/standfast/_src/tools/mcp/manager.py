"""Manager of several MCP servers: connects all, reports the active servers, and closes all.

Each server has a task that connects and closes it. Foreign server classes may require that (the SDK's do), and a server
that hangs while closing does not delay the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from standfast._src.base.durations import check_seconds
from standfast._src.base.logs import logger
from standfast._src.tools.mcp.server import MCPServer
from standfast._src.tools.mcp_names import redact


class MCPServerManager(AbstractAsyncContextManager["MCPServerManager"]):
    """Connect servers at the beginning of a block and close them at the end; skip unavailable servers.

    `drop_failed_servers` leaves failed servers out of `active_servers`; `strict` raises the first failure instead;
    `connect_in_parallel` does not wait for one before the next. A cancellation while it connects or closes is noted in
    `errors` and not raised, unless `suppress_cancelled_error=False`, as in the SDK.
    """

    def __init__(
        self,
        servers: Iterable[MCPServer],
        *,
        connect_timeout_seconds: float | None = 10.0,
        cleanup_timeout_seconds: float | None = 10.0,
        drop_failed_servers: bool = True,
        strict: bool = False,
        suppress_cancelled_error: bool = True,
        connect_in_parallel: bool = False,
    ) -> None:
        self._servers = list(dict.fromkeys(servers))
        self.connect_timeout_seconds = connect_timeout_seconds
        self.cleanup_timeout_seconds = cleanup_timeout_seconds
        self.drop_failed_servers = drop_failed_servers
        self.strict = strict
        self.suppress_cancelled_error = suppress_cancelled_error
        self.connect_in_parallel = connect_in_parallel
        self._keepers: dict[MCPServer, _Keeper] = {}
        self._errors: dict[MCPServer, BaseException] = {}
        self._failed: list[MCPServer] = []
        self._was_connected = False
        self._lock = asyncio.Lock()

    @property
    def active_servers(self) -> list[MCPServer]:
        """Servers to give to an agent: the connected ones; before the first attempt all."""
        if not self._was_connected or not self.drop_failed_servers:
            return list(self._servers)
        return [server for server in self._servers if server in self._keepers]

    @property
    def all_servers(self) -> list[MCPServer]:
        """All given servers, without repetition."""
        return list(self._servers)

    @property
    def failed_servers(self) -> list[MCPServer]:
        """Servers that could not be connected."""
        return list(self._failed)

    @property
    def errors(self) -> dict[MCPServer, BaseException]:
        """Errors of connecting and closing, by server."""
        return dict(self._errors)

    @property
    def connect_timeout_seconds(self) -> float | None:
        """Timeout for connecting a server; None for no limit."""
        return self._connect_timeout_s

    @connect_timeout_seconds.setter
    def connect_timeout_seconds(self, seconds: float | None) -> None:
        self._connect_timeout_s = _check_timeout("connect_timeout_seconds", seconds)

    @property
    def cleanup_timeout_seconds(self) -> float | None:
        """Timeout for closing a server; None for no limit."""
        return self._cleanup_timeout_s

    @cleanup_timeout_seconds.setter
    def cleanup_timeout_seconds(self, seconds: float | None) -> None:
        self._cleanup_timeout_s = _check_timeout("cleanup_timeout_seconds", seconds)

    async def __aenter__(self) -> MCPServerManager:
        await self.connect_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup_all()

    async def connect_all(self) -> list[MCPServer]:
        """Connect every unconnected server, in order; return the active ones."""
        async with self._lock:
            self._failed, self._errors = [], {}
            await self._connect(self._servers)
        return self.active_servers

    async def reconnect(self, *, failed_only: bool = True) -> list[MCPServer]:
        """Reconnect the failed servers, or close and connect all; return the active ones."""
        async with self._lock:
            wanted = list(self._failed) if failed_only else self._servers
            if not failed_only:
                await self._cleanup(self._servers)
                self._failed, self._errors = [], {}
            await self._connect(wanted)
        return self.active_servers

    async def cleanup_all(self) -> None:
        """Close every server, the last first. What goes wrong is logged and noted in `errors`."""
        async with self._lock:
            await self._cleanup(self._servers)

    # --- one after the other, or at once -----------------------------------------------------------------------------

    async def _connect(self, servers: list[MCPServer]) -> None:
        self._was_connected = True
        before = set(self._keepers)
        missing = [server for server in servers if server not in self._keepers]
        try:
            if self.connect_in_parallel:
                await _all_of([self._connect_one(server) for server in missing])
            else:
                for server in missing:
                    await self._connect_one(server)
                    if self.strict and server in self._errors and not self._is_suppressed(self._errors[server]):
                        break
            failures = [self._errors[server] for server in missing if server in self._errors]
            failure = next((error for error in failures if not self._is_suppressed(error)), None)
            if failure is not None and (self.strict or not isinstance(failure, Exception)):
                raise failure
        except BaseException:
            # Half of the servers is no use to a caller that does not get into the block.
            await self._cleanup([server for server in missing if server in set(self._keepers) - before])
            raise

    def _is_suppressed(self, error: BaseException) -> bool:
        return self.suppress_cancelled_error and isinstance(error, asyncio.CancelledError)

    async def _connect_one(self, server: MCPServer) -> None:
        keeper = _Keeper(server, self)
        try:
            await keeper.connect()
        except BaseException as error:
            logger.error("could not connect MCP server %r: %s", redact(server.name), type(error).__name__)
            self._errors[server] = error
            if server not in self._failed:
                self._failed.append(server)
            if not isinstance(error, Exception) and not self._is_suppressed(error):
                raise
            return
        self._keepers[server] = keeper
        self._errors.pop(server, None)
        if server in self._failed:
            self._failed.remove(server)

    async def _cleanup(self, servers: list[MCPServer]) -> None:
        for server in reversed(servers):
            keeper = self._keepers.pop(server, None)
            if keeper is None:
                continue
            try:
                await keeper.close()
            except asyncio.CancelledError as error:
                self._errors[server] = error
                if not self.suppress_cancelled_error:
                    raise
            except Exception as error:  # a foreign class may raise anything; the remaining servers close all the same
                logger.error("could not close MCP server %r: %s", redact(server.name), type(error).__name__)
                self._errors[server] = error


class _Keeper:
    """A server with the task that connects and closes it."""

    def __init__(self, server: MCPServer, manager: MCPServerManager) -> None:
        self._server, self._manager = server, manager
        loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[None] = loop.create_future()
        self._closing = asyncio.Event()
        self._task = loop.create_task(self._keep(), name=f"standfast: keeper of MCP server {redact(server.name)}")

    async def connect(self) -> None:
        """Wait until connected; errors of connecting are raised. Cancellation first undoes the begun work."""
        try:
            await self._connected
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        except BaseException:
            await asyncio.wait({self._task})
            raise

    async def close(self) -> None:
        """Close the server and wait; errors of closing are raised. Cancellation ends only the wait: the server closes
        all the same.
        """
        self._closing.set()
        await asyncio.wait({self._task})
        if self._task.cancelled():
            return  # with its loop, or by code that ends all tasks; it was closed then
        error = self._task.exception()
        if error is not None:
            raise error

    async def _keep(self) -> None:
        try:
            async with asyncio.timeout(self._manager.connect_timeout_seconds):
                await self._server.connect()
        except BaseException as error:
            if not self._connected.done():
                if isinstance(error, asyncio.CancelledError):
                    self._connected.cancel()
                else:
                    self._connected.set_exception(error)
            await self._close_after_failure()
            if not isinstance(error, Exception):
                raise
            return
        if not self._connected.done():
            self._connected.set_result(None)
        try:
            await self._closing.wait()
        finally:
            await self._cleanup()

    async def _close_after_failure(self) -> None:
        """Close a server after a failure to connect; a failure of closing is only logged."""
        try:
            await self._cleanup()
        except Exception as error:
            logger.debug("closing MCP server %r failed, too: %s", redact(self._server.name), type(error).__name__)

    async def _cleanup(self) -> None:
        async with asyncio.timeout(self._manager.cleanup_timeout_seconds):
            await self._server.cleanup()


async def _all_of(coroutines: list[Coroutine[None, None, None]]) -> None:
    """Run all at the same time and wait for all, even if one raises; then raise the first error."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    error = next((one for one in results if isinstance(one, BaseException)), None)
    if error is not None:
        raise error


def _check_timeout(name: str, seconds: float | None) -> float | None:
    return None if seconds is None else check_seconds(name, seconds, is_ttl=True)
