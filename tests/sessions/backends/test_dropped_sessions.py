"""A session that is dropped and never closed gives its threads and connections back (A21)."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any
from uuid import uuid4

import pytest

from standfast import RedisSession
from standfast.extensions.memory import EncryptedSession
from tests.helpers.servers import redis_url

pytestmark = pytest.mark.redis


def carriers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "standfast-carrier"}


def plain() -> Any:
    return RedisSession.from_url("s", url=redis_url(), key_prefix=uuid4().hex)


def sealed() -> Any:
    return EncryptedSession("s", plain(), encryption_key="of the test")


@pytest.mark.parametrize("make", [plain, sealed])
def test_threads_of_a_store_end_with_the_last_session_on_it(make: Any) -> None:
    async def use() -> None:
        session = make()
        await session.add_items([{"role": "user", "content": "hello"}])
        await session.get_items()

    before = carriers()
    asyncio.run(use())
    deadline = time.monotonic() + 20
    while carriers() - before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not carriers() - before
