"""A small world around the pure turn engine: what a script says will happen, and a store and a server that remember.

A `Script` says what model, tools, guardrails and people will do. `World` is everything outside a run: sessions that
store each ordinal of a writer once, a server that keeps what it was sent and what it answered, and a count of how often
each tool really ran. The world reacts when an effect leaves, whether or not anybody lives to see the answer. Nothing
here knows the engine's rules; it only asserts what no outside party would accept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from standfast._src.base.json_values import Item, encode_value
from standfast._src.runs.engine.run import Call, Entry, OwnerKind, Response, Verdict

Approval = Literal["no", "approve", "reject", "sticky", "sticky_reject"]
DoubtPolicy = Literal["rerun", "ask", "ask_reject", "report"]
Path = tuple[str, ...]
"""The call ids that lead to a nested run; () is the run itself."""


@dataclass(frozen=True)
class ScriptCall:
    """One call the model makes, what people say to it, and what is done if a crash leaves its outcome open."""

    kind: str = "tool"
    name: str = "pay"
    approval: Approval = "no"
    doubt: DoubtPolicy = "report"
    based: bool = False
    """A handoff's: whether a filter makes a new view."""
    child: Script | None = None


@dataclass(frozen=True)
class ScriptTurn:
    """One reply of the model."""

    calls: tuple[ScriptCall, ...] = ()
    reasoning: bool = False
    final: bool = False
    """Whether the turn's tool outputs are the final output."""
    named: bool = True
    """Whether the response has an id."""
    left_out: tuple[int, ...] = ()
    """Which of the items offered to a server a filter leaves out, counted from the front."""


@dataclass(frozen=True)
class Script:
    """One run, told from outside. When its turns are used up the model says its last word."""

    owner: OwnerKind = "session"
    input: tuple[str, ...] = ("yes",)
    history: tuple[str, ...] = ()
    guards: Literal["none", "blocking", "parallel", "both"] = "none"
    trips: Literal["no", "blocking", "parallel"] = "no"
    turns: tuple[ScriptTurn, ...] = ()
    output_guards: bool = True
    output_trips: bool = False
    max_turns: int | None = None
    handler: bool = True
    """Whether somebody handles that the turns are used up; otherwise the run raises there."""
    staged: tuple[str, ...] = ()
    """What a person adds when the run first asks for an approval."""
    staged_trips: bool = False

    @property
    def verdict(self) -> Verdict:
        """What the run begins with."""
        if self.guards == "none":
            return "passed"
        return "parallel" if self.guards == "parallel" else "blocking"

    def turn(self, number: int) -> ScriptTurn:
        """The reply of that turn."""
        return self.turns[number - 1] if number <= len(self.turns) else ScriptTurn(final=True)


def user(text: str) -> Item:
    """A message of the user. Scripts repeat themselves: two people may both say "yes"."""
    return {"role": "user", "content": text}


def said(text: str) -> Item:
    """A message of the model."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def summary(call_id: str) -> Item:
    """What a handoff's filter shows of everything up to it."""
    return user(f"what happened up to turn {unsalted(call_id).removeprefix('c').split('.')[0]}")


def summarised_turn(base: Sequence[Item]) -> int:
    """The turn up to which a handoff's view tells."""
    return int(base[0]["content"].split()[-1])


def after_turn(items: Sequence[Item], turn: int) -> int:
    """Where the items of this turn end: behind the last output of one of its calls."""
    answers = [answered_ids([item]) for item in items]
    return 1 + max(place for place, ids in enumerate(answers) if ids and ids[0].startswith(f"c{turn}."))


def answer(call: Call, text: str, approve: bool = True) -> Entry:
    """The item that answers a call, in the form its kind has."""
    if call.kind == "hosted":
        item: Item = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": approve}
        return Entry("mcp_approval_response_item", "", item)
    return Entry("tool_call_output_item", "", {"type": "function_call_output", "call_id": call.id, "output": text})


