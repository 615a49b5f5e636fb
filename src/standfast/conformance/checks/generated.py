"""A1 and part B under any sequence of operations: the session against a plain list, and against the reference."""

# ruff: noqa: D103 — the name of a check is a sentence, which reports print

from __future__ import annotations

from standfast.conformance.check_context import Lab
from standfast.conformance.registry import proves
from standfast.conformance.stateful import against_list, against_reference


@proves("A1")
def any_operations_agree_with_a_plain_list(lab: Lab) -> None:
    against_list(lab)


@proves("B1", "replace", "rewind", "fork")
def any_changes_agree_with_the_reference(lab: Lab) -> None:
    against_reference(lab)
