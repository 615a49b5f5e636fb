"""What a reply asks for: its items as entries, and its calls.

Pure but for the names it is given. Checks the one promise the engine builds on: a call id never stands for two calls
(a repeated one with the same content is not run again, with other content the reply is refused), and none is empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from standfast.driver.call_lookup import tool_of
from standfast.driver.callers import Callers, check_allowed
from standfast.engine.events import Replied
from standfast.engine.run import Call, Entry, Response
from standfast.ground.errors import ItemNotStorableError, ModelBehaviorError, UserError
from standfast.ground.jsonvalue import Item, encode, encode_value
from standfast.tools.custom import CUSTOM_CALL, CustomTool
from standfast.tools.function import facts_of
from standfast.words.history import APPROVAL_PLACEHOLDER
from standfast.words.item_kinds import KINDS, TOOL_CALL
from standfast.words.items import ModelResponse, to_input_json
from standfast.words.usage import Usage

LOCAL_CALLS = frozenset({"computer_call", "local_shell_call", "apply_patch_call"})
"""Calls whose output the program must give, of kinds that standfast has no tools for."""

_NOBODY: Mapping[str, Any] = {}


@dataclass(slots=True)
class Reply:
    """A reply, taken apart."""

    entries: list[Entry] = field(default_factory=list)
    originals: list[Any] = field(default_factory=list)
    """Beside each entry: the item as the model gave it."""
    calls: list[Call] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    hosted: bool = False
    """Whether a tool of the provider's was active, so that a reply without a message is not an answer yet."""
    skipped: int = 0
    """Calls that had been completed before and were asked for again."""

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
        unanswered, used = self.hosted or self.skipped > 0, tuple(self.used)
        return Replied(turn, tuple(self.entries), tuple(self.calls), record, owed, unanswered, used)


def call_digest(item: Mapping[str, Any]) -> str:
    """What a call is known by, besides its id: what it asks for, however its JSON is spaced and ordered."""
    return _digest(item, normal_json(item.get("arguments")) if item.get("type") != CUSTOM_CALL else item.get("input"))


def is_digest_of(digest: str, item: Mapping[str, Any]) -> bool:
    """Whether a saved digest is this call's; 0.1 took the arguments as they were written."""
    return digest in (call_digest(item), _digest(item, item.get("arguments")))  # 0.1 knew no free-form input


def _digest(item: Mapping[str, Any], arguments: object) -> str:
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


def classify(
    output: Iterable[Any],
    *,
    agent: str,
    tools: Mapping[str, Any] = _NOBODY,
    handoffs: Mapping[str, Any] = _NOBODY,
    known: Mapping[str, str] = _NOBODY,
    unknown_tool: Callable[[str], str] = lambda name: "tool",
    callers: Callers | None = None,
    answers_repeats: bool = False,
) -> Reply:
    """The reply's entries and calls. `known` maps the ids of calls already in history to their digests.

    `unknown_tool(name)` says what to do about a tool that is not there: it raises, or returns the call's kind. Read
    without names, for a run whose agents are not at hand, every call is one of a tool. `callers` says who may call;
    without it nobody is asked. `answers_repeats`: a server keeps the conversation, and has a call of `known` that
    stands in this reply as another one, which needs an output of its own.
    """
    reading = _Reading(agent, tools, handoffs, known, unknown_tool, callers, answers_repeats)
    for original in output:
        reading.take(original)
    return reading.reply


