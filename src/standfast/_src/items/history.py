"""Rules about lists of items: pairs of calls and outputs, copies, and the limits of providers.

Every function is pure, works on plain JSON items, and never changes an item: a changed item is a shallow copy, the rest
are passed on. The order of the rules is the order of use: `normalise` each item, `deduplicate` the list, `prune` the
items that a provider would refuse. `Prepared` gives the same result for a growing list, at the cost of the new items.

Equal content is never a reason to merge (two people may both say "yes"): only an id given by a provider or a call is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from standfast._src.base import canonical_json
from standfast._src.base.json_values import Item

Key: TypeAlias = tuple[str, ...]
Items: TypeAlias = list[Item]

# --- the tables ------------------------------------------------------------------------------------------------------

CALL_OUTPUTS: dict[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Types of calls that need an answer in the list, and the type of the answer. Other calls bring their result along."""

OUTPUT_CALLS: dict[str, str] = {output: call for call, output in CALL_OUTPUTS.items()}
"""The same table the other way round."""

FUNCTION_CALL = "function_call"

LOCAL_CALL_INPUTS: dict[str, str] = {FUNCTION_CALL: "arguments", "custom_tool_call": "input"}
"""Types of calls that tools of the program run, and the key of the model's input in each."""

LOCAL_CALL_TYPES: frozenset[str] = frozenset(LOCAL_CALL_INPUTS)

LOCAL_OUTPUT_TYPES: frozenset[str] = frozenset(CALL_OUTPUTS[kind] for kind in LOCAL_CALL_TYPES)
"""Types of what they come to."""

PROVIDERS_OUTPUTS: frozenset[str] = frozenset({"tool_search_output", "program_output"})
"""Types of answers that a provider gives itself: they arrive in replies."""

ANSWERS: frozenset[str] = frozenset(OUTPUT_CALLS) - PROVIDERS_OUTPUTS
"""Types of items that answer a reply: what comes behind one of them belongs to the next reply."""

INTERNAL_KEYS: frozenset[str] = frozenset(
    {
        "_agents_tool_description",  # the two that the OpenAI Agents SDK may have left in a history
        "_agents_tool_title",
        "_standfast",  # ours: whatever belongs to an item and is no provider's business
    }
)
"""Keys that no provider and no store may see."""

PLACEHOLDER_ID = "__fake_id__"
"""Id written by adapters for providers without item ids: equal for every item, so it identifies none."""

APPROVAL_PLACEHOLDER = "tool_approval_item"
"""The type of a question to a person, which is no part of a conversation with a model."""


# --- one item --------------------------------------------------------------------------------------------------------


def normalise(item: Item) -> Item:
    """The item without `status: null` (which providers give and refuse) and without internal keys."""
    if (item.get("status", item) is not None) and INTERNAL_KEYS.isdisjoint(item):
        return item
    return {
        name: value
        for name, value in item.items()
        if name not in INTERNAL_KEYS and not (name == "status" and value is None)
    }


def sanitise_for_store(item: Item) -> Item | None:
    """Return an item in storable form. Return None for an approval placeholder, never to be stored (C5)."""
    if item.get("type") == APPROVAL_PLACEHOLDER:
        return None
    if INTERNAL_KEYS.isdisjoint(item):
        return item
    return {name: value for name, value in item.items() if name not in INTERNAL_KEYS}


def omit_reasoning_id(item: Item) -> Item:
    """Remove the id of a reasoning item (`reasoning_item_id_policy="omit"`); return any other item unchanged."""
    if item.get("type") != "reasoning" or "id" not in item:
        return item
    return {name: value for name, value in item.items() if name != "id"}


def canonical(item: Item) -> bytes:
    """Return canonical bytes, equal exactly for items of equal content: sorted keys, no internal keys."""
    said = item if INTERNAL_KEYS.isdisjoint(item) else {k: v for k, v in item.items() if k not in INTERNAL_KEYS}
    return canonical_json.canonical_json(said)


def is_call(item: Item) -> bool:
    """Return whether an item is a request to act, for the program or for the provider."""
    return _is_call_type(item.get("type"))


