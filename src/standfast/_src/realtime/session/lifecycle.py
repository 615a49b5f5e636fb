"""States of a voice session, and the allowed transitions. The diagram in the docs is drawn from this table."""

from __future__ import annotations

from typing import Literal

State = Literal["new", "entering", "open", "reconnecting", "closing", "closed"]

ENDS = "close(), the call is another worker's now, or its loop was ended by a crash"

WAYS: dict[State, dict[State, str]] = {
    "new": {"entering": "enter()", "closing": "close()"},
    "entering": {"open": "the server has taken the settings", "closing": "entering failed, or close()"},
    "open": {"reconnecting": "the connection is lost", "closing": ENDS},
    "reconnecting": {"open": "the server has everything again", "closing": ENDS},
    "closing": {"closing": "close() again, after the model's close failed", "closed": "everything is released"},
    "closed": {},
}
"""From each state to the next ones, and what leads there."""


class Lifecycle:
    """State of a session."""

    def __init__(self) -> None:
        self.state: State = "new"

    def move(self, to: State) -> None:
        """Change to another state; a forbidden transition is a defect of standfast."""
        assert to in WAYS[self.state], f"no way from {self.state} to {to}"
        self.state = to

    @property
    def is_over(self) -> bool:
        """True while closing, and when closed."""
        return self.state in ("closing", "closed")
