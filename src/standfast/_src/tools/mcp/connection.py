"""A connection to an MCP server, owned by a single task.

`mcp` opens a connection inside task groups, and those must be left by the task that entered them. So a task of its own
enters, waits, and leaves; users of the server only send it requests to do so. So `connect` and `cleanup` can be called
from any task, and the connection has one owner: when that task ends, for any reason, nothing of it remains.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from mcp import Client, ClientSession
from mcp.client.session import MessageHandlerFnT
from mcp.types import CallToolResult

from standfast._src.base.errors import WrongLoopError
from standfast._src.base.logs import logger


@dataclass(frozen=True)
class ConnectionSettings:
    """Settings of a connection, independent of its transport."""

    read_timeout_s: float | None
    message_handler: MessageHandlerFnT | None


class Connection:
    """An open connection, made by `open_connection`."""

    def __init__(self, task: asyncio.Task[None], session: ClientSession, closing: asyncio.Event, end: _End) -> None:
        self.session = session
        self._task, self._closing, self._end = task, closing, end
        self._is_lost = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop of the connection."""
        return self._task.get_loop()

    @property
    def is_open(self) -> bool:
        """True while usable, as far as known."""
        return not (self._is_lost or self._closing.is_set() or self._task.done() or self.loop.is_closed())

    def check_loop(self) -> None:
        """Raise on another loop than the connection's: its answers would never arrive there."""
        if self.loop is not asyncio.get_running_loop():
            raise WrongLoopError(
                "an MCP server that was connected on one event loop is used on another",
                "Connect, use and close it inside the same asyncio.run; for another thread make another server.",
            )

    async def why_lost(self) -> BaseException | None:
        """Abandon the connection; return its last error, or None if unknown."""
        self._is_lost = True
        self.close_soon()
        if self.loop is asyncio.get_running_loop():
            await asyncio.wait({self._task}, timeout=1.0)  # it ends by itself; a moment is enough for its last words
        return self._end.error

    def close_soon(self) -> None:
        """Ask the owner task to leave, from any thread, even after the loop was closed."""
        if self.loop.is_closed():
            return
        try:
            self.loop.call_soon_threadsafe(self._closing.set)
        except RuntimeError:
            pass  # closed in between: the owner ended with its loop

    async def close(self) -> None:
        """Ask the owner to leave and wait until it has. Cancelled, the caller goes; the owner leaves all the same."""
        self.close_soon()
        if self.loop.is_closed():
            return
        if self.loop is asyncio.get_running_loop():
            await asyncio.wait({self._task})
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._wait_until_ended(), self.loop))

    async def _wait_until_ended(self) -> None:
        await asyncio.wait({self._task})


class _End:
    """Error of a connection that ended without a request to close."""

    error: BaseException | None = None


async def open_connection(
    transport: AbstractAsyncContextManager[Any],
    settings: ConnectionSettings,
    *,
    name: str,
    context: contextvars.Context | None = None,
) -> Connection:
    """Connect over a transport, in a new task; errors of connecting are raised.

    `context` holds the context variables of the task: a connection that is reopened inside a tool call must not carry
    that call's.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[ClientSession] = loop.create_future()
    closing, end = asyncio.Event(), _End()
    task = loop.create_task(
        _own(transport, settings, ready, closing, end),
        name=f"standfast: connection to MCP server {name}",
        context=None if context is None else context.copy(),
    )
    try:
        session = await ready
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    except BaseException:
        await asyncio.wait({task})
        raise
    return Connection(task, session, closing, end)


async def _own(
    transport: AbstractAsyncContextManager[Any],
    settings: ConnectionSettings,
    ready: asyncio.Future[ClientSession],
    closing: asyncio.Event,
    end: _End,
) -> None:
    try:
        client = Client(
            transport,
            cache=None,  # tools are kept by the server object, where `cache_tools_list` says so
            read_timeout_seconds=settings.read_timeout_s,
            message_handler=settings.message_handler,
        )
        async with client:
            _keep_answers(client.session)
            if not ready.done():
                ready.set_result(client.session)
            await closing.wait()
    except asyncio.CancelledError as error:
        _note(ready, end, error)
        raise
    except Exception as error:
        # Raised here it would reach no caller: the next user of the connection gets it.
        _note(ready, end, first_cause(error))
    except BaseException as error:
        _note(ready, end, error)
        raise


def _keep_answers(session: ClientSession) -> None:
    """Let an answered call count as answered even if the server cannot be asked for the schema of its result.

    `mcp` asks for an unknown schema after the answer. If the server or the session has ended by then, the call would
    look like one that was never taken, and be repeated.
    """
    check = session.validate_tool_result

    async def check_if_known(name: str, result: CallToolResult) -> None:
        try:
            await check(name, result)
        except RuntimeError:
            raise  # the result is not what the schema says
        except Exception as error:
            logger.info("the result of an MCP tool is used without a look at its schema: %s", type(error).__name__)

    # On the object, because it is `Client` that makes it.
    session.validate_tool_result = check_if_known  # type: ignore[method-assign]


def _note(ready: asyncio.Future[ClientSession], end: _End, error: BaseException) -> None:
    end.error = error
    if not ready.done():
        if isinstance(error, asyncio.CancelledError):
            ready.cancel()
        else:
            ready.set_exception(error)


def first_cause(error: BaseException) -> BaseException:
    """The first real error inside a group of them, as task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = next((one for one in error.exceptions if isinstance(one, Exception)), error.exceptions[0])
    return error
