"""What a reader of the eighth session's changes to stores found: each of these failed when it was written down."""

from __future__ import annotations

import asyncio

from standfast import InMemorySession, InMemoryStore
from standfast.conformance import message


async def test_a_count_that_a_clear_has_left_ends_with_the_expiry_though_a_lease_is_held() -> None:
    """Whoever began anew was taken for a late repeat, and nothing was stored (B1, A20)."""
    session = InMemorySession("c", store=InMemoryStore(ttl_s=0.05))
    async with await session.lease(ttl_s=600, wait_s=0, renewed=False):
        await session.append([message("one")], writer="w", start=0)
        await session.clear_session()
        await asyncio.sleep(0.2)
        head = await session.append([message("anew")], writer="w", start=0)
        assert head.value, "it was acknowledged and is not there"
