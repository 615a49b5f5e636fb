"""`standfast sessions fork`, `undo` and `rm`: changes of conversations, and the questions before them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from standfast._kits.cli.arguments import (
    Commands,
    Parser,
    command,
    open_named_store,
    session_id_of,
    store_named,
    whoever,
)
from standfast._kits.cli.formatting import age, number, several
from standfast._kits.cli.output import Column, Output
from standfast._kits.operators.exit_codes import DONE, RefusedError
from standfast._kits.operators.suggested_commands import undo_command
from standfast._src.base.digits import whole_number
from standfast._src.base.errors import NotFoundError

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store
    from standfast._src.sessions.protocol import Generation

LEASE_S = 30.0
# Long enough to remove a long history; it is renewed while that takes longer.

STAYS = (
    "What stays: how many items each writer wrote and the lease's number (so that a late repeat brings nothing back),",
    "runs that a worker is at, undo files of the doctor's, backups, and free pages of a database until it is vacuumed.",
)


def add(commands: Commands[Parser]) -> None:
    """Add the commands for changing sessions."""
    fork = command(commands, "fork", fork_session, "a new session that continues from a point of another", changes=True)
    fork.add_argument("session", metavar="SESSION")
    fork.add_argument("new", metavar="NEW", help="the id of the new session, which must be empty")
    fork.add_argument("--at", type=place, metavar="N", help="behind the first N items (else: all of them)")
    fork.add_argument("--generation", metavar="ID", help="of this kept generation, not of the history as it is")

    undo = command(commands, "undo", undo_session, "put back what a compaction or replacement took out", changes=True)
    undo.add_argument("session", metavar="SESSION")
    undo.add_argument("--to", metavar="GENERATION", help="the kept generation to put back (else: the newest)")
    undo.add_argument("--list", action="store_true", help="show the kept generations and change nothing")

    rm = command(commands, "rm", remove_session, "remove a session for good: items, generations, runs, usage",
                 changes=True, asks=True)  # fmt: skip
    rm.add_argument("session", metavar="SESSION")


def place(text: str) -> int:
    """A number of items, from 0 on."""
    number = whole_number(text, below=2**63)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of items")
    return number


async def fork_session(args: argparse.Namespace, out: Output) -> int:
    """Make a new session that continues from a point of another."""
    from standfast._src.sessions.protocol import Position

    async with open_named_store(args, read_only=False) as store:
        session_id = await session_id_of(store, args.session)
        source = store.session(session_id)
        try:
            at = None
            if args.at is not None or args.generation is not None:
                generation = None if args.generation is None else await _generation(store, session_id, args.generation)
                count = generation.item_count if generation is not None else 0
                at = Position(count if args.at is None else args.at, None if generation is None else generation.id)
            made = await source.fork(args.new, at=at, by=whoever())
            await made.close()
            items = (await store.summary(args.new)).item_count or 0
        finally:
            await source.close()
    if out.as_json:
        out.record("standfast.fork/1", {"session": args.new, "of": session_id, "items": items})
    else:
        out.line(f"session {args.new} continues {session_id} with {several(items, 'item')}; the two never meet again")
    return DONE


# --- undo ------------------------------------------------------------------------------------------------------------

GENERATIONS = (
    Column("GENERATION", "generation"),
    Column("ITEMS", "items", number, is_right=True),
    Column("REPLACED", "replaced", age),
    Column("BY", "by"),
)


async def undo_session(args: argparse.Namespace, out: Output) -> int:
    """Restore a kept generation in place of its replacement, which becomes a generation."""
    async with open_named_store(args, read_only=args.list) as store:
        session_id = await session_id_of(store, args.session)
        session = store.session(session_id)
        try:
            before = await session.head()
            kept = await session.generations()
            if args.list:
                rows = [
                    {"generation": one.id, "items": one.item_count, "replaced": one.created_at, "by": one.by}
                    for one in kept
                ]
                out.table("standfast.generation/1", GENERATIONS, rows)
                return DONE
            if not kept:
                raise NotFoundError(
                    f"session {session_id!r} keeps nothing that was replaced", "There is nothing to undo."
                )
            chosen = kept[0] if args.to is None else await _generation(store, session_id, args.to)
            # Under the head that was seen: what somebody writes in between must not be displaced unseen.
            await session.restore(chosen.id, expect=before, by=whoever())
            after = await session.generations()
            items = (await store.summary(session_id)).item_count or 0
        finally:
            await session.close()
    displaced = after[0].id if after else None
    if out.as_json:
        fields = {"session": session_id, "generation": chosen.id, "items": items, "displaced": displaced}
        out.record("standfast.undo/1", fields)
        return DONE
    out.line(
        f"session {session_id} has {several(items, 'item')} now; what was replaced {age(chosen.created_at)} is back"
    )
    if displaced is not None:
        out.line(f"what stood there is kept in turn: {undo_command(store_named(args), session_id, displaced)}")
    return DONE


async def _generation(store: Store, session_id: str, given: str) -> Generation:
    """Return the one kept generation with this id or this beginning of an id."""
    from standfast._kits.cli.arguments import only_one

    session = store.session(session_id)
    try:
        kept = {one.id: one for one in await session.generations()}
    finally:
        await session.close()
    if given in kept:
        return kept[given]
    fitting = [one for one in kept if one.startswith(given)]
    return kept[only_one("generation", given, fitting, "standfast sessions undo --list")]


# --- rm --------------------------------------------------------------------------------------------------------------


async def remove_session(args: argparse.Namespace, out: Output) -> int:
    """Remove everything stored for a session, after a person's confirmation."""
    async with open_named_store(args, read_only=False) as store:
        session_id = await session_id_of(store, args.session)
        if out.yes and session_id != args.session:
            raise RefusedError(
                f"{args.session!r} is only the beginning of {session_id!r}, and nobody is asked",
                "With --yes give the whole id: it cannot be undone.",
            )
        summary = await store.summary(session_id)
        session = store.session(session_id)
        try:
            kept, costs = await session.generations(), await session.usage()
            runs = await _run_count(store, session_id)
            holds = ", ".join(
                (several(summary.item_count or 0, "item"), several(len(kept), "kept generation"),
                 several(runs, "saved run"), f"the costs of {several(len(costs), 'run')}")
            )  # fmt: skip
            opened_runs = [f"{several(len(summary.open_runs), 'run')} of it has not ended and is lost with it."]
            out.confirm(
                f"This removes session {session_id} for good: {holds}",
                details=[*(opened_runs if summary.open_runs else ()), *STAYS],
            )
            # Under the lease: whoever is at it would go on writing into what has just been removed.
            async with await session.lease(ttl_s=LEASE_S, wait_s=0.0, holder=f"{whoever()} removes it"):
                await session.clear_session()
        finally:
            await session.close()
    fields = {"session": session_id, "items": summary.item_count, "generations": len(kept), "runs": runs}
    if out.as_json:
        out.record("standfast.removed/1", fields)
    else:
        out.line(f"removed session {session_id}")
    return DONE


async def _run_count(store: Store, session_id: str) -> int:
    count, after = 0, None
    while True:
        page = await store.runs(session_id=session_id, after=after, limit=256)
        count, after = count + len(page.runs), page.after
        if after is None:
            return count