def call_item(call: Call) -> Item:
    """The item by which a model makes this call."""
    if call.kind == "hosted":
        return {"type": "mcp_approval_request", "id": call.id, "name": call.name, "arguments": call.arguments}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


_SALT = re.compile(r"~\d+")


def unsalted(text: str) -> str:
    """A call id without the number of the attempt that made it: a model asked again makes other ids."""
    return _SALT.sub("", text)


def call_ids(items: Iterable[Item]) -> list[str]:
    """The calls made in these items, in order."""
    made = ("function_call", "mcp_approval_request")
    return [item.get("call_id") or item["id"] for item in items if item.get("type") in made]


def answered_ids(items: Iterable[Item]) -> list[str]:
    """The calls answered in these items, in order."""
    ids = (item.get("approval_request_id") or (item.get("call_id") if "output" in item else None) for item in items)
    return [call_id for call_id in ids if call_id is not None]


def assert_provider_valid(items: Sequence[Item]) -> None:
    """Each call has exactly one output, behind it, in call order; there is no output without its call (C8)."""
    open_ids: list[str] = []
    seen: set[str] = set()
    for item in items:
        for call_id in call_ids([item]):
            assert call_id not in seen, f"call {call_id} is made twice"
            seen.add(call_id)
            open_ids.append(call_id)
        for call_id in answered_ids([item]):
            assert open_ids, f"an output of {call_id} without its call, or a second one"
            assert call_id == open_ids[0], f"{call_id} was answered before {open_ids[0]}: outputs are in call order"
            open_ids.pop(0)
    assert not open_ids, f"calls without an output: {open_ids}"


def counted(items: Iterable[Item]) -> Counter[bytes]:
    """How often each content occurs."""
    return Counter(encode_value(item) for item in items)


@dataclass
class StoredSession:
    """A session that stores each ordinal of a writer once (B1), and what others wrote beside it."""

    rows: list[tuple[str | None, Item]] = field(default_factory=list)
    """Each item with its writer."""
    accepted: dict[str, list[Item]] = field(default_factory=dict)

    @property
    def items(self) -> list[Item]:
        """The history."""
        return [item for _, item in self.rows]

    def append(self, items: Sequence[Item], writer: str, start: int) -> None:
        """Store what is new of these; refuse what no exactly-once store would take."""
        known = self.accepted.setdefault(writer, [])
        assert start <= len(known), f"a gap: {writer} has {len(known)} and appends from {start}"
        again = known[start : start + len(items)]
        assert list(items[: len(again)]) == again, "a second history under the same name"
        fresh = list(items[len(again) :])
        assert_provider_valid(items)
        assert_provider_valid(fresh)
        known.extend(fresh)
        self.rows.extend((writer, item) for item in fresh)

    def written(self, writer: str) -> int:
        """How many items of this writer are stored."""
        return len(self.accepted.get(writer, ()))


@dataclass
class Answered:
    """A request that a server took, and its answer."""

    entries: tuple[Entry, ...]
    calls: tuple[Call, ...]
    response: Response


@dataclass
class Server:
    """A server that keeps a conversation, or responses by their id: what it was sent, and what it answered."""

    chain: bool
    contexts: dict[str | None, list[Item]] = field(default_factory=lambda: {None: []})
    taken: dict[int, Answered] = field(default_factory=dict)
    """By turn: what a lost answer can be settled from."""

    def context(self, previous: str | None) -> list[Item]:
        """What the model would see before this request's own items."""
        return self.contexts.setdefault(previous if self.chain else None, [])

    def take(self, turn: int, previous: str | None, sent: Sequence[Item], answered: Answered) -> None:
        """Keep a request and its answer."""
        assert turn not in self.taken, f"the request of turn {turn} reached the server twice"
        whole = [*self.context(previous), *sent, *(entry.item for entry in answered.entries)]
        if not self.chain:
            self.contexts[None] = whole
        elif answered.response.response_id is not None:
            self.contexts[answered.response.response_id] = whole
        self.taken[turn] = answered


