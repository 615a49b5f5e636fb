"""What a reply asks for: its items as entries, and its calls.

Pure but for the names it is given. Checks the one promise the engine builds on: a call id never stands for two calls
(a repeated one with the same content is not run again, with other content the reply is refused), and none is empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from standfast._src.agents.handoffs import Handoff
from standfast._src.base.errors import ItemNotStorableError, ModelBehaviorError, UserError
from standfast._src.base.json_values import Item, encode, encode_value
from standfast._src.items.history import APPROVAL_PLACEHOLDER
from standfast._src.items.item_kinds import KINDS, TOOL_CALL
from standfast._src.items.items import ModelResponse, to_input_json
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.events import Replied
from standfast._src.runs.engine.run import Call, Entry, Response
from standfast._src.runs.steps.allowed_callers import Callers, check_allowed
from standfast._src.runs.steps.call_lookup import tool_of
from standfast._src.tools.custom_tool import CUSTOM_CALL, CustomTool, LocalTool
from standfast._src.tools.function_tool import facts_of

LOCAL_CALLS = frozenset({"computer_call", "local_shell_call", "apply_patch_call"})
"""Calls whose output the program must give, of kinds that standfast has no tools for."""

HOSTED_CALL = "mcp_approval_request"

CALLS = frozenset({"function_call", CUSTOM_CALL, HOSTED_CALL})
"""What asks for something, and gets an answer of the program's."""

ENTRY_KINDS = {
    "handoff": "handoff_call_item",
    "ignored": "handoff_call_item",
    "hosted": "mcp_approval_request_item",
}
"""What calls of these kinds are called in a run; all others are calls of tools."""


@dataclass(slots=True)
class Reply:
    """A reply, taken apart with the names that its agent has.

    Read without names, for a run whose agents are not at hand, every call is one of a tool.
    """

    agent: str
    tools: Mapping[str, LocalTool] = field(default_factory=dict)
    handoffs: Mapping[str, Handoff[Any, Any]] = field(default_factory=dict)
    kind_of_missing: str | None = "tool"
    """The kind of a call whose tool is not there; None: such a reply is refused."""
    known: Mapping[str, str] = field(default_factory=dict)
    """The calls already in history: their ids and digests."""
    answers_repeats: bool = False
    """Whether a server keeps the conversation: there, a call of `known` that stands in this reply is another one, which
    needs an output of its own."""
    callers: Callers | None = None
    """Says who may call; without it nobody is asked."""
    entries: list[Entry] = field(default_factory=list, init=False)
    originals: list[Any] = field(default_factory=list, init=False)
    """Beside each entry: the item as the model gave it."""
    calls: list[Call] = field(default_factory=list, init=False)
    used: list[str] = field(default_factory=list, init=False)
    is_unanswered: bool = field(default=False, init=False)
    """Whether it is no answer yet without a message: a tool of the provider's was active, or a call that had been
    completed before was asked for again."""
    _seen: dict[str, str] = field(default_factory=dict, init=False)
    """The calls of this reply so far: their ids and digests."""

    def event(
        self,
        turn: int,
        response: ModelResponse,
        usage: Usage,
        owed: tuple[int, ...],
        model: str | None = None,
        agent: str | None = None,
    ) -> Replied:
        """The reply as its run learns of it; `usage` is what it cost, `owed` what a filter kept from the request."""
        items = tuple(entry.item for entry in self.entries)
        ids = (response.response_id, response.request_id)
        record = Response(items, usage.to_json(), *ids, model=model, agent=agent)
        calls, used = tuple(self.calls), tuple(self.used)
        return Replied(turn, tuple(self.entries), calls, record, owed, self.is_unanswered, used)

    def take(self, output: Iterable[Any]) -> Reply:
        """Take in what the model gave; the reply itself."""
        for original in output:
            item = stored_form(original)
            _refuse_what_no_store_takes(item)
            kind = item.get("type") or ("message" if "role" in item else None)
            if kind is None:
                raise ModelBehaviorError(
                    "the model replied with an item that has no type",
                    "Check the Model implementation: items need a type.",
                )
            if self.callers is not None:
                self.callers.take(item)
            entry = self._call(kind, item) if kind in CALLS else self._other(kind, item)
            if entry is not None:
                self.entries.append(entry)
                self.originals.append(original)
        return self

    def _call(self, call_type: str, item: Item) -> Entry | None:
        is_hosted = call_type == HOSTED_CALL
        call_id, digest = _call_id(item.get("id" if is_hosted else "call_id"), call_type), call_digest(item)
        is_of_this_reply = call_id in self._seen
        name = str(item.get("name", ""))
        found: LocalTool | Handoff[Any, Any] | None = None
        if self._is_repeated(call_id, digest):
            # It was answered, and is not run again: as another it would have what belongs to the first by its id, a
            # person's approval, the idempotency key, the run inside it. Twice within one reply, it is one call.
            self.is_unanswered = self.is_unanswered or not is_of_this_reply
            if is_of_this_reply or not self.answers_repeats:
                return None
            kind = "repeated"
        elif is_hosted:
            kind = "hosted"
        else:
            kind, found = self._meant(call_type, name, item)
            self.used.append(name)
        self._seen[call_id] = digest
        on_unknown, behind = getattr(found, "on_unknown", "report"), None if found is None else behind_name(found)
        arguments = arguments_text(item)
        self.calls.append(Call(call_id, name, kind, arguments, digest, on_unknown=on_unknown, behind=behind))
        extra = None if found is None or isinstance(found, Handoff) else facts_of(found)
        return Entry(ENTRY_KINDS.get(kind, "tool_call_item"), self.agent, item, extra)

    def _meant(self, call_type: str, name: str, item: Item) -> tuple[str, LocalTool | Handoff[Any, Any] | None]:
        """The kind of a call, and what it is for."""
        namespace = item.get("namespace")
        handoff = self.handoffs.get(name) if call_type == "function_call" and not namespace else None
        tool = tool_of(self.tools, item, name) if handoff is None else None
        if handoff is not None:
            # Two handoffs cannot both be followed: the first wins, and the model is told of the other.
            kind = "ignored" if any(call.kind == "handoff" for call in self.calls) else "handoff"
        elif tool is not None:
            kind = "agent" if tool.agent_tool is not None else "tool"
        elif self.kind_of_missing is not None:
            kind = self.kind_of_missing
        else:
            raise ModelBehaviorError(
                f"the model called tool {f'{namespace}.{name}' if namespace else name!r}, which agent {self.agent!r}"
                " does not have",
                "Give the agent that tool, or set RunConfig(tool_not_found_behavior='return_error_to_model').",
            )
        if self.callers is not None and kind != "unknown":
            check_allowed(item, tool)
        return kind, handoff or tool

    def _is_repeated(self, call_id: str, digest: str) -> bool:
        """Whether this call was made before, in this reply or in an earlier one; another under its id is refused."""
        # Outputs are matched to calls by id alone, here and at every provider: one id for two calls would answer both.
        earlier = self._seen.get(call_id, self.known.get(call_id))
        if earlier is not None and earlier != digest:
            raise ModelBehaviorError(
                f"the model used call id {call_id!r} for two different calls",
                "A call id must be unique for the whole run; check the Model implementation or its provider.",
            )
        return earlier is not None

    def _other(self, kind: str, item: Item) -> Entry | None:
        # Refused, not kept: without an output of ours the provider refuses every later request.
        if kind in LOCAL_CALLS:
            raise UserError(
                f"the model made a {kind}, which standfast has no local tool for",
                "Remove that hosted tool from the agent, or offer the same ability as a function_tool.",
            )
        if kind == APPROVAL_PLACEHOLDER:  # ours, and never part of a conversation
            return None
        known = KINDS.get(kind, TOOL_CALL)
        if known is TOOL_CALL or kind == "program_output":
            self.used.append("programmatic_tool_calling" if kind.startswith("program") else kind)
        self.is_unanswered = self.is_unanswered or known.is_hosted
        return Entry(known.name, self.agent, item)


