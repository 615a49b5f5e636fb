"""Every read of a session's API, as plain data: what must be equal of a session and its copy."""

from __future__ import annotations

from typing import Any

from standfast._src.sessions.client.stored_session import StoredSession

WRITERS = ("a", "b", "run-1", "run-2", "nobody")


async def everything_of(session: StoredSession) -> dict[str, Any]:
    """All that can be read of a session but its times; ids of generations without the store's own part."""
    generations = await session.generations()
    page = await session.page(limit=3)
    pages = [page.items]
    while page.before is not None:
        page = await session.page(limit=3, before=page.before)
        pages.append(page.items)
    records = await _records(session)
    runs, _ = await session.run_store().list_runs(session_id=session.session_id)
    saved = [await session.run_store().load_run(run.run_id) for run in runs]
    hits = await session.search("n")
    return {
        "items": await session.get_items(),
        "latest": await session.get_items(2),
        "pages": pages,
        "records": [(one.item, one.writer, one.number, _number(one.replaces), one.fault) for one in records],
        "corrupt": [(one.reason, one.data) for one in await session.corrupt_records()],
        "generations": [(_number(one.id), one.created_at, one.item_count, one.by) for one in generations],
        "boxes": [await session.read_generation(one.id) for one in generations],
        "accepted": [await session.accepted(writer) for writer in WRITERS],
        "written": [await session.written(writer) for writer in WRITERS],
        "origin": await session.origin(),
        "usage": await session.usage(),
        "holder": await session.holder(),
        "hits": [(one.record.item, one.excerpt) for one in hits.hits],
        "runs": sorted((run.run_id, run.status, run.session_id, run.agent, run.revision) for run in runs),
        "saved": sorted((one.run_id, one.revision, one.head, sorted(one.logs.items())) for one in saved if one),
    }


async def times_of(session: StoredSession) -> tuple[float, list[float | None]]:
    """When the session was made, and when each record was written, in seconds since 1970."""
    info = await session.info()
    assert info is not None
    at = [one.at for one in await _records(session)]
    return info.created_at.timestamp(), [None if one is None else one.timestamp() for one in at]


async def _records(session: StoredSession) -> list[Any]:
    found: list[Any] = []
    after = ""
    while True:
        page = await session.records(after=after, limit=4)
        found += page.records
        after = page.after
        if page.is_newest:
            return found


def _number(generation_id: str | None) -> str | None:
    return None if generation_id is None else generation_id.partition("@")[0]
