"""Generated items: any JSON object that is stored comes back equal (A17)."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from standfast._kits.conformance.check_context import Lab

if TYPE_CHECKING:
    pass

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_items = st.lists(st.dictionaries(st.text(), _json, max_size=4), min_size=1, max_size=5)


def against_generated(lab: Lab) -> None:
    """Store generated batches one after another, and compare the read values with the stored ones."""
    with asyncio.Runner() as runner:
        session = lab.open()

        @settings(
            max_examples=lab.options.examples,
            deadline=None,
            database=None,
            derandomize=lab.options.repeatable,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if lab.options.shrink else (Phase.generate,),
        )
        @given(_items)
        def comes_back(items: list[dict[str, Any]]) -> None:
            async def turn() -> Any:
                await session.clear_session()
                await session.add_items(copy.deepcopy(items))
                return await session.get_items()

            lab.same_exactly(runner.run(turn()), items, "storing generated values")

        comes_back()
        runner.run(lab.close())