def call_digest(item: Mapping[str, Any]) -> str:
    """What a call is known by, besides its id: what it asks for, however its JSON is spaced and ordered."""
    arguments = normal_json(item.get("arguments")) if item.get("type") != CUSTOM_CALL else item.get("input")
    meaning = [item.get("type"), item.get("namespace"), item.get("name"), arguments]
    return blake2b(encode_value(meaning), digest_size=16).hexdigest()


def normal_json(arguments: object) -> object:
    """Arguments as text that is equal for equal ones, however their JSON is spaced and ordered; else as they are."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments


def arguments_text(item: Mapping[str, Any]) -> str:
    """The arguments of a call as text: as the model wrote them, or what it gave in place of text as JSON.

    The same text that `ToolApprovalItem.arguments` shows a person: a decision is bound to a hash of it.
    """
    arguments = item.get("input" if item.get("type") == CUSTOM_CALL else "arguments")
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, default=str)


def stored_form(original: object) -> Item:
    """An item as it is stored and sent: JSON, without what only ever comes out of a model."""
    # Some providers give `status: null` and refuse to be given it back.
    item = to_input_json(original)
    if "status" in item and item["status"] is None:
        del item["status"]
    return item


def _refuse_what_no_store_takes(item: Item) -> None:
    """Raise for an item that no store takes, before a call of the reply runs whose output would stand behind it."""
    try:
        encode(item)
    except ItemNotStorableError as error:
        raise ModelBehaviorError(
            f"the model replied with something that is not JSON: {error.what}",
            "Check the Model implementation: its items hold JSON values only, and finite numbers.",
        ) from None


def behind_name(found: LocalTool | Handoff[Any, Any]) -> str:
    """What stands behind the name that is called: the kind of tool, and the agent or server that acts (C16)."""
    if isinstance(found, Handoff):
        return f"handoff:{found.agent_name}"
    if isinstance(found, CustomTool):
        return "custom"
    if found.agent_tool is not None:
        return f"agent:{found.agent_tool.agent.name}"
    server = getattr(found.origin, "mcp_server_name", None)
    return "function" if server is None else f"server:{server}"


def _call_id(value: object, kind: str) -> str:
    if not isinstance(value, str) or not value:
        raise ModelBehaviorError(
            f"the model made a {kind} without an id",
            "Every call needs a non-empty, unique id; check the Model implementation or its provider.",
        )
    return value
