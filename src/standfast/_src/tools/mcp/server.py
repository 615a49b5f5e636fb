"""`MCPServer`: interface of an MCP server for an agent, and the policies of its tools."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

from standfast._src.agents.context import RunContextWrapper
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import UserError
from standfast._src.base.type_names import describe_type
from standfast._src.tools.function_tool import ToolNeedsApproval
from standfast._src.tools.local_tool import ToolErrorFunction
from standfast._src.tools.mcp_names import redact
from standfast._src.tools.mcp_tools import MCPToolCustomDataContext, MCPToolMetaContext
from standfast._src.tools.tool_guardrails import ToolInputGuardrail, ToolOutputGuardrail

if TYPE_CHECKING:
    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
        Tool as MCPTool,
    )

    from standfast._src.agents.agent import AgentBase


class RequireApprovalToolList(TypedDict, total=False):
    """Names of tools, inside a `RequireApprovalObject`."""

    tool_names: list[str]


class RequireApprovalObject(TypedDict, total=False):
    """An approval policy as two lists: tools that always need an approval, and tools that never do."""

    always: RequireApprovalToolList
    never: RequireApprovalToolList


RequireApprovalPolicy: TypeAlias = Literal["always", "never"]
"""Need of calls for an approval."""

LocalMCPApprovalCallable: TypeAlias = "Callable[[RunContextWrapper[Any], Any, MCPTool], bool | Awaitable[bool]]"
"""Decides from the run, the agent and the tool whether a call asks a person."""

RequireApprovalSetting: TypeAlias = (
    "RequireApprovalPolicy | RequireApprovalObject | Mapping[str, RequireApprovalPolicy | bool] "
    "| LocalMCPApprovalCallable | bool | None"
)
"""Forms of a server's `require_approval`. Tools that it does not name need no approval."""

MCPToolMetaResolver: TypeAlias = (
    "Callable[[MCPToolMetaContext], dict[str, Any] | Awaitable[dict[str, Any] | None] | None]"
)
"""Makes the `_meta` of a call; None for none."""

MCPToolCustomDataExtractor: TypeAlias = (
    "Callable[[MCPToolCustomDataContext], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]"
)
"""Makes data for the application from a result; it stays on the output item and is never sent to a model."""


