"""Hosted tools, which a provider runs itself: standfast only passes their definitions on and keeps their results.

Each is plain data with the SDK's fields; a model adapter converts it to its provider's form. `ProviderTool` carries any
definition that has no class here yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NotRequired, Required, TypeAlias, TypedDict

from standfast._src.agents.context import RunContextWrapper
from standfast._src.base.errors import UserError
from standfast._src.tools.custom_tool import CustomTool
from standfast._src.tools.function_tool import FunctionTool


@dataclass
class FileSearchTool:
    """Searches the provider's vector stores."""

    name: ClassVar[str] = "file_search"
    """Name of the tool in traces and hooks, as with all hosted tools."""

    vector_store_ids: list[str]
    max_num_results: int | None = None
    include_search_results: bool = False
    ranking_options: Any | None = None
    filters: Any | None = None

    def __post_init__(self) -> None:
        count: Any = self.max_num_results
        if count is not None and (type(count) is not int or not 0 <= count <= 50):
            raise UserError(f"FileSearchTool cannot return {count!r} results", "Give 1 to 50, or None.")


class WebSearchToolImageSettings(TypedDict, total=False):
    """Settings of a web search for images."""

    max_results: int
    caption: bool


@dataclass
class WebSearchTool:
    """Searches the web."""

    name: ClassVar[str] = "web_search"
    user_location: Any | None = None
    filters: Any | None = None
    search_context_size: Literal["low", "medium", "high"] = "medium"
    external_web_access: bool | None = None
    search_content_types: list[Literal["text", "image"]] | None = None
    image_settings: WebSearchToolImageSettings | None = None


# Whatever the model asks of these, the program would have to do, in a kind of item that no tool here answers.
_RUN_BY_THE_PROGRAM = frozenset(
    {"apply_patch", "computer", "computer_use", "computer_use_preview", "custom", "local_shell"}
)


@dataclass
class _Defined:
    """A tool given by its definition in the provider's format."""

    tool_config: Any
    """The definition, passed on unchanged."""

    def __post_init__(self) -> None:
        if not isinstance(self.tool_config, Mapping) or not isinstance(self.tool_config.get("type"), str):
            raise UserError(
                f"the tool_config of {type(self).__name__} is no definition of a tool",
                "Give a dict with its type, as the provider documents it.",
            )


class CodeInterpreterTool(_Defined):
    """Runs code in the provider's sandbox."""

    name: ClassVar[str] = "code_interpreter"


class ImageGenerationToolConfig(TypedDict, total=False):
    """The provider's options for making images. Further options are passed on as well."""

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


class ImageGenerationTool(_Defined):
    """Makes images."""

    name: ClassVar[str] = "image_generation"


class ProviderTool(_Defined):
    """Any other tool of a provider.

    A definition of a tool that the program itself would have to run is refused.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tool_config["type"] in _RUN_BY_THE_PROGRAM:
            raise UserError(
                f"a {self.tool_config['type']!r} tool is run by the program, and ProviderTool has nothing to run",
                "Use CustomTool for free-form input, else a function_tool; ProviderTool is for what a provider runs.",
            )

    @property
    def name(self) -> str:
        """Name in traces and hooks: its type."""
        kind: str = self.tool_config["type"]
        return kind


@dataclass
class MCPToolApprovalRequest:
    """Argument of `HostedMCPTool.on_approval_request`: a remote server's call that needs an approval."""

    ctx_wrapper: RunContextWrapper[Any]
    data: Any


class MCPToolApprovalFunctionResult(TypedDict):
    """Result of `HostedMCPTool.on_approval_request`."""

    approve: bool
    reason: NotRequired[str]


MCPToolApprovalFunction = Callable[
    [MCPToolApprovalRequest], "MCPToolApprovalFunctionResult | Awaitable[MCPToolApprovalFunctionResult]"
]
"""Answers for the application when a remote server wants a call approved."""


@dataclass
class HostedMCPTool(_Defined):
    """Lets the provider call a remote MCP server; asks `on_approval_request`, or a person, where the config says so."""

    on_approval_request: MCPToolApprovalFunction | None = None
    name: ClassVar[str] = "hosted_mcp"


@dataclass
class ToolSearchTool:
    """Lets the model find tools with `defer_loading`."""

    name: ClassVar[str] = "tool_search"
    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: Any | None = None


@dataclass
class ProgrammaticToolCallingTool:
    """Permission for the model to write a program that the provider runs and that calls tools with "programmatic"
    callers.

    Those calls are executed here like any other, and their outputs go to the program.
    """

    name: ClassVar[str] = "programmatic_tool_calling"


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
