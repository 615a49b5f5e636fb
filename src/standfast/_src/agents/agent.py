"""Agents: instructions, a model, tools and handoffs, as data.

An agent does nothing by itself; a run reads it. Making one is cheap and imports no schema library. The convenience that
needs a whole run, an agent used as a tool, is only described here (`AgentTool`): the driver puts the means to run it on
the call's context, so that a part never reaches up to the runner.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NotRequired, TypeAlias, TypedDict, get_origin

from standfast._src.agents.as_tool import (
    DEFAULT_TOOL_TURNS,
    AgentTool,
    AgentToolStreamEvent,
    make_agent_tool,
)
from standfast._src.agents.context import RunContextWrapper, TContext
from standfast._src.agents.default_models import get_default_model_settings
from standfast._src.agents.guardrails import InputGuardrail, OutputGuardrail
from standfast._src.agents.handoffs import Handoff
from standfast._src.agents.hooks import AgentHooks, AgentHooksBase, RunHooks
from standfast._src.agents.output_type import AgentOutputSchemaBase
from standfast._src.agents.prompts import DynamicPromptFunction, Prompt, resolve_prompt
from standfast._src.agents.run_config import RunConfig
from standfast._src.agents.tool_input import StructuredToolInputBuilder
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.models.interface import Model
from standfast._src.models.model_settings import ModelSettings, coerce_model_settings
from standfast._src.sessions.protocol import Session
from standfast._src.tools.availability import filter_enabled
from standfast._src.tools.function_tool import FunctionTool, FunctionToolResult, ToolEnabled, ToolNeedsApproval
from standfast._src.tools.hosted_tools import Tool
from standfast._src.tools.local_tool import ToolErrorFunction, called_as_function, default_tool_error_function
from standfast._src.tools.mcp_tools import MCPServerLike, MCPUtil


@dataclass
class ToolsToFinalOutputResult:
    """Decision of a `tool_use_behavior` function."""

    is_final_output: bool
    """False: the model runs again and reads the outputs."""

    final_output: Any | None = None
    """The final output, if this is one."""


ToolsToFinalOutputFunction: TypeAlias = Callable[
    [RunContextWrapper[TContext], list[FunctionToolResult]],
    "ToolsToFinalOutputResult | Awaitable[ToolsToFinalOutputResult]",
]
"""Decides, from the results of a turn's tools, whether one of them is the final output."""


class StopAtTools(TypedDict):
    """A `tool_use_behavior`: the output of the first of these tools, in call order, is the final output."""

    stop_at_tool_names: list[str]


class MCPConfig(TypedDict):
    """Presentation of the tools of MCP servers."""

    convert_schemas_to_strict: NotRequired[bool]
    """Make their schemas strict if possible."""

    failure_error_function: NotRequired[ToolErrorFunction | None]
    """Text for the model when a tool fails; None ends the run instead."""

    include_server_in_tool_names: NotRequired[bool]
    """Put the server's name before the tool's."""


@dataclass(eq=False)  # an agent is itself, however alike another may be; and it can be a key
class AgentBase(Generic[TContext]):
    """Common part of text and voice agents."""

    name: str
    """The agent's name; handoffs and traces show it."""

    handoff_description: str | None = None
    """Description for agents that may hand over to it."""

    tools: list[Tool] = field(default_factory=list)
    """Tools that it may call."""

    mcp_servers: list[Any] = field(default_factory=list)
    """MCP servers whose tools it may call; connecting and closing them is the application's part."""

    mcp_config: MCPConfig = field(default_factory=lambda: MCPConfig())
    """Presentation of the tools of those servers."""

    async def get_mcp_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools of the MCP servers, in the servers' order."""
        servers: list[MCPServerLike] = self.mcp_servers
        if not servers:
            return []
        config = self.mcp_config
        return await MCPUtil.get_all_function_tools(
            servers,
            config.get("convert_schemas_to_strict", False),
            run_context,
            self,
            config.get("failure_error_function", default_tool_error_function),
            config.get("include_server_in_tool_names", False),
            self._taken_names(),
        )

    def _taken_names(self) -> set[str]:
        """Return the names reserved for the agent's own tools and handoffs, forbidden for MCP tools."""
        taken = {tool.name for tool in self.tools if called_as_function(tool)}
        for one in getattr(self, "handoffs", ()):
            taken.add(one.tool_name if isinstance(one, Handoff) else Handoff.default_tool_name(one))
        return taken

    async def get_all_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """Return the MCP tools, then the agent's own enabled tools."""
        return await resolve_tools(self, run_context)