def _is_call_type(kind: object) -> bool:
    return kind in CALL_OUTPUTS or (isinstance(kind, str) and kind.endswith("_call"))


def call_key(item: Item) -> Key | None:
    """Return the key that answers a call: its type and id. Return None if the item needs no answer."""
    kind = item.get("type")
    if kind not in CALL_OUTPUTS:
        return None
    found = item.get("id" if kind == "mcp_approval_request" else "call_id")
    if isinstance(found, str) and found:
        return (kind, found)
    # A tool search that the provider runs itself has no call id: it is answered by the next one that comes.
    return (kind,) if kind == "tool_search_call" else None


def output_key(item: Item) -> Key | None:
    """Return the key of the call that an item answers, or None if the item is not an answer."""
    kind = OUTPUT_CALLS.get(item.get("type") or "")
    if kind is None:
        return None
    if kind == "mcp_approval_request":
        found = item.get("approval_request_id")
    elif kind == "local_shell_call":
        found = item.get("call_id") or item.get("id")  # providers write the call's id here
    else:
        found = item.get("call_id")
    if isinstance(found, str) and found:
        return (kind, found)
    return (kind,) if kind == "tool_search_call" else None


def owner_key(item: Item) -> Key | None:
    """Return the key of the program that made a call, or None if no program did."""
    caller = item.get("caller")
    if type(caller) is dict and caller.get("type") == "program":
        return ("program", str(caller.get("caller_id")))
    return None


def identity(item: Item) -> Key | None:
    """Return the identity of an item: its call id and type, else provider id and type, else approval request id.

    Items of equal identity are the same item. None for messages, never merged, and for items without any id.
    """
    kind = item.get("type")
    if kind == "message" or (kind is None and "role" in item and "call_id" not in item):
        return None  # by far the most
    found = item.get("call_id")
    if isinstance(found, str) and found:
        return (str(kind), found)
    if kind is None and "role" in item:
        return None
    found = item.get("id")
    if isinstance(found, str) and found and found != PLACEHOLDER_ID:
        return (str(kind), "id", found)
    found = item.get("approval_request_id")
    if isinstance(found, str) and found:
        return (str(kind), "approval", found)
    return None


# --- a list of items -------------------------------------------------------------------------------------------------


def deduplicate(items: Iterable[Item]) -> list[Item]:
    """Keep one item for each identity, with the latest value (C2).

    Calls and reasoning keep their earliest place, because later items depend on them; any other item moves to its
    latest place. A call id used again after its output is a new call, unless call and output are both repeated (see
    below).
    """
    items = _without_repeated_pairs(list(items))
    found: list[Item | None] = []
    places: dict[Key, int] = {}
    open_calls: set[Key] = set()
    moved = False
    for item in items:
        key = identity(item)
        if key is None:
            found.append(item)
            continue
        asks, answers = _by_call_id(item, key)
        place = places.get(key)
        if asks is not None and asks not in open_calls:
            place = None  # whatever was asked for under this id before has its output
        elif answers is not None and answers in open_calls:
            place = None  # the first answer to this call, whatever answered an earlier one of its id
        if place is not None and (key[0] == "reasoning" or _is_call_type(key[0])):
            found[place] = item
            continue
        if place is not None:
            found[place] = None
            moved = True
        places[key] = len(found)
        if asks is not None:
            open_calls.add(asks)
        elif answers is not None:
            open_calls.discard(answers)
        found.append(item)
    return [item for item in found if item is not None] if moved else found  # type: ignore[return-value]  # no None in it


def _without_repeated_pairs(items: list[Item]) -> list[Item]:
    """Remove later copies of a call and its output if the provider's id and all other content are equal.

    Such a pair is one call given again, as `to_input_list()` beside `session=` gives it. A provider may number the
    calls of each request from the start, but does not use an item's id twice, and refuses a request with a repeated id.
    """
    used = Counter(provider_id for item in items if (provider_id := _id_of_call(item)) is not None)
    if len(used) == used.total():
        return items
    known: set[tuple[bytes, bytes]] = set()
    repeated: set[int] = set()
    for call, output in sorted(pair(items).items()):
        if used.get(_id_of_call(items[call]) or "", 0) > 1:
            both = canonical(items[call]), canonical(items[output])
            if both in known:
                repeated |= {call, output}
            known.add(both)
    return [item for place, item in enumerate(items) if place not in repeated] if repeated else items


