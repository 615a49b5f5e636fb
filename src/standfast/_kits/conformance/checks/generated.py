"""A1 and part B under any sequence of operations: the session against a plain list, and against the reference."""

from __future__ import annotations

from standfast._kits.conformance.check_context import Lab
from standfast._kits.conformance.registry import proves

# Hypothesis is imported where it is used: `standfast verify` makes the other checks where it is not installed.


@proves("A1", "hypothesis")
def any_operations_agree_with_a_plain_list(lab: Lab) -> None:
    from standfast._kits.conformance.stateful import against_list

    against_list(lab)


@proves("B1", "hypothesis", "replace", "rewind", "fork")
def any_changes_agree_with_the_reference(lab: Lab) -> None:
    from standfast._kits.conformance.stateful import against_reference

    against_reference(lab)
