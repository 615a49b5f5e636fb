"""Web application of the inspector: a page, and the requests of the page.

Session ids are data with any content, so they are never part of a path. A failure is answered in words with a remedy,
and leaves nothing half done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from standfast._kits.inspector import json_views
from standfast._kits.inspector.access_control import Gate, Rules
from standfast._kits.inspector.changes import Watching
from standfast._kits.inspector.rendering import item_view
from standfast._kits.inspector.timeline import timeline_of
from standfast._kits.operators.exit_codes import BROKE_OFF, DEFECT, NOT_THERE, REFUSED, UNREACHABLE, USAGE, ending_of
from standfast._kits.operators.store import Store
from standfast._src.base.errors import CallerError, StandfastError
from standfast._src.base.logs import logger
from standfast._src.base.safe_text import safe
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.run_store import RunSummary
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import Position
from standfast._src.sessions.records import Record, RunUsage

PAGE = "index.html"
FILES = {
    PAGE: "text/html",
    "inspector.js": "text/javascript",
    "markdown.js": "text/javascript",
    "runs.js": "text/javascript",
    "inspector.css": "text/css",
}
PING_S = 10.0
"""How often a page that watches is told that the line still stands."""
SESSIONS_ADDED_UP_MAX = 2_000
"""In a store with more sessions the overview has no costs: to add them up, each session is read."""
OVERVIEW_RUNS_MAX = 20
"""How many runs of each kind the overview names."""
RECORDS_PAGE = 200
RUN_RECORDS_MAX = 1_000
"""How many of the newest records of a session are searched for those that a run wrote."""
BODY_MAX = 100_000
"""In bytes. What the page sends is a decision or a name; the longest is what a model is to read about a rejection."""
STATUS = {USAGE: 400, NOT_THERE: 404, REFUSED: 409, UNREACHABLE: 503, BROKE_OFF: 503, DEFECT: 500}

Handler = Callable[[Request], Awaitable[Response]]


def make_app(store: Store, rules: Rules, *, who: str = "inspector") -> ASGIApp:
    """Return the application over an open store; `who` is stored with every change made on the page."""
    inspector = Inspector(store, rules, who)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await inspector.watching.close()

    reads: dict[str, Handler] = {
        "/api/store": inspector.store_facts,
        "/api/overview": inspector.overview,
        "/api/sessions": inspector.sessions,
        "/api/items": inspector.items,
        "/api/record": inspector.record,
        "/api/session": inspector.session,
        "/api/generation": inspector.generation,
        "/api/runs": inspector.runs,
        "/api/run": inspector.run,
        "/api/search": inspector.search,
        "/api/events": inspector.events,
    }
    writes: dict[str, Handler] = {
        "/api/decide": inspector.decide,
        "/api/release": inspector.release,
        "/api/fork": inspector.fork,
        "/api/undo": inspector.undo,
        "/api/budget": inspector.budget,
    }
    routes = [Route("/", _file(PAGE)), *(Route(f"/{name}", _file(name)) for name in FILES if name != PAGE)]
    routes += [Route(path, _report_errors_as_json(handler)) for path, handler in reads.items()]
    routes += [Route(path, _report_errors_as_json(handler), methods=["POST"]) for path, handler in writes.items()]
    # Around the application and not a middleware inside it: the answer to what fails anywhere passes it, too.
    return Gate(Starlette(routes=routes, lifespan=lifespan), rules, open_paths=["/", *(f"/{name}" for name in FILES)])


class Inspector:
    """Requests of the page. Each method answers one of them."""

    def __init__(self, store: Store, rules: Rules, who: str) -> None:
        self.store, self.rules, self.who = store, rules, who
        self.watching = Watching(store)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def store_facts(self, request: Request) -> Response:
        """Describe the store, and say if the page may change it."""
        facts = await self.store.facts()
        writes = self.rules.allows_writing and not self.store.read_only
        return _json({"url": safe(facts.url), "backend": facts.backend, "layout": facts.layout.name, "writes": writes})

    async def overview(self, request: Request) -> Response:
        """Count sessions and runs, name the runs that wait or lost their worker, and add up costs."""
        counts = await self.store.counts()
        by_status = {name: counts.runs_by_status.get(name, 0) for name in ("paused", "ready", "running", "failed")}
        named = {
            name: (await self.store.runs(status=name, limit=OVERVIEW_RUNS_MAX)).runs if by_status[name] else []
            for name in by_status
        }
        stuck = [one for one in named["running"] if await self._has_no_worker(one)]
        cost = None
        if counts.sessions <= SESSIONS_ADDED_UP_MAX:
            found = await self.store.usage()
            cost = {"total": found.total.total_tokens, "dollars": _dollars_by_model(found.by_model)}
        budgets = [json_views.budget(one) for one in await self.store.budgets()]
        return _json(
            {
                "budgets": budgets,
                "counts": {"sessions": counts.sessions, "runs": counts.runs, **by_status},
                **{name: [json_views.run_line(one) for one in named[name]] for name in ("paused", "ready", "failed")},
                "stuck": [json_views.run_line(one) for one in stuck],
                "cost": cost,
            }
        )

    async def _has_no_worker(self, run: RunSummary) -> bool:
        """Return True if no worker holds the lease of the run's session. Without a session: False."""
        if run.session_id is None:
            return False
        session = self.store.session(run.session_id)
        try:
            return await session.holder() is None
        finally:
            await session.close()

    async def sessions(self, request: Request) -> Response:
        """Sessions, newest change first."""
        asked = request.query_params
        found = await self.store.sessions(
            after=asked.get("after"), limit=_count(asked.get("limit"), 50), prefix=asked.get("prefix", ""),
            waiting=asked.get("waiting") == "1",
        )  # fmt: skip
        return _json({"sessions": [json_views.session(one) for one in found.sessions], "after": found.after})

    async def items(self, request: Request) -> Response:
        """A page of a history: the latest, or what is before or behind a cursor."""
        asked = request.query_params
        async with self._session(request) as session:
            page = await session.records(
                before=asked.get("before"), after=asked.get("after"), limit=_count(asked.get("limit"), 50)
            )
        return _json(
            {
                "records": [json_views.record(one) for one in page.records],
                "before": page.before,
                "after": page.after,
                "is_newest": page.is_newest,
            }
        )

    async def record(self, request: Request) -> Response:
        """Return one whole record of any length."""
        cursor = _require_param(request, "cursor")
        async with self._session(request) as session:
            page = await session.records(before=cursor, limit=1)
            behind = await session.records(after=page.after if page.records else "", limit=1)
        if not behind.records or behind.records[0].cursor != cursor:
            raise _Asked("there is no such record any more", "Reload the page.")
        return _json(json_views.record(behind.records[0], whole=True))

    async def session(self, request: Request) -> Response:
        """Describe one session without its items: holder, origin, generations, open runs, costs."""
        session_id = _require_param(request, "session")
        async with self._session(request) as session:
            info = await session.info()
            generations = await session.generations()
            holder, origin, costs = await session.holder(), await session.origin(), await session.usage()
        listing = await self.store.runs(session_id=session_id, limit=20)
        open_runs = [run for run in listing.runs if run.status in ("running", "paused", "ready")]
        views = []
        for one in open_runs:
            try:
                views.append(json_views.run(await self.store.run(one.run_id), self.store.url))
            except StandfastError as error:  # gone since, or sealed: the rest of the session can be seen
                views.append(
                    {
                        **json_views.run_line(one),
                        "doing": safe(str(error)),
                        "calls": [],
                        "open_items": [],
                        "open_views": [],
                        "is_held": False,
                        "worker": None,
                        "next": None,
                    }
                )
        return _json(
            {
                "spoken": await self._spoken(listing.runs),
                "id": session_id,
                "name": safe(session_id),
                "created": None if info is None else json_views.when(info.created_at),
                "updated": None if info is None else json_views.when(info.updated_at),
                "generations": [json_views.generation(one) for one in generations],
                "holder": json_views.holder(holder),
                "origin": json_views.origin(origin),
                "runs": [json_views.run_line(one) for one in listing.runs],
                "open": views,
                "costs": [json_views.cost(one, _dollars(one)) for one in costs],
            }
        )

    async def _spoken(self, runs: Sequence[RunSummary]) -> dict[str, dict[int, json_views.Shown]]:
        """Return what was heard of the replies of these runs that are voice calls, by the number of the item."""
        found = {}
        for one in runs:
            try:
                view = await self.store.run(one.run_id)
            except StandfastError:  # gone since, or sealed
                continue
            if view.spoken:
                found[one.run_id] = {reply.number: json_views.spoken(reply) for reply in view.spoken}
        return found

    async def generation(self, request: Request) -> Response:
        """Return the items that a compaction replaced."""
        async with self._session(request) as session:
            items = await session.read_generation(_require_param(request, "generation"))
        first = items[:200]
        text = "\n".join(f"{view['title']}: {view['text']}" for view in map(item_view, first))
        return _json({"items": first, "count": len(items), "text": text})

    async def runs(self, request: Request) -> Response:
        """Saved runs, newest change first."""
        asked = request.query_params
        found = await self.store.runs(status=asked.get("status"), after=asked.get("after"), limit=50)
        return _json({"runs": [json_views.run_line(one) for one in found.runs], "after": found.after})

    async def run(self, request: Request) -> Response:
        """Return one saved run, with its timeline."""
        view = await self.store.run(_require_param(request, "run"))
        records: list[Record] = []
        kept: RunUsage | None = None
        if view.session_id is not None:
            session = self.store.session(view.session_id)
            try:
                records = await _records_of_run(session, view.run_id)
                kept = next((one for one in await session.usage() if one.run_id == view.run_id), None)
            finally:
                await session.close()
        timeline = timeline_of(view, records, kept)
        for row in timeline:
            if kept is not None and "turn" in row:
                of_turn = tuple(one for one in kept.requests if one.turn == row["turn"])
                row["dollars"] = _dollars(replace(kept, requests=of_turn))
        return _json(
            {
                **json_views.run(view, self.store.url),
                "timeline": timeline,
                "has_more": bool(records) and records[0].number != 0,
                "dollars": None if kept is None else _dollars(kept),
            }
        )

    async def search(self, request: Request) -> Response:
        """Return records with these words, in all sessions."""
        found = await self.store.search(_require_param(request, "q"), after=request.query_params.get("after"), limit=20)
        hits = [
            {
                "session": hit.session_id,
                "name": safe(hit.session_id),
                "excerpt": safe(hit.excerpt),
                "cursor": hit.record.cursor,
                "at": json_views.when(hit.record.at),
            }
            for hit in found.hits
        ]
        return _json({"hits": hits, "after": found.after})

    async def events(self, request: Request) -> Response:
        """Send news of a session as server-sent events; a browser that reconnects continues behind its last id."""
        session_id = _require_param(request, "session")
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        return StreamingResponse(self._events(session_id, after), media_type="text/event-stream")

    async def _events(self, session_id: str, after: str | None) -> AsyncIterator[str]:
        yield "retry: 500\n\n"
        news = self.watching.listen(session_id, after)
        coming = asyncio.ensure_future(anext(news))
        try:
            while True:
                done, _ = await asyncio.wait({coming}, timeout=PING_S)
                if not done:
                    yield ": still here\n\n"
                    continue
                try:
                    one = coming.result()
                except StopAsyncIteration:
                    return
                if one.record is not None:
                    yield f"id: {one.record.cursor}\nevent: record\ndata: {_text(json_views.record(one.record))}\n\n"
                else:
                    yield f"event: {one.kind}\ndata: {_text({'why': safe(one.why)})}\n\n"
                    if one.kind == "replaced":
                        return
                coming = asyncio.ensure_future(anext(news))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await news.aclose()  # type: ignore[attr-defined]

    # --- changing ----------------------------------------------------------------------------------------------------

    async def decide(self, request: Request) -> Response:
        """Approve or reject a waiting call, as it was shown."""
        asked = await _body(request)
        approve, values = asked.get("approve") is True, asked.get("prepared_arguments")
        # What is too long to be shown may be rejected, which nobody has to read it for.
        arguments = _text_of(asked, "arguments") if approve or asked.get("arguments") is not None else None
        values = values if isinstance(values, str) else None
        if approve and json_views.is_too_long(arguments or "", values):
            raise _Asked("the arguments are too long to be shown here, so the call cannot be approved here", TOO_LONG)
        run = await self.store.decide(
            _text_of(asked, "run"), _text_of(asked, "call"), approve, by=self.who,
            reason=asked.get("reason") or None, arguments=arguments, prepared_arguments=values,
        )  # fmt: skip
        return _json(json_views.run(run, self.store.url))

    async def release(self, request: Request) -> Response:
        """Release a held run: a worker may continue the run."""
        run = await self.store.release(_text_of(await _body(request), "run"), by=self.who)
        return _json(json_views.run(run, self.store.url))

    async def fork(self, request: Request) -> Response:
        """Fork a session behind one of its records."""
        asked = await _body(request)
        new_id, cursor = _text_of(asked, "new"), _text_of(asked, "cursor")
        session = self.store.session(_text_of(asked, "session"))
        try:
            fork = await session.fork(new_id, at=Position(await _index_behind(session, cursor)), by=self.who)
            await fork.close()
        finally:
            await session.close()
        return _json({"session": new_id})

    async def undo(self, request: Request) -> Response:
        """Restore a generation in place of its replacement."""
        asked = await _body(request)
        session = self.store.session(_text_of(asked, "session"))
        try:
            await session.restore(_text_of(asked, "generation"), by=self.who)
        finally:
            await session.close()
        return _json({})

    async def budget(self, request: Request) -> Response:
        """Set the limit of a budget; without an amount, programs give it again (F10)."""
        asked = await _body(request)
        amount = asked.get("amount")
        view = await self.store.set_budget(_text_of(asked, "budget"), str(amount).strip() if amount else None)
        return _json(json_views.budget(view))

    # --- inside ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _session(self, request: Request) -> AsyncIterator[StoredSession]:
        session = await self.store.find(_require_param(request, "session"))
        try:
            yield session
        finally:
            await session.close()