async def resolve_tools(agent: AgentBase[Any], ctx: RunContextWrapper[Any]) -> list[Tool]:
    """Return the tools that an agent may call in a run. Needed once each time the agent takes over the conversation.

    Without MCP servers and functions to ask, this is one pass over a list.
    """
    own = await filter_enabled(agent.tools, ctx, agent)
    if not agent.mcp_servers:
        return own
    return [*await agent.get_mcp_tools(ctx), *own]


_FOLLOWS_FROM_THE_MODEL: Any = None
# Settings that were not given; __post_init__ replaces them by those that follow from the model's name.


@dataclass(eq=False)
class Agent(AgentBase[TContext]):
    """An agent: instructions, a model, tools, handoffs, guardrails and an output type.

    Args:
        name: The name of the agent, in traces, handoffs and saved runs. Give each starting agent its own.
        handoff_description: A sentence for agents that may hand over to this one.
        instructions: The system prompt: a text, or a function of the context and the agent.
        prompt: A prompt in the provider's library, or a function that makes one.
        tools: The tools that the model may call; see `function_tool`.
        model: The model or its name; None for the provider's default.
        model_settings: Temperature, tool choice and further settings of requests.
        handoffs: The agents that may take the conversation over.
        output_type: The type of the final output, such as a pydantic model; None for text.
        input_guardrails: Checks of the input, if this agent is the first of a run.
        output_guardrails: Checks of the final output, if this agent makes it.
        mcp_servers: Servers whose tools the agent offers besides its own.
        mcp_config: Settings of these tools.
        tool_use_behavior: The use of tool outputs: the model reads them, or one of them is the final output.
        hooks: Callbacks for this agent's events.
        reset_tool_choice: True to leave the choice of a tool to the model after a tool has run.

    Example:
        agent = Agent(name="Host", instructions="You take reservations.", tools=[book_table])
    """

    def __repr__(self) -> str:
        # Its instructions may hold what is not for logs.
        tools = [getattr(tool, "name", type(tool).__name__) for tool in self.tools]
        return f"{type(self).__name__}(name={self.name!r}, tools={tools!r})"

    instructions: str | Callable[[RunContextWrapper[TContext], Agent[TContext]], str | Awaitable[str]] | None = None
    """The system prompt: a text, or a function of the context and the agent."""

    prompt: Prompt | DynamicPromptFunction | None = None
    """A prompt in the provider's library."""

    handoffs: list[Agent[Any] | Handoff[TContext, Any]] = field(default_factory=list)
    """Agents to which it may hand the conversation."""

    model: str | Model | None = None
    """The model, or its name; None: the provider's default."""

    model_settings: ModelSettings = _FOLLOWS_FROM_THE_MODEL
    """Settings of model requests; unset ones follow from the model's name."""

    input_guardrails: list[InputGuardrail[TContext]] = field(default_factory=list)
    """Asked about the input, if this agent is the first of a run."""

    output_guardrails: list[OutputGuardrail[TContext]] = field(default_factory=list)
    """Asked about the final output, if this agent makes it."""

    output_type: type[Any] | AgentOutputSchemaBase | None = None
    """The type of the final output; None or `str`: the model's text."""

    hooks: AgentHooks[TContext] | None = None
    """Called at this agent's turning points."""

    tool_use_behavior: (
        Literal["run_llm_again", "stop_on_first_tool"] | StopAtTools | ToolsToFinalOutputFunction[Any]
    ) = "run_llm_again"
    """Use of tool outputs: the model reads them, or one of them is the final output."""

    reset_tool_choice: bool = True
    """True if a forced tool choice ends once this agent has used a tool, so that it cannot loop for ever."""

    def __post_init__(self) -> None:
        self._check()
        if self.model_settings is _FOLLOWS_FROM_THE_MODEL:
            self.model_settings = get_default_model_settings(self.model)
        elif type(self.model_settings) is not ModelSettings:
            self.model_settings = coerce_model_settings(self.model_settings, owner="Agent model_settings")
        if self.model is not None and self.model_settings == get_default_model_settings():
            # Settings that are those of the default model count as not given: they would not fit another.
            self.model_settings = get_default_model_settings(self.model)

    def _check(self) -> None:
        check_kinds(self, "Agent", _KINDS)
        _check_members(self)
        unknown = sorted(set(self.mcp_config) - set(MCPConfig.__annotations__))
        if unknown:
            raise SettingTypeError(
                f"mcp_config of agent {self.name!r} has no setting {', '.join(map(str, unknown))}",
                f"Its settings are {', '.join(sorted(MCPConfig.__annotations__))}.",
            )
        model: Any = self.model  # a model written for the SDK is no subclass of ours and serves as well
        if not isinstance(model, str | Model | None) and not hasattr(model, "get_response"):
            raise _wrong(self, "Agent", "model", "a string, a Model or None")
        kind: Any = self.output_type
        if not isinstance(kind, type | AgentOutputSchemaBase | None) and get_origin(kind) is None:
            raise _wrong(self, "Agent", "output_type", "a type, an AgentOutputSchemaBase or None")
        behavior: Any = self.tool_use_behavior
        if behavior not in ("run_llm_again", "stop_on_first_tool") and not isinstance(behavior, dict | Callable):
            wanted = "'run_llm_again', 'stop_on_first_tool', StopAtTools or a function"
            raise _wrong(self, "Agent", "tool_use_behavior", wanted)

    def clone(self, **kwargs: Any) -> Agent[TContext]:
        """Copy the agent with some fields changed. Lists that are not given stay the same lists, shared with this
        agent.

        With another model, settings that merely followed from the old one follow from the new one.
        """
        follows = "model" in kwargs and "model_settings" not in kwargs
        if follows and self.model_settings == get_default_model_settings(self.model):
            kwargs["model_settings"] = None
        return dataclasses.replace(self, **kwargs)

    async def get_system_prompt(self, run_context: RunContextWrapper[TContext]) -> str | None:
        """Return the instructions for a run; raise TypeError for a function with other parameters than context and
        agent.
        """
        instructions = self.instructions
        if instructions is None or isinstance(instructions, str):
            return instructions
        _check_instructions(self, instructions)
        return await maybe_await(instructions(run_context, self))

    async def get_prompt(self, run_context: RunContextWrapper[TContext]) -> dict[str, Any] | None:
        """Return the prompt in the provider's library, if any."""
        return await resolve_prompt(self.prompt, run_context, self)

    def as_tool(
        self,
        tool_name: str | None,
        tool_description: str | None,
        custom_output_extractor: Callable[[Any], Awaitable[str]] | None = None,
        is_enabled: ToolEnabled = True,
        on_stream: Callable[[AgentToolStreamEvent], Awaitable[None] | None] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        max_turns: int | None = DEFAULT_TOOL_TURNS,
        hooks: RunHooks[TContext] | None = None,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        session: Session | None = None,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        needs_approval: ToolNeedsApproval = False,
        parameters: type[Any] | None = None,
        input_builder: StructuredToolInputBuilder | None = None,
        include_input_schema: bool = False,
        on_stream_max_pending_events: int | None = 1024,
    ) -> FunctionTool:
        """Make a tool of this agent for other agents, with the call's input instead of the caller's conversation.

        The tool has one argument, `input`, unless `parameters` (a dataclass or pydantic model) says otherwise; the
        parsed arguments are then `context.tool_input` in the run, and `input_builder` makes the run's input of them.
        `on_stream` gets the run's events; more than `on_stream_max_pending_events` waiting for it fail the call.
        `max_turns=None` means no limit, as everywhere in standfast (in the SDK it means 10, here the default).
        """
        return make_agent_tool(
            AgentTool(
                agent=self,
                name=tool_name,
                description=tool_description,
                custom_output_extractor=custom_output_extractor,
                on_stream=on_stream,
                on_stream_max_pending_events=on_stream_max_pending_events,
                run_config=run_config,  # type: ignore[arg-type]  # a dict is read in __post_init__
                max_turns=max_turns,
                hooks=hooks,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                session=session,
                parameters=parameters,
                input_builder=input_builder,
                include_input_schema=include_input_schema,
            ),
            is_enabled=is_enabled,
            failure_error_function=failure_error_function,
            needs_approval=needs_approval,
        )


