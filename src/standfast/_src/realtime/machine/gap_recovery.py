"""Search for items that an attached call gained while no process was attached, as far as the wire allows (E13).

The server keeps the conversation of such a call, repeats nothing, and cannot list items. But it announces a new item
together with the previous one: a probe item, put at the end and deleted again, shows the newest item. If that item is
unknown, there is a gap: the item is fetched and the gap reported, since items between it and the last known one cannot
be found. Known unfinished items are fetched as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.realtime.machine.events import (
    Added,
    CallMade,
    Event,
    Frame,
    ItemDone,
    Played,
    ReplyEnded,
    ReplyStarted,
    Spoke,
)
from standfast._src.realtime.machine.session_settings import ALL_MS, SPOKEN_MS_PER_CHAR
from standfast._src.realtime.machine.voice_call import SPEECH
from standfast._src.runs.engine.run import Call


@dataclass(slots=True)
class GapSearch:
    """A search for missed items."""

    epoch: int
    unfinished: set[str] = field(default_factory=set)
    """Known unfinished items: their fetched copies show the outcome."""
    newest: str | None = None
    """The newest item, if unknown here."""
    _last: object = None
    """The item in front of the probe."""
    _probed: bool = False
    _answered: bool = False
    _removed: bool = False
    _asked: set[str] = field(default_factory=set)
    _fetched: set[str] = field(default_factory=set)

    @property
    def probe(self) -> str:
        """Id of the probe item."""
        return f"p{self.epoch}"

    @property
    def is_over(self) -> bool:
        """True once all reachable items are found."""
        return self._answered and self._removed and self._items_wanted() <= self._fetched

    def _items_wanted(self) -> set[str]:
        return self.unfinished | ({self.newest} if self.newest is not None else set())

    def give_up(self) -> list[Event]:
        """End a search without an answer from the server; continue from known items."""
        self._answered = self._removed = self._probed = True
        missing, self._fetched = self._items_wanted() - self._fetched, self._fetched | self._items_wanted()
        return [ItemDone(item_id) for item_id in sorted(missing)]

    def frames(self) -> list[Frame]:
        """Return the frames still to send."""
        out: list[Frame] = []
        if not self._probed:
            text = {"type": "input_text", "text": "The connection was lost and is there again."}
            item = {"id": self.probe, "type": "message", "role": "system", "content": [text]}
            body = {"type": "conversation.item.create", "event_id": f"probe/{self.probe}", "item": item}
            out.append(Frame(f"probe/{self.probe}", body))
        elif self._answered and not self._removed:
            body = {"type": "conversation.item.delete", "event_id": f"unprobe/{self.probe}", "item_id": self.probe}
            out.append(Frame(f"unprobe/{self.probe}", body))
        for item_id in sorted(self._items_wanted() - self._asked):
            body = {"type": "conversation.item.retrieve", "event_id": f"fetch/{item_id}", "item_id": item_id}
            out.append(Frame(f"fetch/{item_id}", body))
        return out

    def note_sent(self, kind: str, item_id: str) -> None:
        """Record a sent frame of this search."""
        match kind:
            case "probe":
                self._probed = True
            case "unprobe":
                self._removed = True
            case "fetch":
                self._asked.add(item_id)

    def handle_refused(self, kind: str, item_id: str) -> list[Event]:
        """Record a refused frame of this search: the item will not be found, and the search does not wait for it."""
        if kind == "probe":
            self._answered = self._removed = True
        elif kind == "fetch":
            self._fetched.add(item_id)
            return [ItemDone(item_id)]
        return []

    def handle_probe_placed(self, previous: object, has: Collection[str]) -> None:
        """Record the item in front of the probe."""
        self._answered, self._last = True, previous
        if isinstance(previous, str) and previous not in has and previous != "root":
            self.newest = previous

    def handle_item_fetched(self, item: Mapping[str, Any], has: Collection[str]) -> list[Event]:
        """Return the events of a fetched item; for a known item, the events of its completion."""
        item_id = str(item.get("id"))
        if item_id not in self._items_wanted() or item_id in self._fetched:
            return []
        self._fetched.add(item_id)
        is_new, is_whole = item_id not in self.unfinished, item.get("status") != "in_progress"
        if item.get("type") == "function_call":
            return _call(item) if is_new and is_whole else []
        if item.get("type") != "message":
            return []
        said = _words(item)
        if item.get("role") == "user":
            return [Added(item_id, "said", text=said or SPEECH)] if is_new else []
        if item.get("role") != "assistant":
            return []
        found: list[Event] = [Added(item_id, "spoken", None)] if is_new else []
        if said:
            found.append(Spoke(item_id, said, len(said) * SPOKEN_MS_PER_CHAR))
        if is_whole:
            # No process was attached to report what was heard or to cut it: its transcript would be lost.
            found += [ItemDone(item_id), Played({item_id: ALL_MS})]
            # A whole reply at the end has answered all that the server had.
            if item_id == self._last:
                found += [ReplyStarted(item_id, set(has)), ReplyEnded(item_id, "completed")]
        return found


def _call(item: Mapping[str, Any]) -> list[Event]:
    """Report a tool call made while no process was attached: it waits for its output."""
    if item.get("status") not in (None, "completed") or not item.get("call_id"):
        return []
    call = Call(str(item["call_id"]), str(item.get("name") or ""), "tool", str(item.get("arguments") or ""), "")
    return [CallMade(call, str(item.get("id")))]


def _words(item: Mapping[str, Any]) -> str:
    parts = [part for part in item.get("content") or () if isinstance(part, Mapping)]
    return "\n".join(str(part.get("transcript") or part.get("text") or "") for part in parts).strip()
