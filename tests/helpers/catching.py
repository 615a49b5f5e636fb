"""That a check of the kit has seen a mistake: by what it saw, never by not coming back."""

from __future__ import annotations

from collections.abc import Sequence

from standfast._kits.conformance.results import BROKEN, Result


def check_caught(results: Sequence[Result], mistake: str) -> None:
    """That the results show the mistake. A hang shows nothing: the machine may just be busy."""
    hung = [result.check for result in results if result.has_hung]
    assert not hung, f"{mistake}: {hung} did not come back, which is no proof; name a check that sees what is wrong"
    assert [result for result in results if result.value == BROKEN], f"{mistake}: nobody saw it"
