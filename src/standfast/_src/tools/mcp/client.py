"""Client of an MCP server: requests that reconnect, a cache of tools, retries that never double an effect.

The rule of repetition: reading (tools, prompts, resources) is repeated freely. A tool call is repeated only if the
server cannot have run the last one, if it answered with an error and the application asked for retries, or if the
server itself says that the tool may be repeated. A call whose answer was lost, or cannot be read, is reported, never
repeated: the SDK repeats it, and a server may then do everything twice.
"""

from __future__ import annotations

import abc
import asyncio
import contextvars
import math
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mcp import MCPError
from mcp_types import PaginatedRequestParams

from standfast._src.agents.context import RunContextWrapper
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import InvalidSettingError, MCPServerError, SettingTypeError, UserError
from standfast._src.base.type_names import describe_type
from standfast._src.tools.local_tool import ToolErrorFunction
from standfast._src.tools.mcp.connection import Connection, ConnectionSettings, first_cause, open_connection
from standfast._src.tools.mcp.failures import Failure, read_failure
from standfast._src.tools.mcp.server import (
    UNSET,
    MCPServer,
    MCPToolCustomDataExtractor,
    MCPToolMetaResolver,
    RequireApprovalSetting,
    Unset,
)
from standfast._src.tools.mcp.tool_filters import ToolFilter, apply_filter, check_filter
from standfast._src.tools.mcp_names import redact
from standfast._src.tools.mcp_tools import is_repeatable
from standfast._src.tools.tool_guardrails import ToolInputGuardrail, ToolOutputGuardrail

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.client.session import MessageHandlerFnT
    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        InitializeResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
        Tool as MCPTool,
    )

    from standfast._src.agents.agent import AgentBase

T = TypeVar("T")

LISTED_MAX = 10_000
# Tools or prompts of one server. No model could choose among so many; a list without an end would fill the memory.


