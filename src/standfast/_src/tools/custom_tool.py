"""Free-form tools: `CustomTool`, for input that would suffer from being written as JSON.

A grammar, a patch, a query: the model writes the input itself, as one text. Everything else equals a function tool,
because the same code executes the call: ledger, approvals, hooks, saved runs, and the policy for a call that had begun
when the process crashed. Only providers with the Responses API know such tools.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NotRequired, TypedDict

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.aio import maybe_await
from standfast._src.items.items import ToolApprovalItem
from standfast._src.tools.local_tool import (
    BY_IDEMPOTENCE,
    LocalTool,
    ToolCaller,
    ToolInvoker,
    UnknownOutcomePolicy,
    check_callers,
    checked_policy,
)
from standfast._src.tools.refusal_texts import ToolKind

CustomToolExecutor = Callable[[ToolContext[Any], str], "Awaitable[Any] | Any"]
"""Carries a call out: gets the context and the input as the model wrote it."""

CustomToolApprovalFunction = Callable[[RunContextWrapper[Any], str, str], "Awaitable[bool] | bool"]
"""Decides about the need for an approval: gets the context, the input and the call id."""


class CustomToolOnApprovalFunctionResult(TypedDict):
    """Result of a `CustomTool.on_approval` function."""

    approve: bool
    reason: NotRequired[str]


CustomToolOnApprovalFunction = Callable[
    [RunContextWrapper[Any], ToolApprovalItem],
    "Awaitable[CustomToolOnApprovalFunctionResult] | CustomToolOnApprovalFunctionResult",
]
"""Answers for the application when a call needs approval."""


@dataclass(frozen=True)
class CustomToolCustomDataContext:
    """Argument of a `custom_data_extractor`: the call, its input, and the output for the model."""

    tool_context: ToolContext[Any]
    tool: CustomTool
    input: str
    output: str
    raw_item: Mapping[str, Any]


CustomToolCustomDataExtractor = Callable[
    [CustomToolCustomDataContext], "Awaitable[Mapping[str, Any] | None] | Mapping[str, Any] | None"
]
"""Makes data for the application that stays on the output item and is never sent to a model."""


@dataclass
class CustomTool(LocalTool):
    """A tool with a single text as input, written freely by the model or by the grammar in `format`."""

    call_type: ClassVar[str] = "custom_tool_call"
    error_kind: ClassVar[ToolKind] = "custom"

    name: str
    """The name the model calls."""

    description: str
    """Description for the model."""

    on_invoke_tool: CustomToolExecutor
    """Gets the context and the input. The text of its result is the output; the model reads the text of its error."""

    format: object | None = None
    """The provider's description of the text, e.g. a grammar; None for any text."""

    needs_approval: bool | CustomToolApprovalFunction = False
    """Need for an approval: a bool, or a function of the context, the input and the call id."""

    on_approval: CustomToolOnApprovalFunction | None = None
    """Answers in place of a person if a call needs approval."""

    defer_loading: bool = False
    """True if a provider with tool search hides the tool until found."""

    custom_data_extractor: CustomToolCustomDataExtractor | None = field(default=None, kw_only=True)
    """Makes data for the application that stays on the output item and is never sent to a model."""

    allowed_callers: list[ToolCaller] | None = field(default=None, kw_only=True)
    """Allowed callers on a provider with programmatic tool calling."""

    idempotent: bool | None = field(default=None, kw_only=True)
    """True if running a call twice does no more than running it once."""

    on_unknown: UnknownOutcomePolicy = field(default=BY_IDEMPOTENCE, kw_only=True)
    """Policy for a call that had begun when the process crashed; see `FunctionTool.on_unknown`."""

    tool_config: dict[str, Any] = field(init=False, repr=False)
    """The tool in the provider's words."""

    def __post_init__(self) -> None:
        check_callers(self.name, self.allowed_callers)
        self.on_unknown = checked_policy(self.name, self.on_unknown, idempotent=self.idempotent)
        self.tool_config = {"type": "custom", "name": self.name, "description": self.description}
        if self.format is not None:
            self.tool_config["format"] = self.format
        if self.defer_loading:
            self.tool_config["defer_loading"] = True
        if self.allowed_callers is not None:
            self.tool_config["allowed_callers"] = self.allowed_callers

    @property
    def type(self) -> str:
        """The providers' name for this kind of tool."""
        return "custom"

    def runtime_needs_approval(self) -> bool | CustomToolApprovalFunction:
        """The SDK's name for `needs_approval`."""
        return self.needs_approval

    def runtime_on_approval(self) -> CustomToolOnApprovalFunction | None:
        """The SDK's name for `on_approval`."""
        return self.on_approval

    async def run(self, ctx: ToolContext[Any], text: str) -> str:
        """Run a call and return its output as text; errors of the executor are raised."""
        output = await maybe_await(self.on_invoke_tool(ctx, text))
        return output if isinstance(output, str) else str(output)

    def judged_input(self, arguments: str) -> object | None:
        """Return the input as it is: a free-form tool reads any text."""
        return arguments

    def runner(self) -> ToolInvoker:
        """Return `run`: a text that fails to parse is the model's to correct, so its error becomes the output."""
        return self.run

    async def custom_data(self, ctx: ToolContext[Any], output: Any, raw_item: Mapping[str, Any]) -> Any:
        """Return what `custom_data_extractor` makes of an output."""
        if self.custom_data_extractor is None:
            return None
        seen = CustomToolCustomDataContext(ctx, self, ctx.tool_arguments, output, raw_item)
        return await maybe_await(self.custom_data_extractor(seen))
