"""Parser of a reply: its items as entries, and its calls.

The parser is pure but for the names it is given. It checks the one promise needed by the engine: a call id never means
two calls (a repeated id with the same content is not run again, with other content the reply is refused), and none is
empty.
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
from standfast._src.items.history import APPROVAL_PLACEHOLDER, FUNCTION_CALL, LOCAL_CALL_INPUTS, LOCAL_CALL_TYPES
from standfast._src.items.item_kinds import KINDS, TOOL_CALL
from standfast._src.items.items import ModelResponse, to_input_json
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.events import Replied
from standfast._src.runs.engine.run import Call, Entry, Response
from standfast._src.runs.steps.allowed_callers import Callers, check_allowed
from standfast._src.runs.steps.call_lookup import tool_of
from standfast._src.tools.local_tool import LocalTool, facts_of

LOCAL_CALLS = frozenset({"computer_call", "local_shell_call", "apply_patch_call"})
"""Calls whose output the program must give, of kinds that standfast has no tools for."""

HOSTED_CALL = "mcp_approval_request"

CALLS = LOCAL_CALL_TYPES | {HOSTED_CALL}
"""What asks for something, and gets an answer of the program's."""

ENTRY_KINDS = {
    "handoff": "handoff_call_item",
    "ignored": "handoff_call_item",
    "hosted": "mcp_approval_request_item",
}
"""Names of calls of these kinds in a run; all remaining calls are calls of tools."""


@dataclass(slots=True)
class Reply:
    """Reply, parsed with the names of its agent's tools and handoffs.

    Parsed without names, for a run without its agents at hand, every call is a tool call.
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
    """Checks the callers of tools; without it no caller is checked."""
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
        """Return the reply as an event of its run; `usage` is its cost, `owed` the items a filter removed from the
        request.
        """
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
        """Return the kind of a call, and the called tool or handoff."""
        namespace = item.get("namespace")
        handoff = self.handoffs.get(name) if call_type == FUNCTION_CALL and not namespace else None
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
        """Return True if the reply or an earlier one has the call already; raise for a different call of that id."""
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
    """Return the digest of a call's request, independent of spaces and order in its JSON."""
    key = LOCAL_CALL_INPUTS.get(str(item.get("type")), "arguments")
    arguments = normal_json(item.get(key)) if key == "arguments" else item.get(key)
    meaning = [item.get("type"), item.get("namespace"), item.get("name"), arguments]
    return blake2b(encode_value(meaning), digest_size=16).hexdigest()


def normal_json(arguments: object) -> object:
    """Return arguments as text equal for equal arguments, independent of spaces and order in JSON; else unchanged."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments


def arguments_text(item: Mapping[str, Any]) -> str:
    """Return the arguments of a call as the model's own text, or as JSON if the model gave no text.

    `ToolApprovalItem.arguments` shows the same text to a person: a decision is bound to a hash of it.
    """
    arguments = item.get(LOCAL_CALL_INPUTS.get(str(item.get("type")), "arguments"))
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, default=str)


def stored_form(original: object) -> Item:
    """Return an item in the stored and sent form: JSON, without values found only in a model's output."""
    # Some providers give `status: null` and refuse to be given it back.
    item = to_input_json(original)
    if "status" in item and item["status"] is None:
        del item["status"]
    return item


def _refuse_what_no_store_takes(item: Item) -> None:
    """Raise for an item refused by every store, before a call of the reply runs and its output follows the item."""
    try:
        encode(item)
    except ItemNotStorableError as error:
        raise ModelBehaviorError(
            f"the model replied with something that is not JSON: {error.what}",
            "Check the Model implementation: its items hold JSON values only, and finite numbers.",
        ) from None


def behind_name(found: LocalTool | Handoff[Any, Any]) -> str:
    """Return the target of a called name: the kind of tool, and the agent or server behind it (C16)."""
    return f"handoff:{found.agent_name}" if isinstance(found, Handoff) else found.target()


def _call_id(value: object, kind: str) -> str:
    if not isinstance(value, str) or not value:
        raise ModelBehaviorError(
            f"the model made a {kind} without an id",
            "Every call needs a non-empty, unique id; check the Model implementation or its provider.",
        )
    return value
