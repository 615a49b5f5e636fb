"""Handoffs: tools for passing the conversation to the next agent, and the next agent's view.

A handoff changes the answering agent, never the stored history: the history keeps the unfiltered sequence (C4), and
filters and nesting make the next agent's view. Nesting folds the past into one assistant message with numbered lines
between two markers; a later handoff finds such a message, unfolds it and folds everything again, so transcripts do not
nest.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from standfast._src.agents.context import AnyAgent, NamedAgent, RunContextWrapper, TContext
from standfast._src.agents.handoff_data import HandoffHistoryMapper, HandoffInputData, HandoffInputFilter
from standfast._src.agents.hooks import TAgent
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import ModelBehaviorError, UserError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.type_names import describe_type
from standfast._src.items.history import owner_key
from standfast._src.items.items import ItemHelpers, RunItem, ToolApprovalItem
from standfast._src.items.texts_for_models import model_text
from standfast._src.tools.availability import filter_enabled
from standfast._src.tools.function_tool import ToolEnabled
from standfast._src.tools.schema import validation_faults
from standfast._src.tools.strict_schema import ensure_strict_json_schema
from standfast._src.tools.tool_names import function_style

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    THandoffInput = TypeVar("THandoffInput", default=Any)
else:
    from typing import TypeVar

    THandoffInput = TypeVar("THandoffInput")

OnHandoffWithInput = Callable[[RunContextWrapper[Any], THandoffInput], Any]
OnHandoffWithoutInput = Callable[[RunContextWrapper[Any]], Any]


@dataclass
class Handoff(Generic[TContext, TAgent]):
    """A way to another agent. `handoff` makes one for a fixed agent; use this class to choose the agent at run time."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, params):  # the second parameter has a default, as for type checkers
            if not isinstance(params, tuple) and len(cls.__parameters__) == 2:
                params = (params, Any)
            return super().__class_getitem__(params)

    tool_name: str
    """The name the model calls."""

    tool_description: str
    """Description for the model."""

    input_json_schema: dict[str, Any]
    """The JSON schema of the arguments; empty for none."""

    on_invoke_handoff: Callable[[RunContextWrapper[Any], str], Awaitable[TAgent]]
    """Gets the context and the arguments as JSON text; returns the agent that takes over."""

    agent_name: str
    """Name of that agent, if known."""

    input_filter: HandoffInputFilter | None = None
    """Changes the next agent's view; has precedence over `RunConfig.handoff_input_filter`."""

    nest_handoff_history: bool | None = None
    """Overrides `RunConfig.nest_handoff_history`."""

    strict_json_schema: bool = True
    """True if the provider enforces the schema."""

    is_enabled: ToolEnabled = True
    """Condition for offering the handoff: a bool, or a function of the context and the agent."""

    agent: AnyAgent = field(default=None, kw_only=True, repr=False)
    """The agent itself, where it is known beforehand: what is reachable from an agent can be checked before it runs."""

    def get_transfer_message(self, agent: AnyAgent) -> str:
        """Return the output of the handoff call, for the model that hands over."""
        return json.dumps({"assistant": agent.name})

    @classmethod
    def default_tool_name(cls, agent: AnyAgent) -> str:
        """Return `transfer_to_` and the agent's name in the style of a function name."""
        return function_style(f"transfer_to_{agent.name}")

    @classmethod
    def default_tool_description(cls, agent: AnyAgent) -> str:
        """Return the default description for the model."""
        return f"{model_text('handoff_offer', agent_name=agent.name)} {agent.handoff_description or ''}".strip()


class HandoffTarget(NamedAgent, Protocol):
    """Attributes of an agent needed as a handoff's target."""

    @property
    def handoff_description(self) -> str | None:
        """Return the description for agents that may hand over to it."""
        ...


class HandingOver(Protocol):
    """Attributes of an agent needed to hand over."""

    @property
    def handoffs(self) -> Sequence[HandoffTarget | Handoff[Any, Any]]:
        """Return the agents to which it may hand over."""
        ...