# Members are told by what a run does with them: agents, guardrails and servers written for the SDK serve as well.
_MEMBERS: dict[str, tuple[str, str]] = {  # field: (what a member has, what to give)
    "tools": ("name", "tools: function_tool makes one of a function"),
    "mcp_servers": ("list_tools", "connected MCP servers"),
    "handoffs": ("name tool_name", "agents, or what handoff(agent) returns"),
    "input_guardrails": ("guardrail_function", "guardrails: @input_guardrail makes one of a function"),
    "output_guardrails": ("guardrail_function", "guardrails: @output_guardrail makes one of a function"),
}


INSTRUCTIONS = (str | Callable | None, "a string, a function or None")

_KINDS: dict[str, tuple[Any, str]] = {  # field: (what its value is, in words)
    "name": (str, "a string"),
    "handoff_description": (str | None, "a string or None"),
    **dict.fromkeys(_MEMBERS, (list, "a list")),
    "mcp_config": (dict, "a dict"),
    "instructions": INSTRUCTIONS,
    "prompt": (dict | Callable | None, "a dict, a function or None"),
    "hooks": (AgentHooksBase | None, "an AgentHooks instance or None"),
    "reset_tool_choice": (bool, "a bool"),
}


def check_kinds(agent: AgentBase[Any], owner: str, kinds: Mapping[str, tuple[Any, str]]) -> None:
    """Raise SettingTypeError, a TypeError, if a field of the agent has a value of another kind."""
    for name, (kind, wanted) in kinds.items():
        if not isinstance(getattr(agent, name), kind):
            raise _wrong(agent, owner, name, wanted)