@dataclass(slots=True)
class _Reading:
    """A reply that is being taken apart, and the names it is read with."""

    agent: str
    tools: Mapping[str, Any]
    handoffs: Mapping[str, Any]
    known: Mapping[str, str]
    unknown_tool: Callable[[str], str]
    callers: Callers | None = None
    answers_repeats: bool = False
    reply: Reply = field(default_factory=Reply)
    seen: dict[str, str] = field(default_factory=dict)
    """The calls of this reply so far: their ids and digests."""

    def take(self, original: object) -> None:
        """Take in the next item of the reply."""
        item = stored_form(original)
        _refuse_what_no_store_takes(item)
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind is None:
            raise ModelBehaviorError(
                "the model replied with an item that has no type", "Check the Model implementation: items need a type."
            )
        if self.callers is not None:
            self.callers.take(item)
        if kind in ("function_call", CUSTOM_CALL):
            self._local_call(kind, item, original)
        elif kind == "mcp_approval_request":
            self._hosted_request(item, original)
        elif kind != APPROVAL_PLACEHOLDER:  # ours, and never part of a conversation
            self._other(kind, item, original)

    def _local_call(self, call_type: str, item: Item, original: object) -> None:
        call_id, digest = _call_id(item.get("call_id"), call_type), call_digest(item)
        if self._is_repeated(call_id, digest):
            if call_id not in self.seen:  # else it was repeated within one reply, where it is one call
                self._repeated(call_id, digest, item, original)
            return
        name, namespace = str(item.get("name", "")), item.get("namespace")
        qualified = f"{namespace}.{name}" if namespace else name
        found = tool_of(self.tools, item, name)
        entry_kind, extra = "tool_call_item", None
        on_unknown, behind = "report", None
        # Two handoffs cannot both be followed: the first wins, and the model is told of the other.
        if call_type == "function_call" and not namespace and name in self.handoffs:
            kind = "ignored" if any(call.kind == "handoff" for call in self.reply.calls) else "handoff"
            entry_kind, behind = "handoff_call_item", behind_handoff(self.handoffs[name])
            found = None
        elif found is None:
            kind = self.unknown_tool(qualified)
        else:
            kind = "agent" if found.agent_tool is not None else "tool"
            extra, on_unknown, behind = facts_of(found), found.on_unknown, behind_tool(found)
        if self.callers is not None and kind != "unknown":
            check_allowed(item, found)
        self.reply.used.append(name)
        arguments = arguments_text(item)
        self.reply.calls.append(Call(call_id, name, kind, arguments, digest, on_unknown=on_unknown, behind=behind))
        self._keep(Entry(entry_kind, self.agent, item, extra), original)

    def _repeated(self, call_id: str, digest: str, item: Item, original: object) -> None:
        """Take in a call of an earlier reply. It was answered, and is not run again.

        Run as another, it would have what belongs to the first by its id: a person's approval, the idempotency key, the
        run inside it.
        """
        self.reply.skipped += 1
        if self.answers_repeats:
            self.seen[call_id] = digest
            name = str(item.get("name", ""))
            self.reply.calls.append(Call(call_id, name, "repeated", arguments_text(item), digest))
            self._keep(Entry("tool_call_item", self.agent, item), original)

    def _hosted_request(self, item: Item, original: object) -> None:
        call_id, digest = _call_id(item.get("id"), "mcp_approval_request"), call_digest(item)
        if self._is_repeated(call_id, digest):
            return
        self.reply.calls.append(Call(call_id, str(item.get("name", "")), "hosted", arguments_text(item), digest))
        self._keep(Entry("mcp_approval_request_item", self.agent, item), original)

    def _is_repeated(self, call_id: str, digest: str) -> bool:
        """Whether this call was made before, in this reply or in an earlier one; another under its id is refused."""
        # Outputs are matched to calls by id alone, here and at every provider: one id for two calls would answer both.
        earlier = self.seen.get(call_id, self.known.get(call_id))
        if earlier is not None and earlier != digest:
            raise ModelBehaviorError(
                f"the model used call id {call_id!r} for two different calls",
                "A call id must be unique for the whole run; check the Model implementation or its provider.",
            )
        if earlier is None:
            self.seen[call_id] = digest
        return earlier is not None

    def _other(self, kind: str, item: Item, original: object) -> None:
        # Refused, not kept: without an output of ours the provider refuses every later request.
        if kind in LOCAL_CALLS:
            raise UserError(
                f"the model made a {kind}, which standfast has no local tool for",
                "Remove that hosted tool from the agent, or offer the same ability as a function_tool.",
            )
        known = KINDS.get(kind, TOOL_CALL)
        if known is TOOL_CALL or kind == "program_output":
            self.reply.used.append("programmatic_tool_calling" if kind.startswith("program") else kind)
        self.reply.hosted = self.reply.hosted or known.is_hosted
        self._keep(Entry(known.name, self.agent, item), original)

    def _keep(self, entry: Entry, original: object) -> None:
        self.reply.entries.append(entry)
        self.reply.originals.append(original)


def _refuse_what_no_store_takes(item: Item) -> None:
    """Before a call of the reply runs: what it did could not be stored behind this."""
    try:
        encode(item)
    except ItemNotStorableError as error:
        raise ModelBehaviorError(
            f"the model replied with something that is not JSON: {error.what}",
            "Check the Model implementation: its items hold JSON values only, and finite numbers.",
        ) from None


def behind_tool(tool: Any) -> str:
    """What stands behind a tool besides its name: its kind, and the agent or server that acts (C16)."""
    if isinstance(tool, CustomTool):
        return "custom"
    origin = getattr(tool, "origin", None)
    described = getattr(tool, "agent_tool", None)
    if described is not None:
        return f"agent:{described.agent.name}"
    server = getattr(origin, "mcp_server_name", None)
    return "function" if server is None else f"server:{server}"


def behind_handoff(handoff: Any) -> str:
    """The agent that a handoff leads to, as far as it says so."""
    return f"handoff:{getattr(handoff, 'agent_name', '')}"


def _call_id(value: object, kind: str) -> str:
    if not isinstance(value, str) or not value:
        raise ModelBehaviorError(
            f"the model made a {kind} without an id",
            "Every call needs a non-empty, unique id; check the Model implementation or its provider.",
        )
    return value