TOO_LONG = "Read them with `standfast runs show --json`, and decide with `standfast runs approve`."


class _Asked(CallerError, ValueError):
    """A request that cannot be understood or met."""


async def _index_behind(session: StoredSession, cursor: str) -> int:
    """Count the items of a history up to and including the record of this cursor."""
    count, after = 0, ""
    while True:
        page = await session.records(after=after, limit=1000)
        for record in page.records:
            count += record.item is not None
            if record.cursor == cursor:
                return count
        if page.is_newest:
            raise _Asked("there is no such record any more", "Reload the page.")
        after = page.after


async def _records_of_run(session: StoredSession, run_id: str) -> list[Record]:
    """Return the records that a run wrote, oldest first, among the newest of its session."""
    found: list[Record] = []
    before: str | None = None
    for _ in range(RUN_RECORDS_MAX // RECORDS_PAGE):
        page = await session.records(before=before, limit=RECORDS_PAGE)
        found[:0] = [one for one in page.records if one.writer == run_id]
        before = page.before
        if before is None or (found and found[0].number == 0):
            break
    return found


def _dollars_by_model(by_model: Mapping[str, Usage]) -> str | None:
    """Return the price of usage by model. None without the extra `prices`, or if one model has no known price."""
    try:
        from standfast._src.models.prices import price_of
    except ImportError:
        return None
    prices = [price_of(usage, model) for model, usage in by_model.items() if usage.total_tokens]
    known = [one.usd for one in prices if one is not None]
    return f"{sum(known):.4f}" if known and len(known) == len(prices) else None


def _dollars(one: RunUsage) -> str | None:
    """Return the price of a run. None without the extra `prices`, or for a model without a known price."""
    try:
        from standfast._src.models.prices import price_of_run
    except ImportError:
        return None
    price = price_of_run(one)
    return None if price is None else f"{price.usd:.4f}"


def _file(name: str) -> Handler:
    content = files(__package__).joinpath("page", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=f"{FILES[name]}; charset=utf-8")

    return answer


def _report_errors_as_json(handler: Handler) -> Handler:
    """Return the handler with its errors answered as JSON, with the remedy."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except _Asked as error:
            return _json({"what": safe(error.what), "remedy": error.remedy}, 400)
        except Exception as error:
            ending = ending_of(error)
            if ending.code == DEFECT:
                logger.warning("the inspector could not answer %s", request.url.path, exc_info=error)
            return _json({"what": safe(ending.what), "remedy": ending.remedy}, STATUS.get(ending.code, 500))

    return answer


def _json(value: object, status: int = 200) -> Response:
    return Response(_text(value), status, media_type="application/json")


def _text(value: object) -> str:
    """JSON in one line of ASCII: half a surrogate pair in an item would be no UTF-8."""
    return json.dumps(value, separators=(",", ":"))


def _require_param(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise _Asked(f"the request does not say which {name}", f"Add ?{name}=….")
    return value


def _text_of(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise _Asked(f"the request does not say which {name}", f"Send {name!r} as a text.")
    return value


async def _body(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX:
            raise _Asked("the request is too long", f"Send at most {BODY_MAX} bytes.")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _Asked("the request is no JSON object", "Send one.")
    return value


def _count(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 3 or not 0 < int(text) <= 200:
        raise _Asked(f"{text[:20]!r} is no number of entries", "Ask for 1 to 200.")
    return int(text)
