"""The contract as data: every promise has a name that the kit tests, the docs print and an error may mention.

Part A is what any session promises, part B what a session with abilities promises, part C what a run leaves in a
session, part D who owns a conversation, part E what a realtime session promises, part F what becomes of a
message, and what a run may spend, part G what becomes of a run that an engine carries. `ability` is the one a session
must declare for the clause to be its own; None means that every session is held to it.

A clause that promises several things is a group of lettered sentences (C15a, C15b, …). A test names the
sentence or the group; checks, scorecards and mistakes go by the group.
"""

from __future__ import annotations

from standfast._kits.contract.clause import Clause as Clause
from standfast._kits.contract.clauses_of_engines import PART_G
from standfast._kits.contract.clauses_of_limits import LIMITS
from standfast._kits.contract.clauses_of_messages import PART_F
from standfast._kits.contract.clauses_of_runs import PART_C, PART_D, PART_E
from standfast._kits.contract.clauses_of_sessions import PART_A, PART_B
from standfast._src.base.errors import NotFoundError

PARTS: dict[str, str] = {
    "A": "The session protocol: any backend, ours or anybody's",
    "B": "Abilities that a session may declare",
    "C": "What a run persists",
    "D": "Who owns the conversation",
    "E": "A realtime session",
    "F": "Messages to a conversation, and limits",
    "G": "Runs as jobs of an engine",
}
"""Letter of a part to its title."""

CLAUSES: dict[str, Clause] = {
    clause.id: clause for clause in (*PART_A, *PART_B, *PART_C, *PART_D, *PART_E, *PART_F, *LIMITS, *PART_G)
}
"""Every clause by its id, in the order of the contract."""


GROUP_OF: dict[str, str] = {sentence: clause.id for clause in CLAUSES.values() for sentence in clause.lettered}
"""Id of every testable sentence ("C15b", "A1") to the clause that it belongs to ("C15", "A1")."""


def clause(clause_id: str) -> Clause:
    """Return the clause of that id; raises NotFoundError (a LookupError) with the ids there are."""
    if clause_id in CLAUSES:
        return CLAUSES[clause_id]
    group = GROUP_OF.get(clause_id[:1] + clause_id[1:].lower())
    if group is not None:
        raise NotFoundError(f"{clause_id} is a sentence of {group}, which is checked as a whole", f"Name {group}.")
    raise NotFoundError(f"there is no clause {clause_id!r}", f"The contract has {', '.join(CLAUSES)}.")


def clause_with(sentence_id: str) -> Clause:
    """Return the clause that has this sentence: C15 for "C15b" and for "C15"; raises as `clause` does."""
    return clause(GROUP_OF.get(sentence_id, sentence_id))


def sort_key(clause_id: str) -> tuple[str, int]:
    """Order of the contract: A2 before A10 before B1."""
    return clause_id[:1], int(clause_id[1:]) if clause_id[1:].isdigit() else 0