@dataclass
class World:
    """Everything outside the run."""

    script: Script
    sessions: dict[Path, StoredSession] = field(default_factory=dict)
    servers: dict[Path, Server] = field(default_factory=dict)
    ran: Counter[tuple[Path, str]] = field(default_factory=Counter)
    """How often each call really ran, whatever was heard of it."""
    ran_ids: set[tuple[Path, str]] = field(default_factory=set)
    """The same calls under the ids by which a history knows them."""
    asked: Counter[tuple[Path, int]] = field(default_factory=Counter)
    unknown: set[tuple[Path, str]] = field(default_factory=set)
    """Calls that were settled without knowing their outcome."""
    allowed_again: set[tuple[Path, str]] = field(default_factory=set)
    """Calls that a person wanted to be run again after a crash."""
    staged: bool = False

    def script_at(self, path: Path) -> Script:
        """What the run at this path plays."""
        script = self.script
        for call_id in path:
            child = self.call_of(script, call_id).child
            assert child is not None
            script = child
        return script

    @staticmethod
    def call_of(script: Script, call_id: str) -> ScriptCall:
        """What the script says of a call; its id tells where it stands."""
        turn, index = unsalted(call_id).removeprefix("c").split(".")
        return script.turn(int(turn)).calls[int(index)]

    def session(self, path: Path) -> StoredSession:
        """The session of the run at this path."""
        stable = tuple(unsalted(call_id) for call_id in path)
        if stable not in self.sessions:
            self.sessions[stable] = StoredSession([(None, user(text)) for text in self.script_at(path).history])
        return self.sessions[stable]

    def server(self, path: Path) -> Server:
        """The server that keeps the conversation of the run at this path."""
        stable = tuple(unsalted(call_id) for call_id in path)
        if stable not in self.servers:
            self.servers[stable] = Server(chain=self.script_at(path).owner == "chain")
        return self.servers[stable]

    def name(self, path: Path, call_id: str) -> tuple[Path, str]:
        """A call under the name it has in every retelling of the script."""
        return tuple(unsalted(step) for step in path), unsalted(call_id)

    def reply(self, path: Path, turn: int, agent: str) -> Answered:
        """What the model says in this turn. Asked again, it says the same, with other ids."""
        stable = tuple(unsalted(step) for step in path)
        self.asked[stable, turn] += 1
        salt = f"~{self.asked[stable, turn]}"
        plan = self.script_at(path).turn(turn)
        entries: list[Entry] = []
        if plan.reasoning:
            entries.append(Entry("reasoning_item", agent, {"type": "reasoning", "id": f"rs{turn}{salt}"}))
        calls = tuple(
            Call(f"c{turn}.{index}{salt}", call.name, call.kind, "{}", f"digest {call.name}")
            for index, call in enumerate(plan.calls)
        )
        if not calls:
            entries.append(Entry("message_output_item", agent, said("yes")))
        entries += [Entry("tool_call_item", agent, call_item(call)) for call in calls]
        response_id = f"r{turn}{salt}" if plan.named else None
        response = Response(tuple(entry.item for entry in entries), {"total_tokens": turn}, response_id)
        return Answered(tuple(entries), calls, response)

    def retold(self, path: Path, unknown: set[tuple[Path, str]]) -> list[Any]:
        """The stored history of one session, without what may differ between two tellings of the same script."""
        stable = tuple(unsalted(step) for step in path)
        return [_retold(stable, item, unknown) for item in self.session(stable).items]


def _retold(path: Path, item: Item, unknown: set[tuple[Path, str]]) -> Item:
    plain = {key: unsalted(value) if isinstance(value, str) else value for key, value in item.items()}
    call_id = plain.get("call_id") or plain.get("approval_request_id")
    if (path, call_id) in unknown and plain.get("type") != "function_call":
        return {"type": plain["type"], "call_id": call_id, "output": "?"}
    return plain
