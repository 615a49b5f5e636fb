"""PostgresSession behind PgBouncer in transaction mode, which does not know what was prepared a moment ago."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from standfast import PostgresSession
from standfast.conformance import message
from tests.helpers.pooler import PgBouncer
from tests.helpers.servers import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.pgbouncer]

PROCESSES, TURNS = 8, 30


@pytest.fixture
def url() -> Iterator[str]:
    database = PostgresServer(sync=False)
    pooler = PgBouncer(database)
    yield pooler.url
    pooler.stop()
    database.stop()


async def test_nothing_is_lost_or_doubled_where_each_transaction_gets_another_connection(url: str) -> None:
    # Another name of the application gives each its own connections, as processes have them.
    workers = [
        PostgresSession("s", url=url, connect_options={"application_name": f"worker {number}"})
        for number in range(PROCESSES)
    ]
    for turn in range(TURNS):
        await asyncio.gather(
            *(worker.append([message(f"{turn}")], writer=f"w{n}", start=turn) for n, worker in enumerate(workers)),
            *(worker.get_items(2) for worker in workers),
        )
    items = await workers[0].get_items()
    assert sorted(item["content"] for item in items) == sorted(f"{n}" for n in range(TURNS) for _ in workers)
    async with await workers[0].lease(ttl_s=30, wait_s=0) as lease:
        head = await workers[0].append([message("held")], writer="w0", start=TURNS, lease=lease)
    await workers[1].replace([message("all of it")], upto=head)
    assert await workers[2].get_items() == [message("all of it")]


async def test_appends_one_by_one_find_what_was_prepared_or_do_without(url: str) -> None:
    """The loop sends them itself where nothing else is under way, on whichever connection the pooler gives."""
    workers = [
        PostgresSession("s", url=url, connect_options={"application_name": f"worker {number}"}) for number in range(4)
    ]

    async def writes(number: int) -> None:
        for turn in range(TURNS):
            await workers[number].append([message(f"{number} {turn}")], writer=f"w{number}", start=turn)

    await writes(0)
    await asyncio.gather(*map(writes, range(1, 4)))
    found = [item["content"] for item in await workers[0].get_items()]
    assert found[:TURNS] == [f"0 {turn}" for turn in range(TURNS)]
    for number in range(1, 4):
        mine = [text for text in found if text.startswith(f"{number} ")]
        assert mine == [f"{number} {turn}" for turn in range(TURNS)]
