"""An item of the server's conversation: its form for the client, and for the model."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from standfast._kits.testing.realtime.audio import PCM, Format
from standfast._src.base.json_values import Item, copy_json


@dataclass(slots=True, eq=False)
class Held:
    """An item with facts that the wire form lacks: its audio, its whole text, the heard part."""

    item: Item
    text: str | None = None
    """Words of audio: spoken by the model, or recognised in the user's speech. None: not understood."""
    audio: bytes = b""
    kind: Format = PCM
    heard_ms: int | None = None
    """Position of its cut; None if uncut."""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = str(self.item["id"])

    @property
    def audio_ms(self) -> int:
        """Duration of its audio."""
        return self.kind.ms(self.audio)

    @property
    def left_ms(self) -> int:
        """Duration of its audio after a cut."""
        return self.audio_ms if self.heard_ms is None else self.heard_ms

    def heard_text(self) -> str:
        """The words of a message as far as they were heard, an estimate in proportion to the audio at a word's end."""
        written = "".join(str(part.get("text") or "") for part in self.item.get("content", ()))
        text = self.text or written
        if self.heard_ms is None or self.heard_ms >= self.audio_ms:
            return text
        cut = len(text) * self.heard_ms // max(self.audio_ms, 1)
        return text[: text.rfind(" ", 0, cut + 1) + 1].rstrip()


def render_item(held: Held, output: Format | None = None, *, whole: bool = False) -> Item:
    """Return the item as shown by an event. `whole` includes the audio, for retrieval."""
    item: Item = copy_json(held.item)
    for part in item.get("content", ()):
        if part["type"] == "output_audio":
            # A truncated item has lost its transcript: the service does not know which words were heard.
            part["transcript"] = held.text if held.heard_ms is None else None
        if whole and part["type"] in ("output_audio", "input_audio") and held.audio:
            data = held.audio[: held.left_ms * held.kind.bytes_per_ms]
            part["audio"] = base64.b64encode(data).decode("ascii")
        elif part["type"] == "input_audio":
            part.pop("audio", None)
    return item


def as_seen(held: Held) -> Item:
    """Return the item for a rule: words of audio as text, as far as the model may know them."""
    item: Item = copy_json(held.item)
    for part in item.get("content", ()):
        if part["type"] in ("output_audio", "input_audio"):
            part.pop("audio", None)
            part["text"] = held.heard_text()
    return item
