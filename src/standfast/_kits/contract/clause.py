"""A promise of the contract, as data: one testable sentence, or a group of lettered ones."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase

from standfast._src.sessions.protocol import Ability


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise: its id, a title to find it by, its text, and the ability it belongs to.

    A promise that needs more than a sentence or two is a group: `sentences` has its parts, C15a, C15b and so on.
    Tests, errors and pages may name the group or a part of it.
    """

    id: str
    title: str
    text: str
    ability: Ability | None = None
    sentences: tuple[str, ...] = ()
    """The parts of a group, in order; empty for a clause that is one sentence."""

    @classmethod
    def group(cls, clause_id: str, title: str, *sentences: str, ability: Ability | None = None) -> Clause:
        """Build a clause of several testable sentences, lettered from a on."""
        return cls(clause_id, title, " ".join(sentences), ability, sentences)

    @property
    def part(self) -> str:
        """The letter of the part it stands in."""
        return self.id[0]

    @property
    def lettered(self) -> dict[str, str]:
        """Id to text of every testable sentence: "C15a" and so on for a group, else the clause itself."""
        if not self.sentences:
            return {self.id: self.text}
        return {f"{self.id}{letter}": text for letter, text in zip(ascii_lowercase, self.sentences, strict=False)}