def _wrong(agent: AgentBase[Any], owner: str, name: str, wanted: str) -> SettingTypeError:
    return SettingTypeError(f"{owner} {name} is {describe_type(getattr(agent, name))}", f"Give {wanted}.")


def _check_members(agent: Agent[Any]) -> None:
    for field_name, (attributes, wanted) in _MEMBERS.items():
        for member in getattr(agent, field_name):
            if isinstance(member, str) or not any(hasattr(member, name) for name in attributes.split()):
                raise SettingTypeError(
                    f"{field_name} of agent {agent.name!r} holds {describe_type(member)}", f"Give a list of {wanted}."
                )


def _check_instructions(agent: Agent[Any], instructions: Callable[..., Any]) -> None:
    code: Any = getattr(instructions, "__code__", None)
    plain = code is not None and not inspect.ismethod(instructions)
    if plain and code.co_argcount == 2 and not code.co_kwonlyargcount and not code.co_flags & _TAKES_MORE:
        return  # what nearly every program has, without the price of a full signature on every turn
    taken = len(inspect.signature(instructions).parameters)
    if taken != 2:
        raise SettingTypeError(
            f"the instructions function of agent {agent.name!r} takes {taken} parameters",
            "Let it take exactly two: the context and the agent.",
        )


_TAKES_MORE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