def _id_of_call(item: Item) -> str | None:
    """Return the provider's id of a call with a call id; None for any other item and for the placeholder."""
    found = item.get("id")
    if not isinstance(found, str) or not found or found == PLACEHOLDER_ID or not item.get("call_id"):
        return None
    return found if call_key(item) is not None else None


def _by_call_id(item: Item, key: Key) -> tuple[Key | None, Key | None]:
    """Return the key of the call itself and of the call it answers, if known by a call id. `key` is the item's
    identity.
    """
    if len(key) != 2:
        return None, None  # known by the provider's own id: that is not used again
    asks = call_key(item)
    return (asks, None) if asks is not None else (None, output_key(item))


def without_more_copies(items: Sequence[Item], given: Iterable[Item]) -> list[Item]:
    """Remove items with an identity that occur more often than in `given`: a provider refuses the second copy.

    The first copies stay. Messages are never merged, and a changed item is the program's own.
    """
    left = Counter(canonical(item) for item in given if identity(item) is not None)
    kept: list[Item] = []
    for item in items:
        key = canonical(item) if identity(item) is not None else b""
        if key in left:
            if not left[key]:
                continue
            left[key] -= 1
        kept.append(item)
    return kept


def pair(items: Sequence[Item]) -> dict[int, int]:
    """Map the place of each answered call to the place of its answer. An answer belongs to the nearest open call before
    it.
    """
    waiting: dict[Key, list[int]] = {}
    pairs: dict[int, int] = {}
    for place, item in enumerate(items):
        key = call_key(item)
        if key is not None:
            waiting.setdefault(key, []).append(place)
            continue
        key = output_key(item)
        if key is not None and waiting.get(key):
            pairs[waiting[key].pop()] = place
    return pairs


class LeftOut(NamedTuple):
    """An item left out of a request, and the reason."""

    item: Item
    reason: str


NO_OUTPUT = "a call without an output"
NO_CALL = "an output without its call"
NO_FOLLOWER = "reasoning before a call that is left out"
NO_PROGRAM = "made by a program that is not there"
CUT_REASONING = "reasoning with nothing behind it"
CUT_REPLY = "the rest of a reply that a limit cut in two"

BEGINS_A_TURN: frozenset[str] = frozenset({"user", "system", "developer"})
"""Roles of messages with which a new turn begins."""


def prune(items: Sequence[Item]) -> tuple[list[Item], list[LeftOut]]:
    """Split a list into items that a provider accepts and items left out (C8, D12).

    Left out are: calls without an output, the reasoning right before them, outputs without an earlier call, calls of a
    program that is not in the list, and reasoning followed by the next turn. Reasoning stays if any of the calls right
    behind it stays, because a provider refuses a call without its reasoning. Reasoning at the end of the list stays
    too: its call may still come. A program still at work stays if any of its calls stays.
    """
    return _judge(items).split()


class _Judged(NamedTuple):
    """A list with its verdicts: `dropped` items by place, `unanswered` calls, programs, and owners of kept items."""

    items: Sequence[Item]
    dropped: Mapping[int, str] = MappingProxyType({})
    unanswered: Mapping[Key, int] = MappingProxyType({})
    programs: Mapping[Key, int] = MappingProxyType({})
    """By key, the first place of each program; -1 if it came before the list."""
    kept_owners: Set[Key] = frozenset()

    def split(self) -> tuple[list[Item], list[LeftOut]]:
        dropped, items = self.dropped, self.items
        if not dropped:
            return list(items), []
        kept = [item for place, item in enumerate(items) if place not in dropped]
        return kept, [LeftOut(items[place], dropped[place]) for place in sorted(dropped)]


_NONE: frozenset[Key] = frozenset()


