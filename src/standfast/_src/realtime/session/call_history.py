"""History of a voice call for an application, item by item, in the server's order.

Items are replaced, never changed. A delta touches only one buffer, however long the history is; its text joins the item
at the next read.
"""

from __future__ import annotations

from typing import Any

from standfast._src.realtime.machine.call_items import (
    AssistantAudio,
    AssistantMessageItem,
    AssistantText,
    InputAudio,
    InputImage,
    InputText,
    RealtimeItem,
    RealtimeMessageItem,
    RealtimeToolCallItem,
    SystemMessageItem,
    UserMessageItem,
)


class CallHistory:
    """The items, by id and in order."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._items: dict[str, RealtimeItem] = {}
        self._transcripts: dict[str, list[str]] = {}
        self._dirty: set[str] = set()
        self._cut: set[str] = set()

    def items(self) -> list[RealtimeItem]:
        """Return all items in their present state."""
        self._join_transcripts()
        return [self._items[item_id] for item_id in self._order]

    def get(self, item_id: str) -> RealtimeItem | None:
        """Return an item, or None."""
        self._join_transcripts()
        return self._items.get(item_id)

    # --- what happens ------------------------------------------------------------------------------------------------

    def transcript_delta(self, item_id: str, text: str) -> None:
        """Some words of the model came."""
        pieces = self._transcripts.get(item_id)
        if pieces is None:
            if item_id in self._cut:
                return  # in transit when the item was interrupted: it will not be heard
            pieces = self._transcripts[item_id] = []
            if item_id not in self._items:
                self._insert(AssistantMessageItem(item_id=item_id, content=[AssistantAudio(transcript="")]), None)
        pieces.append(text)
        self._dirty.add(item_id)

    def set_transcript(self, item_id: str, text: str) -> bool:
        """Store the transcript of a user's speech; return whether the item is new."""
        known = self._items.get(item_id)
        if isinstance(known, UserMessageItem):
            content = [
                part.model_copy(update={"transcript": text}) if isinstance(part, InputAudio) else part
                for part in known.content
            ]
            self._items[item_id] = known.model_copy(update={"content": content, "status": "completed"})
            return False
        item = UserMessageItem(item_id=item_id, content=[InputText(text=text)])
        if known is None:
            self._insert(item, None)
            return True
        self._items[item_id] = item
        return False

    def update(self, item: RealtimeItem) -> bool | None:
        """Add or replace an item; return True if new, None for an update without content."""
        self._join_transcripts()
        item = self._with_transcripts(item)
        known = self._items.get(item.item_id)
        if known is None:
            self._insert(item, item.previous_item_id)
            return True
        if not isinstance(item, RealtimeToolCallItem):
            if not item.content:
                return None
            if not isinstance(known, RealtimeToolCallItem) and known.role == item.role:
                item = _merge_message(known, item)
        self._items[item.item_id] = item
        return False

    def cut(self, item_id: str, text: str) -> bool:
        """Reduce an interrupted item to its heard text; return whether the item exists."""
        self._join_transcripts()
        known = self._items.get(item_id)
        if not isinstance(known, AssistantMessageItem):
            return False
        content = [
            part.model_copy(update={"transcript": text}) if isinstance(part, AssistantAudio) else part
            for part in known.content
        ]
        self._transcripts.pop(item_id, None)
        self._cut.add(item_id)
        self._items[item_id] = known.model_copy(update={"content": content, "status": "incomplete"})
        return True

    def is_cut(self, item_id: str) -> bool:
        """Return whether an item was interrupted: later texts from the server contain unheard words."""
        return item_id in self._cut

    def remove(self, item_id: str) -> None:
        """Delete an item."""
        if self._items.pop(item_id, None) is not None:
            self._order.remove(item_id)
        self._transcripts.pop(item_id, None)
        self._dirty.discard(item_id)
        self._cut.discard(item_id)

    def finish(self, item_id: str) -> None:
        """End the transcript of an item."""
        self._join_transcripts()
        self._transcripts.pop(item_id, None)

    # --- small things ------------------------------------------------------------------------------------------------

    def _join_transcripts(self) -> None:
        for item_id in self._dirty:
            known = self._items.get(item_id)
            pieces = self._transcripts.get(item_id)
            if pieces is None or not isinstance(known, AssistantMessageItem):
                continue
            if len(pieces) > 1:
                pieces[:] = ["".join(pieces)]
            texts = [part for part in known.content if isinstance(part, AssistantText)]
            content = [*texts, AssistantAudio(transcript=pieces[0])]
            self._items[item_id] = known.model_copy(update={"content": content})
        self._dirty.clear()

    def _insert(self, item: RealtimeItem, previous: str | None) -> None:
        self._items[item.item_id] = item
        # Nearly always behind the last one: found from the end, at the cost of how far it is from there.
        for place in range(len(self._order) - 1, -1, -1):
            if self._order[place] == previous:
                self._order.insert(place + 1, item.item_id)
                return
            if previous is None:
                break
        self._order.append(item.item_id)

    def _with_transcripts(self, item: RealtimeItem) -> RealtimeItem:
        """Fill in known transcripts where an update has none."""
        if isinstance(item, RealtimeToolCallItem | SystemMessageItem):
            return item
        known = self._items.get(item.item_id)
        old = known.content if known is not None and not isinstance(known, RealtimeToolCallItem) else []
        said = "".join(self._transcripts.get(item.item_id, ()))
        content = []
        for place, part in enumerate(item.content):
            if isinstance(part, InputAudio | AssistantAudio) and not part.transcript:
                before = getattr(old[place], "transcript", None) if place < len(old) else None
                text = before or (said if isinstance(part, AssistantAudio) else None)
                part = part.model_copy(update={"transcript": text}) if text else part
            content.append(part)
        return item.model_copy(update={"content": content})


def _merge_message(old: RealtimeMessageItem, new: RealtimeMessageItem) -> RealtimeMessageItem:
    """Merge an update with the old item's texts, transcripts and pictures that the update leaves out."""
    content: list[Any] = []
    if isinstance(new, UserMessageItem):
        content += [part for part in old.content if isinstance(part, InputImage) and part not in new.content]
    for place, part in enumerate(new.content):
        before = old.content[place] if place < len(old.content) else None
        if before is not None and type(before) is type(part):
            for name in ("text", "transcript"):
                if hasattr(part, name) and getattr(part, name) is None and getattr(before, name) is not None:
                    part = part.model_copy(update={name: getattr(before, name)})
        content.append(part)
    return new.model_copy(update={"content": content})
