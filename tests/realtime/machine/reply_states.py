"""Where a call stands with its next reply: derived from the call and its connection, for people who look."""

from __future__ import annotations

from typing import Literal

from standfast._src.realtime.machine.connection_state import ConnectionState
from standfast._src.realtime.machine.voice_call import VoiceCall

ReplyState = Literal["quiet", "wanted", "asked for", "under way", "stopped"]


def reply_state(talk: VoiceCall, link: ConnectionState | None) -> ReplyState:
    """quiet: nobody wants one; wanted: somebody does, and nothing was sent for it; asked for: `response.create` was
    sent; under way: the server has begun one; stopped: it has, and nobody wants to hear the rest of it."""
    if link is not None and link.active is not None:
        return "stopped" if link.active in link.unwanted else "under way"
    if link is not None and link.creating is not None:
        return "asked for"
    return "wanted" if talk.asks else "quiet"
