"""The words of a conversation: items, the light views a user sees of them, and a model's reply.

An item is one JSON object in the Responses format; that is what is stored, sent and compared. Models give typed
provider objects or plain mappings: `to_json_item` makes JSON of either, once, where it enters a run, and shares
nothing with what it was made from. A run item is a view: an agent, the raw item as the model gave it, and what the run
knows besides. No provider library is imported here; typed objects are known by what they can do.
"""

from __future__ import annotations

import enum
import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from standfast._src.base.errors import ModelBehaviorError, StandfastError
from standfast._src.base.json_values import Item
from standfast._src.items.fields import (  # re-exported: importers need items and their readers together
    RawItem as RawItem,
    ReadableItem as ReadableItem,
    read as read,
    readable as readable,
    to_input_json as to_input_json,
    to_json_item as to_json_item,
    to_plain as to_plain,
)
from standfast._src.items.history import CALL_OUTPUTS
from standfast._src.items.tool_outputs import tool_output
from standfast._src.items.usage import Usage

TResponseInputItem: TypeAlias = Item
"""The SDK's name for an item as it is sent: a plain dict."""

T = TypeVar("T")

# --- run items -------------------------------------------------------------------------------------------------------


class _Releasable:
    """Lets a record forget an agent: the attribute goes, and looking for it asks a weak reference."""

    __slots__ = ("__weakref__", "_released")
    _agents: ClassVar[tuple[str, ...]] = ("agent",)
    _released: dict[str, weakref.ref[Any]]

    def release_agent(self) -> None:
        """Replace the strong reference to the agent by a weak one. A freed agent reads as None."""
        if hasattr(self, "_released"):
            return
        self._released = {}
        for name in self._agents:
            agent = getattr(self, name)
            try:
                self._released[name] = weakref.ref(agent)
            except TypeError:  # None, or something else that is not kept alive by being held here
                continue
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        # Reached only where the slot is empty, so an item that was never released pays nothing for this.
        if name in type(self)._agents:
            try:
                return object.__getattribute__(self, "_released")[name]()
            except (AttributeError, KeyError):
                pass
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(slots=True, repr=False)
class RunItemBase(_Releasable, Generic[T]):
    """Base of all run items: the responsible agent, and the raw item."""

    agent: Any
    raw_item: T

    def to_input_item(self) -> TResponseInputItem:
        """The item as input for a model: a fresh JSON dict."""
        return to_input_json(self.raw_item)

    def __repr__(self) -> str:
        # Logs are full of reprs: what was said is not for them.
        return f"{type(self).__name__}(agent={getattr(self.agent, 'name', None)!r})"


@dataclass(slots=True, repr=False)
class InputItem(RunItemBase[TResponseInputItem]):
    """Input admitted to a running run (`RunState.add_input`)."""

    type: Literal["input_item"] = "input_item"
    input_id: str = ""


@dataclass(slots=True, repr=False)
class MessageOutputItem(RunItemBase[RawItem]):
    """A message the model wrote."""

    type: Literal["message_output_item"] = "message_output_item"


@dataclass(slots=True, repr=False)
class ReasoningItem(RunItemBase[RawItem]):
    """Reasoning of the model before an answer or a call."""

    type: Literal["reasoning_item"] = "reasoning_item"


@dataclass(slots=True, repr=False)
class ToolSearchCallItem(RunItemBase[RawItem]):
    """The model searched for tools to load."""

    type: Literal["tool_search_call_item"] = "tool_search_call_item"


@dataclass(slots=True, repr=False)
class ToolSearchOutputItem(RunItemBase[RawItem]):
    """Tools loaded by a tool search."""

    type: Literal["tool_search_output_item"] = "tool_search_output_item"


@dataclass(slots=True, repr=False)
class HandoffCallItem(RunItemBase[RawItem]):
    """Request of the model to hand over to another agent."""

    type: Literal["handoff_call_item"] = "handoff_call_item"


@dataclass(slots=True, repr=False)
class HandoffOutputItem(RunItemBase[TResponseInputItem]):
    """The hand-over happened."""

    source_agent: Any
    target_agent: Any
    type: Literal["handoff_output_item"] = "handoff_output_item"

    _agents: ClassVar[tuple[str, ...]] = ("agent", "source_agent", "target_agent")


class ToolOriginType(str, enum.Enum):  # noqa: UP042 — StrEnum prints another repr than the SDK's enum
    """Source of a tool: a function, an MCP server or another agent."""

    FUNCTION = "function"
    MCP = "mcp"
    AGENT_AS_TOOL = "agent_as_tool"


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """Source of a tool, and its name there."""

    type: ToolOriginType
    mcp_server_name: str | None = None
    agent_name: str | None = None
    agent_tool_name: str | None = None

    def to_json_dict(self) -> dict[str, str]:
        """Return the origin as plain JSON, without unknown fields."""
        values = {
            "type": ToolOriginType(self.type).value,
            "mcp_server_name": self.mcp_server_name,
            "agent_name": self.agent_name,
            "agent_tool_name": self.agent_tool_name,
        }
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json_dict(cls, data: object) -> ToolOrigin | None:
        """Restore an origin from the result of `to_json_dict`; return None for any other value."""
        if not isinstance(data, Mapping):
            return None
        try:
            kind = ToolOriginType(data.get("type"))
        except ValueError:
            return None
        return cls(kind, data.get("mcp_server_name"), data.get("agent_name"), data.get("agent_tool_name"))