class HttpClientFactory(Protocol):
    """Factory of a server's HTTP client: an `httpx2.AsyncClient`, as `mcp` 2 uses it."""

    def __call__(self, headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
        """The client."""
        ...


class Unset:
    """Marker of a missing argument, where None has a meaning."""

    def __repr__(self) -> str:
        return "<not set>"


UNSET = Unset()


class MCPServer(abc.ABC):
    """A server whose tools an agent may call. Subclass it for a custom transport."""

    def __init__(
        self,
        use_structured_content: bool = False,
        require_approval: RequireApprovalSetting = None,
        failure_error_function: ToolErrorFunction | Unset | None = UNSET,
        tool_meta_resolver: MCPToolMetaResolver | None = None,
        custom_data_extractor: MCPToolCustomDataExtractor | None = None,
        *,
        tool_input_guardrails: list[ToolInputGuardrail[Any]] | None = None,
        tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None = None,
    ) -> None:
        self.use_structured_content = use_structured_content
        """True if the model reads a result's structured content in place of its text."""
        self._policy = approval_policy(require_approval)
        self._failure_error_function = failure_error_function
        self.tool_meta_resolver = tool_meta_resolver
        self.custom_data_extractor = custom_data_extractor
        self.tool_input_guardrails = tool_input_guardrails
        self.tool_output_guardrails = tool_output_guardrails

    @abc.abstractmethod
    async def connect(self) -> None:
        """Open the connection; it stays open until `cleanup`."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A name for people, and for the names of tools."""

    @abc.abstractmethod
    async def cleanup(self) -> None:
        """Close the connection and release its resources."""

    @abc.abstractmethod
    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase[Any] | None = None
    ) -> list[MCPTool]:
        """Return the tools available to an agent in a run."""

    @abc.abstractmethod
    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool and return the server's answer."""

    @property
    def cached_tools(self) -> list[MCPTool] | None:
        """Return the tools as last listed, if the server keeps them."""
        return None

    @abc.abstractmethod
    async def list_prompts(self) -> ListPromptsResult:
        """Return the server's prompts."""

    @abc.abstractmethod
    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        """Return a prompt of the server, filled in."""

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """Return a page of the server's resources; `cursor` is the `next_cursor` of the previous page."""
        raise self._not_offered("list_resources")

    async def list_resource_templates(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        """Return a page of the server's templates for resource addresses."""
        raise self._not_offered("list_resource_templates")

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the content of a resource."""
        raise self._not_offered("read_resource")

    def _not_offered(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"MCP server {redact(self.name)!r} has no {method}. Override it in {type(self).__name__}."
        )

    # The two that follow have the SDK's names: it is by these that its own code, and ours, ask a server of either kind.

    def _get_needs_approval_for_tool(self, tool: MCPTool, agent: AgentBase[Any] | None) -> ToolNeedsApproval:
        """Return the approval policy of a tool, in the form of `FunctionTool.needs_approval`."""
        policy = self._policy
        if isinstance(policy, dict):
            return policy.get(tool.name, False)
        if isinstance(policy, bool):
            return policy
        if agent is None:
            return True  # no agent to ask the function about: then a person is asked
        ask = policy

        async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
            answer: Any = await maybe_await(ask(context, agent, tool))
            return True if answer is None else bool(answer)  # None is no answer, and in doubt a person is asked

        return needs_approval

    def _get_failure_error_function(self, of_agent: ToolErrorFunction | None) -> ToolErrorFunction | None:
        """Return the function that describes a failed call to the model: this server's if given, else the agent's."""
        chosen = self._failure_error_function
        return of_agent if isinstance(chosen, Unset) else chosen


def approval_policy(given: RequireApprovalSetting) -> bool | dict[str, bool] | LocalMCPApprovalCallable:
    """Every form of `require_approval` as one of three: the same for all tools, by name, or a function to ask."""
    if given is None:
        return False
    if isinstance(given, bool) or (not isinstance(given, str | Mapping) and callable(given)):
        return given
    if isinstance(given, str):
        return _answer(given, "require_approval")
    if not isinstance(given, Mapping):
        raise UserError(f"{describe_type(given)} is no require_approval", _FORMS)
    lists = [entry for entry in (given.get("always"), given.get("never")) if isinstance(entry, Mapping)]
    if any("tool_names" in entry for entry in lists):
        return _by_lists(given)
    return {
        str(name): value if isinstance(value, bool) else _answer(value, f"require_approval[{name!r}]")
        for name, value in given.items()
    }


_FORMS = (
    "Give 'always', 'never', a bool, a dict of tool names to these, "
    "{'always': {'tool_names': [...]}, 'never': {'tool_names': [...]}}, or a function."
)


def _answer(value: object, where: str) -> bool:
    if value not in ("always", "never"):
        raise UserError(f"{where} is {value!r}", _FORMS)
    return bool(value == "always")


def _by_lists(given: Mapping[str, Any]) -> dict[str, bool]:
    unknown = sorted(set(given) - {"always", "never"})
    if unknown:
        raise UserError(f"require_approval has {', '.join(map(repr, unknown))} beside its lists", _FORMS)
    names = {}
    for policy in ("always", "never"):
        entry = given.get(policy, {})
        listed = entry.get("tool_names", []) if isinstance(entry, Mapping) else None
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise UserError(f"require_approval[{policy!r}] has no list of names under 'tool_names'", _FORMS)
        names[policy] = listed
    both = sorted(set(names["always"]) & set(names["never"]))
    if both:
        raise UserError(
            f"require_approval lists {', '.join(map(repr, both))} under 'always' and 'never'", "Name each tool once."
        )
    return dict.fromkeys(names["always"], True) | dict.fromkeys(names["never"], False)
