"""MCP servers over HTTP: the streamable transport, and the older one of server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import METHOD_NOT_FOUND

from standfast._src.base.errors import MCPServerError, SettingTypeError, UserError
from standfast._src.tools.local_tool import ToolErrorFunction
from standfast._src.tools.mcp.client import ConnectedServer
from standfast._src.tools.mcp.failures import ANSWER_LOST, NEVER_LEFT, REFUSED, Failure
from standfast._src.tools.mcp.processes import MESSAGE_LENGTH_MAX
from standfast._src.tools.mcp.server import (
    UNSET,
    HttpClientFactory,
    MCPToolCustomDataExtractor,
    MCPToolMetaResolver,
    RequireApprovalSetting,
    Unset,
)
from standfast._src.tools.mcp.stdio import check_params
from standfast._src.tools.mcp.tool_filters import ToolFilter
from standfast._src.tools.tool_guardrails import ToolInputGuardrail, ToolOutputGuardrail

if TYPE_CHECKING:
    from mcp.client.session import MessageHandlerFnT

REQUEST_S = 5.0
SILENCE_S = 300.0
# How long a request may take to be taken, and a stream may say nothing; the SDK's defaults.

ERROR_BYTES_MAX = 1024 * 1024
# Of an error. Results may have MESSAGE_LENGTH_MAX, and `mcp` reads those.


class MCPServerSseParams(TypedDict):
    """Address and request settings of an SSE server."""

    url: str
    headers: NotRequired[dict[str, str]]
    timeout: NotRequired[float]
    """Seconds that a request may take; 5 if not said."""
    sse_read_timeout: NotRequired[float]
    """Seconds that the stream may be silent; 300 if not said."""
    auth: NotRequired[Any]
    """An `httpx2.Auth`."""
    httpx_client_factory: NotRequired[HttpClientFactory]


class MCPServerStreamableHttpParams(TypedDict):
    """Address and request settings of a streamable HTTP server."""

    url: str
    headers: NotRequired[dict[str, str]]
    timeout: NotRequired[timedelta | float]
    """Seconds that a request may take; 5 if not said."""
    sse_read_timeout: NotRequired[timedelta | float]
    """Seconds that a stream may be silent; 300 if not said."""
    terminate_on_close: NotRequired[bool]
    """True to notify the server when the connection closes; the default."""
    httpx_client_factory: NotRequired[HttpClientFactory]
    auth: NotRequired[Any]
    """An `httpx2.Auth`."""
    ignore_initialized_notification_failure: NotRequired[bool]
    """An option for `mcp` 1. With `mcp` 2, which has no place for it, it is refused, as in the SDK."""


class MCPServerSse(ConnectedServer):
    """A server reached over HTTP with server-sent events, the transport before streamable HTTP."""

    def __init__(
        self,
        params: MCPServerSseParams,
        cache_tools_list: bool = False,
        name: str | None = None,
        client_session_timeout_seconds: float | None = 5,
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
            cache_tools_list,
            client_session_timeout_seconds,
            tool_filter,
            use_structured_content,
            max_retry_attempts,
            retry_backoff_seconds_base,
            message_handler,
            require_approval,
            failure_error_function,
            tool_meta_resolver,
            custom_data_extractor,
            retry_backoff_seconds_max,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
            max_list_pages=max_list_pages,
        )
        check_params("MCPServerSse", params, MCPServerSseParams, "url")
        _check_auth(params.get("auth"))
        self.params = params
        self._name = name or f"sse: {params['url']}"

    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        """The stream of events, and the address that messages are posted to."""
        params = self.params
        return sse_client(
            params["url"],
            headers=params.get("headers"),
            timeout=params.get("timeout", REQUEST_S),
            sse_read_timeout=params.get("sse_read_timeout", SILENCE_S),
            httpx_client_factory=_wrap_factory(params.get("httpx_client_factory") or _plain_client),
            auth=params.get("auth"),
        )

    def _is_spoilt_by(self, failure: Failure) -> bool:
        # A message that could not be posted is only logged by the transport, and every later one waits in vain.
        return failure.outcome == "unknown"

    @property
    def name(self) -> str:
        """The given name, or `sse:` and the address."""
        return self._name


class MCPServerStreamableHttp(ConnectedServer):
    """A server over streamable HTTP. Requests are independent: a failed one does not affect the rest."""

    def __init__(
        self,
        params: MCPServerStreamableHttpParams,
        cache_tools_list: bool = False,
        name: str | None = None,
        client_session_timeout_seconds: float | None = 5,
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
            cache_tools_list,
            client_session_timeout_seconds,
            tool_filter,
            use_structured_content,
            max_retry_attempts,
            retry_backoff_seconds_base,
            message_handler,
            require_approval,
            failure_error_function,
            tool_meta_resolver,
            custom_data_extractor,
            retry_backoff_seconds_max,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
            max_list_pages=max_list_pages,
        )
        check_params("MCPServerStreamableHttp", params, MCPServerStreamableHttpParams, "url")
        _check_auth(params.get("auth"))
        if params.get("ignore_initialized_notification_failure"):
            raise UserError(
                "ignore_initialized_notification_failure is an option for mcp 1, and standfast uses mcp 2",
                "Leave it out.",
            )
        self.params = params
        self._name = name or f"streamable_http: {params['url']}"
        self._exchange = _Exchange()

    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        """Return streams that send each message as an HTTP request."""
        self._exchange = _Exchange()
        return _streamable(self.params, self._exchange)

    def _unreachable(self, error: BaseException) -> MCPServerError:
        told, status = super()._unreachable(error), self._exchange.refused_with
        if status is None:
            return told
        what = told.what if f"HTTP {status}" in told.what else f"{told.what} (HTTP status {status})"
        if status in (401, 403):
            return MCPServerError(what, "Give params['headers'] or params['auth'] that it accepts.")
        return MCPServerError(what, told.remedy)

    @property
    def name(self) -> str:
        """The given name, or `streamable_http:` and the address."""
        return self._name

    @property
    def session_id(self) -> str | None:
        """The session's id from the server; None in the newer protocol, which has no sessions."""
        return self._exchange.session_id if self.session is not None else None