@dataclass(slots=True, repr=False)
class ToolCallItem(RunItemBase[RawItem]):
    """The model called a tool."""

    type: Literal["tool_call_item"] = "tool_call_item"
    description: str | None = None
    title: str | None = None
    tool_origin: ToolOrigin | None = None

    @property
    def tool_name(self) -> str | None:
        """The name the model called."""
        name = read(self.raw_item, "name")
        return name if isinstance(name, str) else None

    @property
    def call_id(self) -> str | None:
        """Id by which the call's output refers to the call."""
        return _call_id(self.raw_item)


@dataclass(slots=True, repr=False)
class ToolCallOutputItem(RunItemBase[RawItem]):
    """Result of a tool: `output` as the tool returned it, `raw_item` as the model reads it."""

    output: Any
    type: Literal["tool_call_output_item"] = "tool_call_output_item"
    tool_origin: ToolOrigin | None = None
    custom_data: dict[str, Any] | None = None

    @property
    def call_id(self) -> str | None:
        """Id of the answered call."""
        return _call_id(self.raw_item)


@dataclass(slots=True, repr=False)
class MCPListToolsItem(RunItemBase[RawItem]):
    """A provider listed the tools of a hosted MCP server."""

    type: Literal["mcp_list_tools_item"] = "mcp_list_tools_item"


@dataclass(slots=True, repr=False)
class MCPApprovalRequestItem(RunItemBase[RawItem]):
    """A provider asks whether a hosted MCP tool may run."""

    type: Literal["mcp_approval_request_item"] = "mcp_approval_request_item"


@dataclass(slots=True, repr=False)
class MCPApprovalResponseItem(RunItemBase[RawItem]):
    """The answer to a provider's question whether a hosted MCP tool may run."""

    type: Literal["mcp_approval_response_item"] = "mcp_approval_response_item"


@dataclass(slots=True, repr=False)
class CompactionItem(RunItemBase[RawItem]):
    """A history, compacted by the provider."""

    type: Literal["compaction_item"] = "compaction_item"


@dataclass(slots=True, eq=False, repr=False)
class ToolApprovalItem(RunItemBase[RawItem]):
    """A tool call waiting for an operator's decision. Equality is object identity."""

    tool_name: str | None = None
    type: Literal["tool_approval_item"] = "tool_approval_item"
    tool_namespace: str | None = None
    tool_origin: ToolOrigin | None = None
    tool_lookup_key: tuple[str, ...] | None = field(default=None, kw_only=True)
    reason: str = field(default="approval", kw_only=True)
    """Reason for the question: "approval", or "unknown" if a crash left open whether the call took effect."""
    agent_key: str | None = field(default=None, kw_only=True, repr=False)
    """The run's key of the agent: its name, with its place if another agent of that name is reachable."""
    tool_behind: str | None = field(default=None, kw_only=True, repr=False)
    """Implementation of the tool: "function", or the agent or server, as in "agent:Helper"; None if not known."""
    same_as_run: str | None = field(default=None, kw_only=True)
    """The id of another run of the conversation in which the same question, by agent, tool and arguments, waits."""
    prepared_arguments: str | None = field(default=None, kw_only=True)
    """The values that the tool will get, as JSON text, where they differ from `arguments`: show both."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __post_init__(self) -> None:
        raw = self.raw_item
        if self.tool_name is None:
            self.tool_name = read(raw, "name")
        if self.tool_namespace is None:
            namespace = read(raw, "namespace")
            self.tool_namespace = namespace if isinstance(namespace, str) else None
        if self.tool_lookup_key is None and self.tool_name and read(raw, "type") == "function_call":
            space = self.tool_namespace
            self.tool_lookup_key = ("namespaced", space, self.tool_name) if space else ("bare", self.tool_name)

    @property
    def name(self) -> str | None:
        """Name of the waiting tool."""
        return self.tool_name

    @property
    def qualified_name(self) -> str | None:
        """Name of the tool, prefixed by a namespace if any."""
        if self.tool_name and self.tool_namespace and self.tool_namespace != self.tool_name:
            return f"{self.tool_namespace}.{self.tool_name}"
        return self.tool_name

    @property
    def arguments(self) -> str | None:
        """Arguments as written by the model; JSON text for a value other than text."""
        for name in ("arguments", "params", "input"):
            value = read(self.raw_item, name)
            if value is not None:
                return value if isinstance(value, str) else json.dumps(to_plain(value), default=str)
        return None

    @property
    def call_id(self) -> str | None:
        """Id by which a decision refers to the call."""
        return _call_id(self.raw_item)

    def to_input_item(self) -> TResponseInputItem:
        """Refused: a question to a person is not part of a conversation with a model."""
        raise StandfastError(
            "a ToolApprovalItem cannot be converted to an input item",
            "Leave approval placeholders out; what the model sees is the call and, later, its output.",
        )


RunItem: TypeAlias = (
    InputItem
    | MessageOutputItem
    | ToolSearchCallItem
    | ToolSearchOutputItem
    | HandoffCallItem
    | HandoffOutputItem
    | ToolCallItem
    | ToolCallOutputItem
    | ReasoningItem
    | MCPListToolsItem
    | MCPApprovalRequestItem
    | MCPApprovalResponseItem
    | CompactionItem
    | ToolApprovalItem
)
"""Any of the run items: `item.type` says which."""


def _call_id(raw: object) -> str | None:
    found = read(raw, "call_id") or read(raw, "id")
    return found if isinstance(found, str) else None


# --- a model's reply -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ModelResponse:
    """A model's reply: output items, usage, and the provider's ids."""

    output: list[RawItem]
    usage: Usage
    response_id: str | None
    request_id: str | None = None
    raw_usage: dict[str, Any] | None = None
    model: str | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The model that answered, by the provider's word: for traces."""

    def to_input_items(self) -> list[TResponseInputItem]:
        """The output as input for a next request: fresh JSON dicts."""
        return [to_input_json(item) for item in self.output]


