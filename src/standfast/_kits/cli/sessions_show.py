"""`standfast sessions ls`, `show`, `tail`, `search` and `stats`: they open a store to look, and change nothing."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import (
    Commands,
    Parser,
    add_page,
    add_words,
    command,
    count,
    open_named_store,
    seconds,
    session_id_of,
    store_named,
    take_words,
)
from standfast._kits.cli.formatting import (
    age,
    call_fields,
    number,
    record_fields,
    several,
    speaker,
    tokens,
    usage_fields,
    when,
    words_in,
)
from standfast._kits.cli.output import Column, Output, Row
from standfast._kits.cli.pages import Rows, show_pages
from standfast._kits.operators.exit_codes import DONE
from standfast._kits.operators.suggested_commands import store_command, undo_command
from standfast._src.base.errors import NotFoundError, SessionConflictError

if TYPE_CHECKING:
    from standfast._kits.operators.store import SessionSummary, Store
    from standfast._src.items.usage import Usage
    from standfast._src.sessions.client.stored_session import StoredSession
    from standfast._src.sessions.records import Record

SESSION, RECORD, HIT, STATS = "standfast.session/1", "standfast.record/1", "standfast.hit/1", "standfast.stats/1"
PAGE = 256

CHOICES = 10
# So many sessions are offered where none is named.


def add(commands: Commands[Parser]) -> None:
    """Add the commands for looking."""
    ls = command(commands, "ls", list_sessions, "sessions, newest change first")
    add_page(ls, 50)
    ls.add_argument("--all", action="store_true", help="all of them, however many")
    ls.add_argument("--brief", action="store_true", help="ids and times only: no counts, no first words, no runs")
    ls.add_argument("--prefix", default="", metavar="TEXT", help="those whose ids begin so")
    ls.add_argument("--since", type=seconds, metavar="AGE", help="those changed within 15m, 2h, 7d")
    ls.add_argument("--waiting", action="store_true", help="those in which a call waits for a person")

    show = command(commands, "show", show_session, "one session: what it is, and its latest records")
    add_words(show, "SESSION")
    show.add_argument("--limit", "-n", type=count, default=20, metavar="N", help="show at most N records (20)")
    place = show.add_mutually_exclusive_group()
    place.add_argument("--before", metavar="CURSOR", help="those before a record")
    place.add_argument("--after", metavar="CURSOR", help='those behind a record ("": from the start)')
    show.add_argument("--full", action="store_true", help="whole texts, not one line for each record")

    tail = command(commands, "tail", tail_session, "the latest records, and each new one as it is written")
    tail.set_defaults(waits=False)  # it waits for new records
    tail.add_argument("session", metavar="SESSION")
    tail.add_argument("--limit", "-n", type=count, default=10, metavar="N", help="begin with the latest N (10)")
    tail.add_argument("--for", dest="for_s", type=seconds, metavar="S", help="stop after so long (else at Ctrl-C)")

    search = command(commands, "search", search_sessions, "records that hold these words, in any case")
    search.add_argument("text", metavar="TEXT")
    search.add_argument("--session", metavar="SESSION", help="in this session only")
    add_page(search, 50)

    stats = command(commands, "stats", show_stats, "how much a store holds, and what it has cost")
    stats.add_argument("--session", metavar="SESSION", help="of this session only")


# --- ls --------------------------------------------------------------------------------------------------------------


def _runs(row: Row) -> str:
    waiting, runs = len(row["waiting"]), len(row["open_runs"])
    if waiting:
        return f"{waiting:,} wait{'s' if waiting == 1 else ''}"
    return f"{runs:,} open" if runs else "–"


BRIEF = (
    Column("SESSION", "session", gives_way=True),
    Column("LAST CHANGE", "updated", age),
    Column("CREATED", "created", when),
)
COLUMNS = (
    Column("SESSION", "session"),
    Column("ITEMS", "items", number, is_right=True),
    Column("LAST CHANGE", "updated", age),
    Column("RUNS", "", _runs, _runs),
    Column("FIRST WORDS", "first_words", gives_way=True),
)


async def list_sessions(args: argparse.Namespace, out: Output) -> int:
    """List sessions: a page, or all of them."""
    columns = BRIEF if args.brief else COLUMNS
    async with open_named_store(args) as store:
        shown, after = await show_pages(out, SESSION, columns, _list_pages(store, args), "sessions")
        is_part = args.all or args.prefix or args.waiting or args.since
        of = "" if is_part else f" of {await _count(store):,}"
    out.page(after, f"{shown:,}{of}" if shown or of else "no session")
    return DONE


async def _list_pages(store: Store, args: argparse.Namespace) -> AsyncIterator[Rows]:
    """Yield the requested pages, each with the beginning of the next one."""
    since = None if args.since is None else datetime.now(UTC) - timedelta(seconds=args.since)
    after, left = args.after, args.limit
    while True:
        page = await store.sessions(
            after=after, limit=PAGE if args.all else min(PAGE, left), prefix=args.prefix, changed_since=since,
            waiting=args.waiting, details=not args.brief,
        )  # fmt: skip
        after, left = page.after, left - len(page.sessions)
        yield Rows([summary_fields(one, brief=args.brief) for one in page.sessions], after)
        if after is None or (left <= 0 and not args.all):
            return


async def _count(store: Store) -> int:
    session = store.session("-")  # any session can count those of its store; nothing is written under this id
    try:
        return await session.count_sessions()
    finally:
        await session.close()


def summary_fields(one: SessionSummary, *, brief: bool = False) -> dict[str, Any]:
    """A session of a listing in JSON (`standfast.session/1`)."""
    found: dict[str, Any] = {"session": one.session_id, "created": one.created_at, "updated": one.updated_at}
    if brief:
        return found
    return found | {
        "items": one.item_count,
        "first_words": one.first_words,
        "open_runs": one.open_runs,
        "waiting": [{**call_fields(waits.call), "run": waits.run_id, "since": waits.since} for waits in one.waiting],
    }


# --- show and tail ---------------------------------------------------------------------------------------------------


def _words(row: Row) -> str:
    return words_in(row["item"], row["fault"]).strip().replace("\n", " ")


def _format_writer(row: Row) -> str:
    return "" if row["writer"] is None else f"{row['writer']} #{row['number']}"


RECORDS = (
    Column("WHEN", "at", when),
    Column("WHO", "item", speaker, speaker),
    Column("WHAT", "", _words, _words, gives_way=True),
    Column("WRITTEN BY", "", _format_writer, _format_writer),
)


async def show_session(args: argparse.Namespace, out: Output) -> int:
    """Show the facts about a session, and a page of its records."""
    (word,) = take_words(args)
    async with open_named_store(args) as store:
        session_id = await _choose_session(store, out) if word is None else await session_id_of(store, word)
        session = store.session(session_id)
        try:
            facts = await _facts(store, session)
            page = await session.records(before=args.before, after=args.after, limit=args.limit)
        finally:
            await session.close()
    if out.as_json:
        out.record(SESSION, facts)
    else:
        _tell_facts(facts, store_named(args), out)
    rows = [record_fields(session.session_id, record) for record in page.records]
    if args.full and not out.as_json:
        for row in rows:
            out.line(f"── {when(row['at'])}  {speaker(row['item'])}  {_format_writer(row)}".rstrip())
            out.text(words_in(row["item"], row["fault"]), indent="   ")
    else:
        out.table(RECORD, RECORDS, rows)
    if page.before is not None:
        out.note(f"earlier records: --before {page.before}")
    if not page.is_newest:
        out.note(f"later records: --after {page.after}")
    return DONE


async def _choose_session(store: Store, out: Output) -> str:
    """Ask for one of the newest sessions; without a terminal return the newest."""
    newest = (await store.sessions(limit=CHOICES)).sessions
    if not newest:
        raise NotFoundError("there is no session in this store", "Sessions appear with their first turn.")
    ids = [one.session_id for one in newest]
    if len(ids) == 1 or not out.can_ask:
        if len(ids) > 1:
            out.note(f"no session is named, so this is the newest; further sessions: {', '.join(ids[1:])}")
        return ids[0]
    for place, one in enumerate(newest, 1):
        out.note(f"{place:>3}  {one.session_id}  {age(one.updated_at)}  {one.first_words or ''}")
    answer = out.ask("Which session? [1] ").strip() or "1"
    if answer.isdecimal() and 1 <= int(answer) <= len(ids):
        return ids[int(answer) - 1]
    return await session_id_of(store, answer)


async def _facts(store: Store, session: StoredSession) -> dict[str, Any]:
    """Return the facts about a session besides its records, in JSON (`standfast.session/1`)."""
    from standfast._src.sessions.records import sum_usages

    summary = await store.summary(session.session_id)
    holder, origin, kept = await session.holder(), await session.origin(), await session.generations()
    runs = (await store.runs(session_id=session.session_id, limit=PAGE)).runs
    return summary_fields(summary) | {
        "holder": None if holder is None else {
            "name": holder.name, "since": holder.since, "until": holder.until, "number": holder.number,
            "waiting": holder.waiting,
        },
        "origin": None if origin is None else {
            "session": origin.session_id, "index": origin.index, "generation": origin.generation, "at": origin.at,
            "by": origin.by,
        },
        "generations": [
            {"generation": one.id, "replaced": one.created_at, "items": one.item_count, "by": one.by} for one in kept
        ],
        "runs": [{"run": run.run_id, "status": run.status, "updated": run.updated_at} for run in runs],
        "usage": usage_fields(sum_usages([one.total for one in await session.usage()])),
    }  # fmt: skip


def _tell_facts(facts: Row, store: str, out: Output) -> None:
    usage, holder, origin = facts["usage"], facts["holder"], facts["origin"]
    out.note(
        f"session {facts['session']} · {several(facts['items'], 'item')} · changed {age(facts['updated'])} · "
        f"created {age(facts['created'])} · {tokens(usage)}"
    )
    if holder is not None:
        waiting = f", {several(holder['waiting'], 'other waits', 'others wait')}" if holder["waiting"] else ""
        out.note(f"  held by {holder['name'] or 'somebody'} until {when(holder['until'])}{waiting}")
    if origin is not None:
        by = f", by {origin['by']}" if origin["by"] else ""
        out.note(f"  forked from {origin['session']} behind item {origin['index']}, {age(origin['at'])}{by}")
    for one in facts["generations"]:
        told = f"  {several(one['items'], 'item')} replaced {age(one['replaced'])}"
        out.note(f"{told}: {undo_command(store, facts['session'], one['generation'])}")
    for run in facts["runs"]:
        if run["run"] in facts["open_runs"]:
            line = store_command("runs show", store, run["run"])
            out.note(f"  run {quote(run['run'])} is {run['status']}: {line}")


async def tail_session(args: argparse.Namespace, out: Output) -> int:
    """Show the latest records and each new one, until it is stopped."""
    import asyncio

    async with open_named_store(args) as store:
        session = store.session(await session_id_of(store, args.session))
        try:
            after = await _show_latest(session, args.limit, out)
            timer = asyncio.timeout(args.for_s)  # from here on: the latest are shown, however slow the store is
            try:
                async with timer:
                    await _follow(session, after, args.limit, out)
            except TimeoutError:
                if not timer.expired():
                    raise  # the store's own
        finally:
            await session.close()
    return DONE


async def _show_latest(session: StoredSession, limit: int, out: Output) -> str:
    page = await session.records(limit=limit)
    _show_lines(session.session_id, page.records, out)
    return page.after


async def _follow(session: StoredSession, after: str, limit: int, out: Output) -> None:
    while True:
        try:
            async for record in session.watch(after=after):
                _show_lines(session.session_id, [record], out)
        except SessionConflictError:
            # A compaction, an undo or a clear: what was shown is no longer what is there.
            out.note("the history was replaced; what follows is the latest of the new one")
            after = await _show_latest(session, limit, out)


def _show_lines(session_id: str, records: list[Record], out: Output) -> None:
    """Print records one by one, each at once: a table would need all of them first."""
    for record in records:
        if out.as_json:
            out.record(RECORD, record_fields(session_id, record))
        else:
            row = record_fields(session_id, record)
            out.cells([when(record.at), speaker(record.item), _words(row)])
    out.flush()


# --- search ----------------------------------------------------------------------------------------------------------

HITS = (
    Column("SESSION", "session"),
    Column("WHEN", "at", when),
    Column("WHO", "item", speaker, speaker),
    Column("WHAT", "excerpt", gives_way=True),
)


async def search_sessions(args: argparse.Namespace, out: Output) -> int:
    """Find records by their words, in one session or in all."""
    async with open_named_store(args) as store:
        session = None
        if args.session is not None:
            session = store.session(await session_id_of(store, args.session))
        try:
            pages = _search_pages(session or store, args.text, args.after, args.limit)
            count, after = await show_pages(out, HIT, HITS, pages, f"for {args.text!r}")
        finally:
            if session is not None:
                await session.close()
    out.page(after, several(count, "record") if count else "nothing found")
    return DONE


async def _search_pages(where: StoredSession | Store, text: str, after: str | None, limit: int) -> AsyncIterator[Rows]:
    left = limit
    while True:
        page = await where.search(text, after=after, limit=left)
        after, left = page.after, left - len(page.hits)
        rows = [{**record_fields(hit.session_id, hit.record), "excerpt": hit.excerpt} for hit in page.hits]
        yield Rows(rows, after)
        if after is None or left <= 0:
            return


# --- stats -----------------------------------------------------------------------------------------------------------


async def show_stats(args: argparse.Namespace, out: Output) -> int:
    """Count the contents of a store or a session, and sum the costs."""
    async with open_named_store(args) as store:
        if args.session is None:
            facts = await _store_stats(store)
        else:
            facts = await _session_stats(store, await session_id_of(store, args.session))
    if out.as_json:
        out.record(STATS, facts)
        return DONE
    if args.session is None:
        out.line(f"{facts['store']} · {facts['backend']}, {facts['layout']}")
        out.line(f"  {several(facts['sessions'], 'session')}, {several(facts['items'], 'item')}")
    else:
        out.line(f"session {facts['session']}")
        out.line(f"  {several(facts['items'], 'item')}, {several(facts['generations'], 'kept generation')}")
    by_status = ", ".join(f"{count:,} {status}" for status, count in sorted(facts["runs_by_status"].items()))
    out.line(f"  {several(facts['runs'], 'saved run')}" + (f": {by_status}" if by_status else ""))
    out.line(f"  {tokens(facts['usage'])}")
    for name, usage in facts["usage_by_model"].items():
        price = usage.get("usd")
        out.line(
            f"    {name or 'model not known'}: {tokens(usage)}"
            + (f", about ${price} by {usage['prices']}" if price is not None else "")
        )
    return DONE


async def _store_stats(store: Store) -> dict[str, Any]:
    facts, counts, usage = await store.facts(), await store.counts(items=True), await store.usage()
    return {
        "store": facts.url,
        "backend": facts.backend,
        "layout": facts.layout.name,
        "sessions": counts.sessions,
        "items": counts.items,
        "runs": counts.runs,
        "runs_by_status": counts.runs_by_status,
        "usage": usage_fields(usage.total),
        "usage_by_model": {name: _price_usage(name, one) for name, one in usage.by_model.items()},
    }


async def _session_stats(store: Store, session_id: str) -> dict[str, Any]:
    from standfast._src.sessions.records import sum_usages

    session = store.session(session_id)
    try:
        costs, kept, summary = await session.usage(), await session.generations(), await store.summary(session_id)
    finally:
        await session.close()
    by_status: dict[str, int] = {}
    after: str | None = None
    while True:
        page = await store.runs(session_id=session_id, after=after, limit=PAGE)
        for run in page.runs:
            by_status[run.status] = by_status.get(run.status, 0) + 1
        after = page.after
        if after is None:
            break
    requests = [one for run in costs for one in run.requests]
    models = sorted({one.model or "" for one in requests})
    return {
        "session": session_id,
        "items": summary.item_count,
        "generations": len(kept),
        "runs": sum(by_status.values()),
        "runs_by_status": by_status,
        "usage": usage_fields(sum_usages([one.usage for one in requests])),
        "usage_by_model": {
            name: _price_usage(name, sum_usages([one.usage for one in requests if (one.model or "") == name]))
            for name in models
        },
        "usage_by_run": {one.run_id: usage_fields(one.total) for one in costs},
    }


def _price_usage(model: str, usage: Usage) -> dict[str, Any]:
    """Tokens, and in money where the extra `prices` is installed and knows the model."""
    found: dict[str, Any] = dict(usage_fields(usage))
    try:
        from standfast._src.models.prices import price_of
    except ImportError:
        return found
    price = price_of(usage, model) if model else None
    return found if price is None else found | {"usd": f"{price.usd:.4f}", "prices": price.source}
