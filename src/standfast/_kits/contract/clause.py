"""What a promise of the contract is, as data."""

from __future__ import annotations

from dataclasses import dataclass

from standfast._src.sessions.protocol import Ability


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise: its id, a title to find it by, what is promised, and the ability it belongs to."""

    id: str
    title: str
    text: str
    ability: Ability | None = None

    @property
    def part(self) -> str:
        """The letter of the part it stands in."""
        return self.id[0]