def _judge(items: Sequence[Item], programs: Iterable[Key] = _NONE, at_work: Iterable[Key] = _NONE) -> _Judged:
    """Decide about each item, given the earlier `programs` and the programs still `at_work`."""
    dropped: dict[int, str] = {}
    waiting: dict[Key, list[int]] = {}
    owned: dict[Key, list[int]] = {}
    known = dict.fromkeys(programs, -1)
    running = set(at_work)
    reasoned = False
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind is None or kind == "message":
            continue
        if kind == "reasoning":
            reasoned = True
            continue
        if "caller" in item and kind not in OUTPUT_CALLS:
            owner = owner_key(item)
            if owner is not None:
                if owner not in known:
                    dropped[place] = NO_PROGRAM
                    continue
                owned.setdefault(owner, []).append(place)
        if kind in CALL_OUTPUTS:
            key = call_key(item)
            if key is None:
                dropped[place] = NO_OUTPUT  # without an id it cannot be answered
                continue
            waiting.setdefault(key, []).append(place)
            if kind == "program":
                known.setdefault(key, place)
        elif kind in OUTPUT_CALLS:
            key = output_key(item)
            if key is not None and (calls := waiting.get(key)):
                calls.pop()  # the nearest: an id may have been used before
            elif key in running:
                running.discard(key)
            else:
                dropped[place] = NO_CALL
    unanswered = {key: places for key, places in waiting.items() if places}
    dropped.update((place, NO_OUTPUT) for key, places in unanswered.items() if key[0] != "program" for place in places)
    last_made = {
        key: max((place for place in places if place not in dropped), default=-1) for key, places in owned.items()
    }
    kept_owners = {owner for owner, place in last_made.items() if place >= 0}
    for key, places in unanswered.items():
        if key[0] == "program":  # what stands before it was made by an earlier one of the same id
            dropped.update((place, NO_OUTPUT) for place in places if place > last_made.get(key, -1))
    if reasoned:
        _drop_reasoning(items, dropped)
        _drop_cut_reasoning(items, dropped)
    left = {key: places[0] for key, places in unanswered.items()}
    return _Judged(items, dropped, left, known, kept_owners)


def _drop_reasoning(items: Sequence[Item], dropped: dict[int, str]) -> None:
    """Also drop reasoning if all calls right behind it are dropped."""
    end = 0
    for place in sorted(place for place in dropped if is_call(items[place])):
        if place < end:
            continue  # of a run of calls that has been looked at
        first = end = place
        while first > 0 and is_call(items[first - 1]):
            first -= 1
        while end < len(items) and is_call(items[end]):
            end += 1
        if any(call not in dropped for call in range(first, end)):
            continue  # a sibling stays, and so does what both came from
        while first > 0 and items[first - 1].get("type") == "reasoning":
            first -= 1
            dropped[first] = NO_FOLLOWER


def rest_of_reply(before: Item, items: Sequence[Item]) -> int:
    """Count the first items that belong to the same reply as `before`, the item right before them.

    A provider refuses a call or a message without its reasoning, which is `before` or stands earlier. Two messages of
    an assistant are taken for two replies: an application may have written them.
    """
    if not items or not (before.get("type") == "reasoning" or is_call(before) or is_call(items[0])):
        return 0
    if begins_or_answers(before):
        return 0
    return next((place for place, item in enumerate(items) if begins_or_answers(item)), len(items))


def begins_or_answers(item: Item) -> bool:
    """Return whether an item belongs to no reply: a message that begins a turn, or the output of a call."""
    return item.get("role") in BEGINS_A_TURN or item.get("type") in ANSWERS


def _drop_cut_reasoning(items: Sequence[Item], dropped: dict[int, str]) -> None:
    """Also drop reasoning directly followed by the next turn: left by a reply that ended early, or by a callback."""
    is_cut = False
    for place in range(len(items) - 1, -1, -1):
        if place in dropped:
            continue
        if items[place].get("type") != "reasoning":
            is_cut = items[place].get("role") in BEGINS_A_TURN
        elif is_cut:
            dropped[place] = CUT_REASONING


# --- a list that grows -----------------------------------------------------------------------------------------------


