"""Prefixes of which one continues another: their keys meet, because the SDK's layout joins prefix and id by a colon."""

from __future__ import annotations

import logging
import uuid

import pytest

from standfast import NotADatabaseError, RedisSession
from standfast.conformance import message
from tests.helpers import servers

pytestmark = pytest.mark.redis


def opened(session_id: str, prefix: str) -> RedisSession:
    return RedisSession.from_url(session_id, url=servers.redis_url(), key_prefix=prefix, linger_s=0)


async def test_a_prefix_that_continues_one_in_use_is_refused() -> None:
    """Otherwise a caller who chooses ids below the shorter one reaches the sessions below the longer one."""
    short = uuid.uuid4().hex
    first, second = opened("b:c", short), opened("c", f"{short}:b")
    await first.add_items([message("of the shorter prefix")])
    for operation in (second.add_items([message("x")]), second.append([message("x")], writer="w", start=0)):
        with pytest.raises(NotADatabaseError, match="continues"):
            await operation
    assert await first.get_items() == [message("of the shorter prefix")]
    beside = opened("c", f"{short}-b:d")
    await beside.add_items([message("apart")])
    assert await beside.get_items() == [message("apart")]
    for session in (first, second, beside):
        session.close()


async def test_prefixes_that_are_both_in_use_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    short = uuid.uuid4().hex
    longer, shorter = opened("c", f"{short}:b"), opened("other", short)
    await longer.add_items([message("first")])
    await shorter.add_items([message("second")])
    longer.close()
    with caplog.at_level(logging.WARNING, logger="standfast.sessions"):
        again = opened("c", f"{short}:b")
        await again.add_items([message("third")])
    assert await again.get_items() == [message("first"), message("third")]
    assert [f"{short}:b" in record.getMessage() for record in caplog.records] == [True]
    for session in (again, shorter):
        session.close()