class ConnectedServer(MCPServer):
    """Base of the servers of every transport. Use it with `async with`, or call `connect` and `cleanup`."""

    def __init__(
        self,
        cache_tools_list: bool,
        client_session_timeout_seconds: float | None,
        tool_filter: ToolFilter = None,
        use_structured_content: bool = False,
        max_retry_attempts: int = 0,
        retry_backoff_seconds_base: float = 1.0,
        message_handler: MessageHandlerFnT | None = None,
        require_approval: RequireApprovalSetting = None,
        failure_error_function: ToolErrorFunction | Unset | None = UNSET,
        tool_meta_resolver: MCPToolMetaResolver | None = None,
        custom_data_extractor: MCPToolCustomDataExtractor | None = None,
        retry_backoff_seconds_max: float | None = None,
        *,
        tool_input_guardrails: list[ToolInputGuardrail[Any]] | None = None,
        tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None = None,
        max_list_pages: int | None = None,
    ) -> None:
        super().__init__(
            use_structured_content,
            require_approval,
            failure_error_function,
            tool_meta_resolver,
            custom_data_extractor,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
        )
        check_filter(tool_filter)
        _check_finite("client_session_timeout_seconds", client_session_timeout_seconds)  # 0 and None: no limit
        _check_finite("retry_backoff_seconds_max", retry_backoff_seconds_max)
        _check_count("max_list_pages", max_list_pages)
        self.cache_tools_list = cache_tools_list
        self.client_session_timeout_seconds = client_session_timeout_seconds
        self.tool_filter = tool_filter
        self.max_retry_attempts = max_retry_attempts
        self.retry_backoff_seconds_base = retry_backoff_seconds_base
        self.retry_backoff_seconds_max = retry_backoff_seconds_max
        self.message_handler = message_handler
        self.max_list_pages = max_list_pages
        self._line = _Line()
        # A server that is dropped without `cleanup` closes as well: it would be unreachable.
        weakref.finalize(self, _Line.abandon, self._line)
        self._tools: list[MCPTool] | None = None
        self._tools_are_fresh = False
        self._cache_generation = 0

    # --- the connection ----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        """The two streams that messages travel on, for as long as the block lasts."""

    @property
    def session(self) -> ClientSession | None:
        """The `mcp` session of the open connection, or None."""
        connection = self._line.connection
        return connection.session if connection is not None and connection.is_open else None

    @property
    def server_initialize_result(self) -> InitializeResult | None:
        """The server's answer in the handshake of the older protocol; None in the newer one."""
        return None if self.session is None else self.session.initialize_result

    async def connect(self) -> None:
        """Open the connection unless open. After a loss, the next request opens it again."""
        self._line.context = contextvars.copy_context()
        await self._connection(wanted=True)

    async def cleanup(self) -> None:
        """Close the connection with its child process, tasks and sockets. May be called twice."""
        connection, self._line.connection = self._line.connection, None
        self._line.is_awaited = False
        self._line.closed_count += 1
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()

    async def _connection(self, *, wanted: bool = False) -> Connection:
        """Return the open connection. After a loss, the first caller reopens it for all waiting callers."""
        line = self._line
        if not (wanted or line.is_awaited):
            raise self._not_connected()
        connection = line.connection
        if connection is not None and connection.is_open:
            connection.check_loop()
            return connection
        async with line.lock_of(asyncio.get_running_loop()):
            if line.connection is not None and line.connection.is_open:  # opened by another while we waited
                return line.connection
            closed_count = line.closed_count
            opened = await self._open_connection()
            if line.closed_count != closed_count:
                await opened.close()  # `cleanup` was called meanwhile, and must not find it open afterwards
                raise self._not_connected()
            line.connection, line.is_awaited = opened, True
            self.invalidate_tools_cache()  # a server that was started anew may have other tools
            return opened

    def _not_connected(self) -> UserError:
        return UserError(
            f"MCP server {redact(self.name)!r} is not connected",
            "Use it inside `async with server:`, or await server.connect() first.",
        )

    async def _open_connection(self) -> Connection:
        settings = ConnectionSettings(self.client_session_timeout_seconds or None, self.message_handler)
        try:
            return await open_connection(
                self.create_streams(), settings, name=redact(self.name), context=self._line.context
            )
        except Exception as error:
            raise self._unreachable(first_cause(error)) from error

    def _unreachable(self, error: BaseException) -> MCPServerError:
        reason, remedy = read_failure(error).reason, "Look whether it runs and is an MCP server"
        if isinstance(error, MCPServerError) and error.remedy:
            remedy = error.remedy
        elif isinstance(error, OSError):
            reason = str(error)
        return MCPServerError(
            f"could not connect to MCP server {redact(self.name)!r}: {reason}", f"{remedy.rstrip('.')}."
        )

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _request(
        self, what: str, send: Callable[[ClientSession], Awaitable[T]], *, may_be_repeated: bool = True
    ) -> T:
        """Send a request and return its answer, reconnecting if necessary."""
        failed_count, was_reopened = 0, False
        while True:
            connection: Connection | None = None
            try:
                connection = await self._connection()
                return await send(connection.session)
            except Exception as error:
                if connection is None and not isinstance(error, MCPServerError):
                    raise  # not connected at all, or on another loop: no attempt could change that
                failure, ended_by = read_failure(error), None
                if connection is not None and (failure.is_lost or self._is_spoilt_by(failure)):
                    ended_by = await connection.why_lost()
                was_not_taken = failure.outcome == "not taken"
                if connection is not None and failure.is_lost and not was_reopened:
                    was_reopened = True
                    if may_be_repeated or was_not_taken:
                        continue  # at once, on a new connection: this attempt is not counted
                failed_count += 1
                is_over = failed_count > self.max_retry_attempts != -1
                if is_over or not (may_be_repeated or failure.outcome in ("not taken", "answered")):
                    told = self._explain_failure(what, error, failure, ended_by, may_be_repeated=may_be_repeated)
                    if told is error:
                        raise
                    raise told from error
            await asyncio.sleep(self._backoff_s(failed_count))

    def _is_spoilt_by(self, failure: Failure) -> bool:
        """Return whether the connection is unusable after a failure, though still open."""
        return False

    def _explain_failure(
        self, what: str, error: Exception, failure: Failure, ended_by: BaseException | None, *, may_be_repeated: bool
    ) -> Exception:
        """Build the error of a failed request: the server's own answer, or the known facts and a remedy."""
        if isinstance(error, MCPServerError) or (isinstance(error, MCPError) and failure.outcome == "answered"):
            return error
        reason, remedy = failure.reason, "Look whether it still runs."
        if isinstance(ended_by, MCPServerError):
            reason = f"{reason}: {ended_by.what}"
        if failure.outcome == "unreadable":
            reason, remedy = f"its answer cannot be read: {reason}", "Look whether it follows the protocol."
        is_unknown = failure.outcome in ("unknown", "unreadable") and not may_be_repeated
        if is_unknown:
            remedy = "Whether it took effect is not known; it was not repeated. Check before repeating it."
        told = MCPServerError(f"could not {what} on MCP server {redact(self.name)!r}: {reason}", remedy)
        told.outcome_unknown = is_unknown
        return told

    def _backoff_s(self, failed_count: int) -> float:
        delay = self.retry_backoff_seconds_base * 2.0 ** min(failed_count - 1, 64)
        return delay if self.retry_backoff_seconds_max is None else min(delay, self.retry_backoff_seconds_max)

    # --- tools -------------------------------------------------------------------------------------------------------

    @property
    def cached_tools(self) -> list[MCPTool] | None:
        """Return copies of the tools as last listed, unfiltered; None if never listed."""
        return None if self._tools is None else _copies(self._tools)

    def invalidate_tools_cache(self) -> None:
        """Ask the server again at the next `list_tools`, also with `cache_tools_list`."""
        self._cache_generation += 1
        self._tools_are_fresh = False

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase[Any] | None = None
    ) -> list[MCPTool]:
        """Return copies of the server's tools that pass the filter."""
        tools = self._tools
        await self._connection()  # a server that must be connected again may have other tools
        if tools is None or not (self.cache_tools_list and self._tools_are_fresh):
            generation = self._cache_generation
            pages = await self._pages("list tools", lambda session, params: session.list_tools(params=params), "tools")
            tools = [tool for page in pages for tool in page.tools]
            if generation == self._cache_generation:  # else it was invalidated while the server answered
                self._tools, self._tools_are_fresh = tools, True
        return _copies(await apply_filter(tools, self.tool_filter, self.name, run_context, agent))

    async def _pages(self, what: str, ask: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
        """Return every page of a list; refuse an endless list."""
        pages: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        found_count = 0
        while True:
            if self.max_list_pages is not None and len(pages) >= self.max_list_pages:
                raise UserError(
                    f"MCP server {redact(self.name)!r} has more than max_list_pages={self.max_list_pages} pages of "
                    f"{field}",
                    "Raise max_list_pages, or look at the server's pagination.",
                )
            params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
            pages.append(await self._request(what, partial(_with_page, ask, params)))
            found_count += len(getattr(pages[-1], field))
            cursor = pages[-1].next_cursor
            if cursor is None:
                return pages
            if cursor in seen or found_count > LISTED_MAX or len(pages) > LISTED_MAX:
                raise MCPServerError(
                    f"MCP server {redact(self.name)!r} lists {field} without an end", "Correct its pagination."
                )
            seen.add(cursor)

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool. A call whose answer was lost raises `MCPServerError` with `outcome_unknown`."""
        known = next((tool for tool in self._tools or () if tool.name == tool_name), None)
        if self._tools_are_fresh and known is not None:
            self._check_required(known, arguments)
        return await self._request(
            f"call tool {tool_name!r}",
            lambda session: session.call_tool(tool_name, arguments, meta=meta),  # type: ignore[arg-type]
            may_be_repeated=known is not None and is_repeatable(known),
        )

    def _check_required(self, tool: MCPTool, arguments: dict[str, Any] | None) -> None:
        required = tool.input_schema.get("required")
        missing = [name for name in required if name not in (arguments or {})] if isinstance(required, list) else []
        if missing:
            raise UserError(
                f"a call of tool {tool.name!r} of MCP server {redact(self.name)!r} lacks "
                f"{', '.join(map(repr, missing))}",
                "Give every required argument.",
            )

    # --- prompts and resources ---------------------------------------------------------------------------------------

    async def list_prompts(self) -> ListPromptsResult:
        """Return every prompt of the server, all pages in one."""
        pages: list[ListPromptsResult] = await self._pages(
            "list prompts", lambda session, params: session.list_prompts(params=params), "prompts"
        )
        prompts = [prompt for page in pages for prompt in page.prompts]
        return pages[0].model_copy(update={"prompts": prompts, "next_cursor": None})

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        """Return a prompt of the server, filled in."""
        return await self._request(f"get prompt {name!r}", lambda session: session.get_prompt(name, arguments))

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """Return a page of the server's resources; `cursor` is the `next_cursor` of the previous page."""
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        return await self._request("list resources", lambda session: session.list_resources(params=params))

    async def list_resource_templates(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        """Return a page of the server's templates for resource addresses."""
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        return await self._request(
            "list resource templates", lambda session: session.list_resource_templates(params=params)
        )

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the content of a resource."""
        return await self._request(f"read resource {uri!r}", lambda session: session.read_resource(uri))


class _Line:
    """Connection of a server object. It has no reference to the server, so that a dropped server can be collected."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.is_awaited = False
        self.closed_count = 0
        self.context: contextvars.Context | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def lock_of(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        """The lock for opening, one for each loop: a lock of an ended loop would be held for ever."""
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    def abandon(self) -> None:
        """Close, without waiting."""
        if self.connection is not None:
            self.connection.close_soon()


def _with_page(
    ask: Callable[..., Awaitable[Any]], params: PaginatedRequestParams | None, session: ClientSession
) -> Awaitable[Any]:
    return ask(session, params)


def _copies(tools: list[MCPTool]) -> list[MCPTool]:
    return [tool.model_copy(deep=True) for tool in tools]


def _check_finite(name: str, value: object) -> None:
    if value is not None and math.isinf(check_seconds(name, value)):
        raise InvalidSettingError(f"{name} is infinite", "Give a number of seconds, or None for no limit.")


def _check_count(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise SettingTypeError(f"{name} is {describe_type(value)}", "Give a whole number above zero, or None.")
    if value < 1:
        raise InvalidSettingError(f"{name} is {value}", "Give a whole number above zero, or None.")