# --- helpers under the SDK's name ------------------------------------------------------------------------------------


def _parts(message: object) -> list[Any]:
    """The content parts of a message, [] for anything else; a text content is one part."""
    kind = read(message, "type")
    if kind != "message" and not (kind is None and read(message, "role") is not None):
        return []
    content = read(message, "content")
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    return list(content or ())


def _texts(parts: list[Any], name: Literal["text", "refusal"]) -> str | None:
    found = [text for part in parts if (text := read(part, name)) is not None]
    return "".join(found) if found else None


class ItemHelpers:
    """Reading messages and making items, for items of either form."""

    @classmethod
    def extract_last_content(cls, message: RawItem) -> str:
        """The text or refusal of the last part; "" if there is none."""
        parts = _parts(message)
        if not parts:
            return ""
        for name in ("text", "refusal"):
            found = read(parts[-1], name)
            if isinstance(found, str):
                return found
        raise ModelBehaviorError(
            f"the message ends with a part of type {read(parts[-1], 'type')!r}, which is neither text nor a refusal",
            "Read raw_item yourself for content of this kind.",
        )

    @classmethod
    def extract_last_text(cls, message: RawItem) -> str | None:
        """Return the text of the last part, or None for a part without text."""
        parts = _parts(message)
        return _texts(parts[-1:], "text")

    @classmethod
    def extract_text(cls, message: RawItem) -> str | None:
        """Return all text of a message, or None without text."""
        return _texts(_parts(message), "text") or None

    @classmethod
    def extract_refusal(cls, message: RawItem) -> str | None:
        """Return the text of a refusal, or None if the model did not refuse."""
        return _texts(_parts(message), "refusal") or None

    @classmethod
    def input_to_new_input_list(cls, input: str | list[TResponseInputItem]) -> list[TResponseInputItem]:
        """Return the input as a new list: a text becomes one user message, items become fresh JSON."""
        if isinstance(input, str):
            return [{"content": input, "role": "user"}]
        return [to_json_item(item) for item in input]

    @classmethod
    def text_message_outputs(cls, items: list[RunItem]) -> str:
        """Join the text of all messages among `items`."""
        return "".join(cls.text_message_output(item) for item in items if isinstance(item, MessageOutputItem))

    @classmethod
    def text_message_output(cls, message: MessageOutputItem) -> str:
        """Return the text of a message."""
        return _texts(_parts(message.raw_item), "text") or ""

    @classmethod
    def tool_call_output_item(cls, tool_call: object, output: object) -> TResponseInputItem:
        """Build the item that answers a function call with `output`."""
        made: Item = {
            "call_id": read(tool_call, "call_id"),
            "output": tool_output(output),
            "type": "function_call_output",
        }
        caller = read(tool_call, "caller")
        if caller is not None:  # a call made by a program of the model's: its answer goes to that program
            made["caller"] = to_plain(caller)
        return made


def call_output_item(call: object, output: object) -> Item:
    """Build the item that answers a call with `output`. The call's type decides the item's type."""
    made = ItemHelpers.tool_call_output_item(call, output)
    made["type"] = CALL_OUTPUTS.get(str(read(call, "type")), "function_call_output")
    return made