class _Exchange:
    """Observed HTTP exchange of a connection. It has no reference to the server object (see `_Line`)."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.refused_with: int | None = None

    async def note(self, response: httpx2.Response) -> None:
        """Record the headers and status of a response, and show `mcp` the end of a session."""
        self.session_id = response.headers.get("mcp-session-id") or self.session_id
        self.refused_with = response.status_code if response.status_code >= 400 else None
        if await _is_about_its_session(response):
            # `mcp` knows it by a 404 without an error in its body. Servers made with the official packages send one
            # all the same, with any code; and `mcp` would not connect again.
            response.status_code, response.headers["content-type"] = 404, "text/plain"


async def _is_about_its_session(response: httpx2.Response) -> bool:
    """Return whether a message was refused because the server no longer knows its session."""
    request, status = response.request, response.status_code
    if status not in (400, 404) or request.method != "POST" or "mcp-session-id" not in request.headers:
        return False
    if not _is_json(response):
        return status == 404
    try:
        error = _error_in(await response.aread())
    except (httpx2.TransportError, httpx2.DecodingError):
        return status == 404
    if status == 404:
        return error is None or error.get("code") != METHOD_NOT_FOUND
    # What the examples of the official package for TypeScript do, and all who have copied them.
    return error is not None and error.get("code") == -32000 and "session" in str(error.get("message")).lower()


def _is_json(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")


def _error_in(body: bytes) -> dict[str, Any] | None:
    """The error of the protocol's in the body of a response."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = said.get("error") if isinstance(said, dict) and said.get("jsonrpc") == "2.0" else None
    return error if isinstance(error, dict) else None


@asynccontextmanager
async def _streamable(params: MCPServerStreamableHttpParams, exchange: _Exchange) -> AsyncIterator[Any]:
    make = params.get("httpx_client_factory")
    request_s = _seconds(params.get("timeout", REQUEST_S))
    timeout = httpx2.Timeout(request_s, read=_seconds(params.get("sse_read_timeout", SILENCE_S)))
    client = _wrap_factory(make or _careful_client)(params.get("headers"), timeout, params.get("auth"))

    async def hurry(request: httpx2.Request) -> None:
        if request.method == "DELETE":  # the farewell: a server that hangs must not keep the one who closes
            request.extensions["timeout"] = httpx2.Timeout(request_s).as_dict()

    client.event_hooks.setdefault("request", []).append(hurry)
    client.event_hooks.setdefault("response", []).append(exchange.note)
    async with (
        client,
        streamable_http_client(
            params["url"],
            http_client=client,
            terminate_on_close=params.get("terminate_on_close", True),
            max_sse_event_size=MESSAGE_LENGTH_MAX,
        ) as streams,
    ):
        yield streams