class Prepared:
    """Incremental `prune(deduplicate(normalised items))` of a growing list, at the cost of the new items.

    New items are judged together with the open end of the list: its last run of calls, reasoning and left-out items.
    Only those can still change. In the rare exceptions (an id seen before, an output for a call already left out)
    everything is judged again by the functions above, so the result always equals theirs.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._all: list[Item] = []
        self._call_ids: set[str] = set()
        self._repeats_calls = False
        """True after a repeated provider id: from then on a call and its output may be copies, wherever they end."""
        self._begin()
        self.extend(items)

    def _begin(self) -> None:
        self._seen: set[Key] = set()
        self._open: set[Key] = set()
        """The calls that no output has followed yet."""
        self._kept: list[Item] = []
        self._left: list[LeftOut] = []
        # The open end: items of it, and how much of the two lists stands before it.
        self._tail: list[Item] = []
        self._kept_settled = self._left_settled = 0
        # Before the open end: calls left out for want of an output, programs, and those of them still at work.
        self._unanswered: set[Key] = set()
        self._programs: set[Key] = set()
        self._at_work: set[Key] = set()

    def extend(self, new_items: Iterable[Item]) -> None:
        """Add items to the end; the caller must not change them afterwards."""
        internal = INTERNAL_KEYS.isdisjoint
        fresh = [
            item if internal(item) and ("status" not in item or item["status"] is not None) else normalise(item)
            for item in new_items
        ]
        self._all += fresh
        self._note_ids(fresh)
        if self._repeats_calls or not self._add(fresh):
            self._begin()
            added = self._add(deduplicate(self._all))
            assert added

    def list(self) -> Items:
        """The items as a provider accepts them: a list of the caller's own, of shared items."""
        return self._kept.copy()

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Items left out of the list, with reasons."""
        return self._left.copy()

    def __len__(self) -> int:
        return len(self._kept)

    def _add(self, fresh: Items) -> bool:
        """Judge new items with the open end; False, and a state to throw away, if older ones would change."""
        unanswered = self._unanswered
        # Most items are messages, which are never merged, answer nothing and are never left out.
        others = [
            item
            for item in fresh
            if item.get("type") != "message" and ("type" in item or "role" not in item or "call_id" in item)
        ]
        for item in others:
            if unanswered and output_key(item) in unanswered:
                return False
            key = identity(item)
            if key is not None and not self._is_new(item, key):
                return False
        work = self._tail + fresh if self._tail else fresh
        is_plain = not others and not self._tail
        judged = _Judged(work) if is_plain else _judge(work, self._programs, self._at_work)
        if not unanswered.isdisjoint(judged.kept_owners):
            return False  # a program that seemed idle has work after all
        kept, left = judged.split()
        del self._kept[self._kept_settled :], self._left[self._left_settled :]
        self._kept += kept
        self._left += left
        self._advance_tail(judged)
        return True

    def _note_ids(self, fresh: Items) -> None:
        for item in fresh:
            provider_id = _id_of_call(item) if "id" in item else None
            if provider_id is not None:
                self._repeats_calls |= provider_id in self._call_ids
                self._call_ids.add(provider_id)

    def _is_new(self, item: Item, key: Key) -> bool:
        """Return whether `deduplicate` would keep all earlier items unchanged, and remember the item."""
        asks, answers = _by_call_id(item, key)
        if asks is not None:
            if asks in self._open:
                return False
            self._open.add(asks)
        elif answers is not None and answers in self._open:
            self._open.discard(answers)
        elif key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _advance_tail(self, judged: _Judged) -> None:
        """Find the new open end, and remember the calls still open before it."""
        items, dropped = judged.items, judged.dropped
        start = len(items)
        while start > 0 and (
            items[start - 1].get("type") == "reasoning" or start - 1 in dropped or is_call(items[start - 1])
        ):
            start -= 1
        self._tail = list(items[start:])
        open_left = sum(1 for place in range(start, len(items)) if place in dropped)
        self._left_settled = len(self._left) - open_left
        self._kept_settled = len(self._kept) - (len(items) - start - open_left)
        for key, place in judged.unanswered.items():
            if place >= start:
                continue
            (self._unanswered if place in dropped else self._at_work).add(key)
        # By place, not by what is unanswered: the id of one in the open end may be that of one before it.
        self._programs.update(key for key, place in judged.programs.items() if place < start)
