"""MCP servers as child processes, connected by standard input and output."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from standfast._src.base.errors import SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.tools.local_tool import ToolErrorFunction
from standfast._src.tools.mcp.client import ConnectedServer
from standfast._src.tools.mcp.processes import ProcessParameters, process_streams
from standfast._src.tools.mcp.server import (
    UNSET,
    MCPToolCustomDataExtractor,
    MCPToolMetaResolver,
    RequireApprovalSetting,
    Unset,
)
from standfast._src.tools.mcp.tool_filters import ToolFilter
from standfast._src.tools.tool_guardrails import ToolInputGuardrail, ToolOutputGuardrail

if TYPE_CHECKING:
    from mcp.client.session import MessageHandlerFnT


class MCPServerStdioParams(TypedDict):
    """Start parameters of a server process."""

    command: str
    """The program, such as `python` or `npx`."""

    args: NotRequired[list[str]]
    """Its arguments."""

    env: NotRequired[dict[str, str]]
    """Environment variables; of the program's it gets only a few, such as PATH and HOME: the rest may hold keys."""

    cwd: NotRequired[str | Path]
    """Its working directory."""

    encoding: NotRequired[str]
    """Encoding of its text; default `utf-8`."""

    encoding_error_handler: NotRequired[Literal["strict", "ignore", "replace"]]
    """Handling of undecodable bytes; default `strict`, which ends the connection."""


class MCPServerStdio(ConnectedServer):
    """A server as a child process. It ends with the connection, and with the program, even a killed one."""

    def __init__(
        self,
        params: MCPServerStdioParams,
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
        check_params("MCPServerStdio", params, MCPServerStdioParams, "command")
        self.params = ProcessParameters(**params)
        self._name = name or f"stdio: {self.params.command}"

    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        """Return the child's pipes; entering starts the child, leaving ends it."""
        if os.name == "posix" and sys.executable:
            return process_streams(self.params)
        # Windows ends a program's children with it. (Not tested there.)
        from mcp import StdioServerParameters, stdio_client

        return stdio_client(StdioServerParameters(**vars(self.params)))

    @property
    def name(self) -> str:
        """The given name, or `stdio:` and the command."""
        return self._name


def check_params(owner: str, given: object, wanted: type, required: str) -> None:
    """Raise for missing or unknown params: a typo would silently select a default."""
    fields = wanted.__annotations__
    if not isinstance(given, dict):
        raise SettingTypeError(f"the params of {owner} are {describe_type(given)}", "Give a dict.")
    unknown = sorted(set(given) - set(fields))
    if unknown or not isinstance(given.get(required), str):
        what = f"have no {', '.join(map(repr, unknown))}" if unknown else f"lack a text as {required!r}"
        raise SettingTypeError(f"the params of {owner} {what}", f"They are {', '.join(fields)}.")