@overload
def handoff(
    agent: HandoffTarget,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[Any, Any]: ...


@overload
def handoff(
    agent: HandoffTarget,
    *,
    on_handoff: OnHandoffWithInput[THandoffInput],
    input_type: type[THandoffInput],
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[Any, Any]: ...


@overload
def handoff(
    agent: HandoffTarget,
    *,
    on_handoff: OnHandoffWithoutInput,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[Any, Any]: ...


def handoff(
    agent: HandoffTarget,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: OnHandoffWithInput[Any] | OnHandoffWithoutInput | None = None,
    input_type: type[Any] | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[Any, Any]:
    """Make a handoff to an agent.

    `on_handoff` is called at the handoff, with the context and, if there is an `input_type`, the model's arguments as
    that type. It cannot change the destination: write a `Handoff` for that.
    """
    _check_callback(on_handoff, input_type)
    schema, read = _schema_and_reader(input_type)

    async def take_over(ctx: RunContextWrapper[Any], arguments: str | None = None) -> HandoffTarget:
        if on_handoff is not None:
            called: Any = on_handoff
            result = called(ctx) if read is None else called(ctx, read(arguments))
            await maybe_await(result)
        return agent

    return Handoff(
        tool_name=tool_name_override or Handoff.default_tool_name(agent),
        tool_description=tool_description_override or Handoff.default_tool_description(agent),
        input_json_schema=ensure_strict_json_schema(schema),
        on_invoke_handoff=take_over,
        agent_name=agent.name,
        input_filter=input_filter,
        nest_handoff_history=nest_handoff_history,
        is_enabled=_asked_later(is_enabled) if callable(is_enabled) else is_enabled,
        agent=agent,
    )


def _asked_later(is_enabled: Callable[..., Any]) -> Callable[..., Awaitable[bool]]:
    """Wrap an `is_enabled` function as a coroutine function, for programs that await it themselves."""

    async def ask(ctx: RunContextWrapper[Any], agent: AnyAgent) -> bool:
        return bool(await maybe_await(is_enabled(ctx, agent)))

    return ask


def _check_callback(on_handoff: object, input_type: object) -> None:
    if input_type is not None and on_handoff is None:
        raise UserError("a handoff has an input_type and nobody to give the input to", "Give on_handoff too.")
    if on_handoff is None:
        return
    if not callable(on_handoff):
        raise UserError(f"on_handoff is {describe_type(on_handoff)}", "Give a function.")
    wanted = 1 if input_type is None else 2
    taken = len(inspect.signature(on_handoff).parameters)
    if taken != wanted:
        raise UserError(
            f"on_handoff takes {taken} parameters and would be given {wanted}",
            "With an input_type it gets the context and the input, without one the context alone.",
        )


def _schema_and_reader(input_type: type[Any] | None) -> tuple[dict[str, Any], Callable[[str | None], Any] | None]:
    """Return the schema of a handoff's input, and its strict reader: a handoff is not a place for guessing."""
    if input_type is None:
        return {}, None
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(input_type)

    def read(arguments: str | None) -> Any:
        if arguments is None:
            raise ModelBehaviorError("a handoff that needs input was called without", "Call it with its arguments.")
        try:
            return adapter.validate_json(arguments, strict=True)
        except ValidationError as error:
            raise ModelBehaviorError(
                f"the input of a handoff does not fit its type: {validation_faults(error)}", "Correct the arguments."
            ) from None  # the cause would carry the values

    return adapter.json_schema(), read


async def resolve_handoffs(agent: HandingOver, ctx: RunContextWrapper[Any]) -> list[Handoff[Any, Any]]:
    """Return the enabled handoffs of an agent; agents in the list become handoffs."""
    if not agent.handoffs:
        return []
    made = [each if isinstance(each, Handoff) else handoff(each) for each in agent.handoffs]
    return await filter_enabled(made, ctx, agent)


# --- nesting ---------------------------------------------------------------------------------------------------------

_DEFAULT_WRAPPERS = ("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")
_NOTHING = "(nothing yet)"
_FOLDED_TYPES = frozenset({"function_call", "function_call_output", "reasoning", "program", "program_output"})
_BOOKKEEPING = frozenset({"id", "status", "provider_data"})
_SPOKEN = re.compile(r"^(user|assistant|system|developer|tool): (.*)$", re.S)
_NUMBERED = re.compile(r"^\d+\. (.*)$")
_wrappers = _DEFAULT_WRAPPERS


def set_conversation_history_wrappers(*, start: str | None = None, end: str | None = None) -> None:
    """Change the markers around a nested history; None leaves a marker unchanged."""
    global _wrappers
    _wrappers = (_wrappers[0] if start is None else start, _wrappers[1] if end is None else end)


def reset_conversation_history_wrappers() -> None:
    """Put the usual markers back."""
    global _wrappers
    _wrappers = _DEFAULT_WRAPPERS


def get_conversation_history_wrappers() -> tuple[str, str]:
    """The markers around a nested history."""
    return _wrappers


def _is_folded(item: Item) -> bool:
    # A program and its calls belong together: none of them can be sent alone.
    return item.get("type") in _FOLDED_TYPES or owner_key(item) is not None


def nest_handoff_history(
    handoff_input_data: HandoffInputData, *, history_mapper: HandoffHistoryMapper | None = None
) -> HandoffInputData:
    """The same conversation with everything folded into `input_history`; `new_items` stay for the history.

    Nothing is redacted: arguments and outputs of tools are in the folded text. A `history_mapper` gets the whole
    transcript and makes the whole list.
    """
    data = handoff_input_data
    past = _unfold(ItemHelpers.input_to_new_input_list(_as_list(data.input_history)))
    turn: list[tuple[Item, bool]] = []
    for item in data.pre_handoff_items:
        if not isinstance(item, ToolApprovalItem):
            plain = item.to_input_item()
            turn.append((plain, plain.get("role") != "assistant" and not _is_folded(plain)))
    for item in data.new_items:
        if not isinstance(item, ToolApprovalItem):
            plain = item.to_input_item()
            turn.append((plain, isinstance(plain.get("role"), str) or not _is_folded(plain)))
    if history_mapper is not None:
        nested = history_mapper([*past, *(plain for plain, _ in turn)])
    else:
        nested = _fold_stretches(past, turn)
    return data.clone(input_history=tuple(copy_json(item) for item in nested), pre_handoff_items=(), input_items=())


def default_handoff_history_mapper(transcript: list[Item]) -> list[Item]:
    """Fold a transcript into an assistant message with a numbered line for each item."""
    lines = [f"{number}. {_line(item)}" for number, item in enumerate(transcript, start=1)] or [_NOTHING]
    start, end = _wrappers
    return [{"role": "assistant", "content": "\n".join([model_text("history_before"), start, *lines, end])}]


def _as_list(history: str | tuple[Item, ...]) -> str | list[Item]:
    return history if isinstance(history, str) else list(history)


def _fold_stretches(past: list[Item], turn: list[tuple[Item, bool]]) -> list[Item]:
    """Fold the stretches between the items that are forwarded unchanged."""
    nested: list[Item] = []
    waiting = past
    for plain, forwarded in turn:
        if not forwarded:
            waiting.append(plain)
            continue
        if waiting or not nested:
            nested += default_handoff_history_mapper(waiting)
        waiting = []
        nested.append(plain)
    if waiting or not nested:
        nested += default_handoff_history_mapper(waiting)
    return nested


def _line(item: Item) -> str:
    """Format an item as one line: `role: text` if lossless, else JSON."""
    plain = {key: value for key, value in item.items() if key not in _BOOKKEEPING}
    text = _plain_text(plain)
    if text is not None:
        return f"{plain['role']}: {text}"
    return json.dumps(plain, ensure_ascii=False, default=str)


def _plain_text(item: Item) -> str | None:
    if item.get("role") not in ("user", "assistant", "system", "developer", "tool"):
        return None
    if not set(item) <= {"role", "content", "type"} or item.get("type", "message") != "message":
        return None
    content = item.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        if part.get("type") in ("output_text", "input_text") and not (part.get("annotations") or part.get("logprobs")):
            content = part.get("text")
    return content if isinstance(content, str) and "\n" not in content else None


def _unfold(history: list[Item]) -> list[Item]:
    unfolded: list[Item] = []
    for item in history:
        earlier = _transcript_in(item)
        unfolded += [item] if earlier is None else earlier
    return unfolded


def _transcript_in(item: Item) -> list[Item] | None:
    """Unfold a message written by `default_handoff_history_mapper`; None for any other."""
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, str):
        return None
    start, end = _wrappers
    head, tail = f"{model_text('history_before')}\n{start}\n", f"\n{end}"
    if not content.startswith(head) or not content.endswith(tail):
        return None
    body = content[len(head) : -len(tail)]
    if body == _NOTHING:
        return []
    found: list[Item] = []
    for line in body.split("\n"):
        read = _item_in(line)
        if read is None:
            return None
        found.append(read)
    return found


def _item_in(line: str) -> Item | None:
    numbered = _NUMBERED.match(line)
    if numbered is None:
        return None
    spoken = _SPOKEN.match(numbered.group(1))
    if spoken is not None:
        return {"role": spoken.group(1), "content": spoken.group(2)}
    try:
        item = json.loads(numbered.group(1))
    except ValueError:
        return None
    return item if isinstance(item, dict) else None


# --- filters ---------------------------------------------------------------------------------------------------------

_TOOL_ITEM_TYPES = frozenset(
    {
        "handoff_call_item",
        "handoff_output_item",
        "tool_call_item",
        "tool_call_output_item",
        "tool_search_call_item",
        "tool_search_output_item",
        "tool_approval_item",
        "mcp_list_tools_item",
        "mcp_approval_request_item",
        "mcp_approval_response_item",
        "reasoning_item",  # reasoning without the call it led to is refused by providers
    }
)


def remove_all_tools(handoff_input_data: HandoffInputData) -> HandoffInputData:
    """A filter: the next agent sees messages, and nothing of any tool, hosted ones and reasoning included."""
    data = handoff_input_data
    history = data.input_history
    if not isinstance(history, str):
        history = tuple(item for item in history if not _is_of_a_tool(item.get("type")))
    return data.clone(
        input_history=history,
        pre_handoff_items=_without_tools(data.pre_handoff_items),
        new_items=_without_tools(data.new_items),
        input_items=None if data.input_items is None else _without_tools(data.input_items),
    )


def _without_tools(items: tuple[RunItem, ...]) -> tuple[RunItem, ...]:
    return tuple(item for item in items if item.type not in _TOOL_ITEM_TYPES)


def _is_of_a_tool(kind: object) -> bool:
    return isinstance(kind, str) and (
        kind.endswith(("_call", "_call_output"))
        or kind.startswith(("mcp_", "tool_search", "program"))
        or kind == "reasoning"
    )
