"""Tools that a provider runs itself: standfast only passes their definitions on and keeps what comes back.

Each is plain data with the SDK's fields; a model adapter turns it into its provider's words. `ProviderTool` carries any
definition that has no class here yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict

from standfast.agents.context import RunContextWrapper
from standfast.ground.errors import UserError
from standfast.tools.custom import CustomTool
from standfast.tools.function import FunctionTool


@dataclass
class FileSearchTool:
    """Searches the provider's vector stores."""

    vector_store_ids: list[str]
    max_num_results: int | None = None
    include_search_results: bool = False
    ranking_options: Any | None = None
    filters: Any | None = None

    def __post_init__(self) -> None:
        count: Any = self.max_num_results
        if count is not None and (type(count) is not int or not 0 <= count <= 50):
            raise UserError(f"FileSearchTool cannot return {count!r} results", "Give 1 to 50, or None.")

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "file_search"


class WebSearchToolImageSettings(TypedDict, total=False):
    """What a web search does about images."""

    max_results: int
    caption: bool


@dataclass
class WebSearchTool:
    """Searches the web."""

    user_location: Any | None = None
    filters: Any | None = None
    search_context_size: Literal["low", "medium", "high"] = "medium"
    external_web_access: bool | None = None
    search_content_types: list[Literal["text", "image"]] | None = None
    image_settings: WebSearchToolImageSettings | None = None

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "web_search"


# Whatever the model asks of these, the program would have to do, in a kind of item that no tool here answers.
_RUN_BY_THE_PROGRAM = frozenset(
    {"apply_patch", "computer", "computer_use", "computer_use_preview", "custom", "local_shell"}
)


def _check_config(tool: Any) -> None:
    if not isinstance(tool.tool_config, Mapping) or not isinstance(tool.tool_config.get("type"), str):
        raise UserError(
            f"the tool_config of {type(tool).__name__} is no definition of a tool",
            "Give a dict with its type, as the provider documents it.",
        )


@dataclass
class CodeInterpreterTool:
    """Runs code in the provider's sandbox."""

    tool_config: Any
    """The definition, passed on as it is."""

    def __post_init__(self) -> None:
        _check_config(self)

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "code_interpreter"


class ImageGenerationToolConfig(TypedDict, total=False):
    """The provider's options for making images. Others are passed on as well."""

    type: Required[Literal["image_generation"]]
    action: Literal["generate", "edit", "auto"]
    background: Literal["transparent", "opaque", "auto"]
    input_fidelity: Literal["high", "low"] | None
    input_image_mask: dict[str, str]
    model: str
    moderation: Literal["auto", "low"]
    output_compression: int
    output_format: Literal["png", "webp", "jpeg"]
    partial_images: int
    quality: str
    size: str


@dataclass
class ImageGenerationTool:
    """Makes images."""

    tool_config: Any
    """The definition, passed on as it is."""

    def __post_init__(self) -> None:
        _check_config(self)

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "image_generation"


@dataclass
class ProviderTool:
    """Any other tool of a provider."""

    tool_config: Any
    """The definition, passed on as it is; one of a tool that the program itself would have to run is refused."""

    def __post_init__(self) -> None:
        _check_config(self)
        if self.tool_config["type"] in _RUN_BY_THE_PROGRAM:
            raise UserError(
                f"a {self.tool_config['type']!r} tool is run by the program, and ProviderTool has nothing to run",
                "Use CustomTool for free-form input, else a function_tool; ProviderTool is for what a provider runs.",
            )

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks: its type."""
        kind: str = self.tool_config["type"]
        return kind


@dataclass
class MCPToolApprovalRequest:
    """What `HostedMCPTool.on_approval_request` gets: the call that a remote server wants approved."""

    ctx_wrapper: RunContextWrapper[Any]
    data: Any


class MCPToolApprovalFunctionResult(TypedDict):
    """What it returns."""

    approve: bool
    reason: NotRequired[str]


MCPToolApprovalFunction = Callable[
    [MCPToolApprovalRequest], "MCPToolApprovalFunctionResult | Awaitable[MCPToolApprovalFunctionResult]"
]
"""Answers for the application when a remote server wants a call approved."""


@dataclass
class HostedMCPTool:
    """Lets the provider call a remote MCP server; asks `on_approval_request`, or a person, where the config says so."""

    tool_config: Any
    """The definition, passed on as it is."""

    on_approval_request: MCPToolApprovalFunction | None = None

    def __post_init__(self) -> None:
        _check_config(self)

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "hosted_mcp"


@dataclass
class ToolSearchTool:
    """Lets the model find tools with `defer_loading`."""

    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: Any | None = None

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "tool_search"


@dataclass
class ProgrammaticToolCallingTool:
    """Lets the model write a program, which the provider runs, and which calls tools that allow "programmatic" callers.

    Those calls are carried out here like any other, and their outputs go to the program.
    """

    @property
    def name(self) -> str:
        """What the tool is called in traces and hooks."""
        return "programmatic_tool_calling"


Tool: TypeAlias = (
    FunctionTool
    | CustomTool
    | FileSearchTool
    | WebSearchTool
    | HostedMCPTool
    | CodeInterpreterTool
    | ImageGenerationTool
    | ToolSearchTool
    | ProgrammaticToolCallingTool
    | ProviderTool
)
"""Whatever an agent may have in its `tools`."""