def _plain_client(
    headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, follow_redirects=False)


def _careful_client(
    headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    transport = _CarefulTransport()
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, transport=transport, follow_redirects=False)


class _CarefulTransport(httpx2.AsyncHTTPTransport):
    """Transport that answers a request that failed in the network with an error saying whether it had been sent.

    `mcp` ends the whole connection when one request fails in the network, and with it every other call under way,
    without a word about why. As an answer, the failure reaches only its own request. A status without an error of the
    protocol is judged by its number: one below 500 refuses the request, one above may come from a gateway that has lost
    the answer.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request."""
        is_message = request.method == "POST" and "text/event-stream" in request.headers.get("accept", "")
        try:
            response = await super().handle_async_request(request)
            if not is_message or response.status_code < 400:
                return response
            if response.status_code == 404 and not _is_json(response):
                return response  # `mcp` reads from it that the session is gone, or that this is no MCP server
            try:
                error = await _beginning_of_error(response)
            finally:
                await response.aclose()
        except httpx2.TransportError as failure:
            if request.method != "POST":
                raise
            if isinstance(failure, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
                return _build_error_response(request, 502, _error(NEVER_LEFT, "it cannot be reached"))
            return _build_error_response(
                request, 502, _error(ANSWER_LOST, f"the connection failed ({type(failure).__name__})")
            )
        status = response.status_code
        if error is None:
            error = _error(REFUSED if status < 500 else ANSWER_LOST, f"it answered with HTTP {status}")
        told = _build_error_response(request, status, error)
        if "www-authenticate" in response.headers:  # which `auth` looks at
            told.headers["www-authenticate"] = response.headers["www-authenticate"]
        return told


async def _beginning_of_error(response: httpx2.Response) -> dict[str, Any] | None:
    """Parse the error in a body, reading only up to the maximal length of an error: a page may be endless."""
    body = b""
    try:
        if _is_json(response):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > ERROR_BYTES_MAX:
                    return None
    except httpx2.DecodingError:  # it says that it is packed, and is not
        return None
    return _error_in(body)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}


def _build_error_response(request: httpx2.Request, status: int, error: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _wrap_factory(factory: HttpClientFactory) -> HttpClientFactory:
    def make(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        client = factory(headers=headers, timeout=timeout, auth=auth)
        if not isinstance(client, httpx2.AsyncClient):
            raise MCPServerError(
                f"its httpx_client_factory made a {type(client).__module__}.{type(client).__name__}",
                "Let it return an httpx2.AsyncClient: mcp 2 does not use httpx",
            )
        # Before the hooks that read a body. A client made by the application is bounded as well.
        client.event_hooks.setdefault("response", []).insert(0, _bound)
        return client

    return make


async def _bound(response: httpx2.Response) -> None:
    """Let the body of a response end with an error at MESSAGE_LENGTH_MAX bytes; `mcp` reads a whole one into memory.

    An event stream has no length. `mcp` bounds each of its events.
    """
    if not str(response.headers.get("content-type", "")).lower().startswith("text/event-stream"):
        response.stream = _BoundedBody(response)
        response.headers.pop("content-encoding", None)  # the bound is on what was unpacked


class _BoundedBody(httpx2.AsyncByteStream):
    """The unpacked body of a response, up to MESSAGE_LENGTH_MAX bytes."""

    def __init__(self, response: httpx2.Response) -> None:
        status, headers = response.status_code, response.headers.copy()
        self._whole = httpx2.Response(status, headers=headers, stream=response.stream, request=response.request)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for piece in self._whole.aiter_bytes():
            length += len(piece)
            if length > MESSAGE_LENGTH_MAX:
                # `mcp` answers the one request with this error, and keeps the connection.
                raise httpx2.StreamError(f"it is a message of more than {MESSAGE_LENGTH_MAX} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._whole.aclose()


def _check_auth(auth: object) -> None:
    if auth is not None and not isinstance(auth, httpx2.Auth):
        raise SettingTypeError(
            f"the auth of an MCP server is a {type(auth).__module__}.{type(auth).__name__}",
            "Give an httpx2.Auth (mcp 2 does not use httpx), or an Authorization header.",
        )


def _seconds(given: timedelta | float) -> float:
    return given.total_seconds() if isinstance(given, timedelta) else given
