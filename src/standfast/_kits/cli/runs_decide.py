"""`standfast runs approve`, `reject`, `cancel`, `unlock` and `prune`: decisions of a person about saved runs.

No decision needs the agents. A decision is final, so the call is shown with its arguments and confirmed before the
decision is saved, and the saved decision is bound to the shown call.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from standfast._kits.cli.arguments import (
    Commands,
    Parser,
    add_words,
    command,
    only_one,
    open_named_store,
    run_id_of,
    seconds,
    session_id_of,
    store_named,
    take_words,
    whoever,
)
from standfast._kits.cli.formatting import age, several, span, when
from standfast._kits.cli.output import Output
from standfast._kits.cli.runs_show import OPEN, RUN, run_fields
from standfast._kits.cli.sessions_change import place
from standfast._kits.operators.exit_codes import DONE, REFUSED, RefusedError, UsageError
from standfast._kits.operators.suggested_commands import resume_command, store_command
from standfast._src.agents.approvals import describe_arguments
from standfast._src.base.errors import RunStateError

if TYPE_CHECKING:
    from standfast._kits.operators.run_view import CallView, RunView
    from standfast._kits.operators.store import Store


def add(commands: Commands[Parser]) -> None:
    """Add the commands for decisions."""
    approve = command(commands, "approve", approve_call, "let a call that waits run", changes=True, asks=True)
    reject = command(commands, "reject", reject_call, "keep a call that waits from running", changes=True, asks=True)
    for parser in (approve, reject):
        add_words(parser, "RUN", "CALL")
        _add_by(parser)
    reject.add_argument("--say", metavar="WHY", help="what the model reads in place of the call's output")

    hold = command(commands, "hold", hold_runs, "keep runs from acting, after a backup was restored", changes=True,
                   asks=True)  # fmt: skip
    add_words(hold, "RUN")
    hold.add_argument("--all", action="store_true", help="every run of the store that could act")
    _add_by(hold)

    cancel = command(commands, "cancel", cancel_run, "give a run up: what waits is rejected", changes=True, asks=True)
    cancel.add_argument("run_id", metavar="RUN")
    cancel.add_argument("--say", metavar="WHY", help="why; the outputs of its calls say so")
    _add_by(cancel)

    unlock = command(commands, "unlock", unlock_session, "take the session of a run away from a holder that hangs",
                     changes=True, asks=True)  # fmt: skip
    unlock.add_argument("run_id", metavar="RUN")
    unlock.add_argument("--session", action="store_true", dest="is_session", help="RUN is the id of a session")

    prune = command(commands, "prune", prune_runs, "forget runs that have ended", changes=True, asks=True)
    prune.add_argument("--older-than", type=seconds, metavar="AGE", help="those last changed before 30d, 12h")
    prune.add_argument("--keep", type=place, metavar="N", help="all but the newest N")


def _add_by(parser: Parser) -> None:
    parser.add_argument("--by", type=name, metavar="NAME", help="who decides; it is saved (else: you, on this host)")


def name(text: str) -> str:
    """Return a person's name."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty name says nobody")
    return text


# --- about a call ----------------------------------------------------------------------------------------------------


async def approve_call(args: argparse.Namespace, out: Output) -> int:
    """Approve a waiting call, to run when a worker resumes its run."""
    return await _decide(args, out, approve=True)


async def reject_call(args: argparse.Namespace, out: Output) -> int:
    """Reject a waiting call; the model is informed."""
    return await _decide(args, out, approve=False)


async def _decide(args: argparse.Namespace, out: Output, *, approve: bool) -> int:
    by = args.by or whoever()
    run_word, call_word = take_words(args)
    async with open_named_store(args, read_only=False) as store:
        view = await store.run(await run_id_of(store, run_word or ""))
        if approve and call_word is None and view.hold is not None and not view.waiting:
            return await _release(store, view, args, out, by)
        call = _only_waiting(view) if call_word is None else call_of(view, call_word)
        does = "approves" if approve else "rejects"
        first, *more = describe_arguments(call)
        if call.state == "waiting":
            out.confirm(
                f"{by} {does} the call {call.call_id} of run {view.run_id}, which cannot be taken back",
                details=[f"  {call.tool} {first}", *(f"  {line}" for line in more)],
            )
        # Bound to what was shown: a call that has other arguments by now is refused, and so is one that is decided.
        reason = None if approve else args.say
        after = await store.decide(
            view.run_id, call.call_id, approve, by=by, reason=reason,
            arguments=call.arguments, prepared_arguments=call.prepared_arguments,
        )  # fmt: skip
    if out.as_json:
        out.record(RUN, run_fields(after))
        return DONE
    out.line(f"{'approved' if approve else 'rejected'} {call.tool} ({call.call_id}) in run {after.run_id}, by {by}")
    if after.waiting:
        out.line(f"the run still waits for {several(len(after.waiting), 'decision')}")
    else:
        out.line(f"the run is {after.status}, for a worker to take: {resume_command(store_named(args), after.run_id)}")
    return DONE


async def _release(store: Store, view: RunView, args: argparse.Namespace, out: Output, by: str) -> int:
    """Let a held run continue."""
    out.confirm(
        f"{by} lets run {view.run_id} continue from the state in this store, which cannot be taken back",
        details=["  What it did after the backup was made is not known here, and may happen a second time."],
    )
    after = await store.release(view.run_id, by=by)
    if out.as_json:
        out.record(RUN, run_fields(after))
    else:
        resume = resume_command(store_named(args), after.run_id)
        out.line(f"run {after.run_id} is {after.status}, for a worker to take: {resume}")
    return DONE


async def hold_runs(args: argparse.Namespace, out: Output) -> int:
    """Make runs wait for a person: those of a store restored to an earlier time."""
    by = args.by or whoever()
    (word,) = take_words(args)
    if args.all == (word is not None):
        raise UsageError("nothing says which runs to hold", "Name one behind the store, or give --all.")
    async with open_named_store(args, read_only=False) as store:
        runs = None if word is None else [await run_id_of(store, word)]
        out.confirm(
            f"This makes {'every run that could act' if runs is None else f'run {runs[0]}'} wait for a person",
            details=["  Stop the workers first. Their leases are taken away; earlier approvals are asked for again."],
        )
        done = await store.hold(by=by, runs=runs)
        views = [await store.run(run_id) for run_id in done.held]
    for view in views:
        if out.as_json:
            out.record(RUN, run_fields(view))
            continue
        out.line(f"run {view.run_id} {view.doing}")
        for call in view.waiting:
            out.line(f"  {call.tool} {'; '.join(describe_arguments(call))}   its outcome is not known")
        call_word = "" if len(view.waiting) < 2 else " CALL"
        line = store_command("runs approve", store_named(args), view.run_id)
        out.note(f"  to decide: {line}{call_word}   (or: reject, cancel)")
    for run_id, why in done.left:
        out.note(f"run {run_id} was left: {why}")
    out.note(f"{several(len(views), 'run')} held; runs that were begun after the backup are not in this store")
    return REFUSED if done.left else DONE


def _only_waiting(view: RunView) -> CallView:
    """Return the only waiting call of a run; refuse a run with none or several."""
    if len(view.waiting) == 1:
        return view.waiting[0]
    if not view.waiting:
        raise RefusedError(f"no call of run {view.run_id!r} waits: it {view.doing}", "See it with standfast runs show.")
    calls = ", ".join(f"{call.call_id} ({call.tool})" for call in view.waiting)
    raise UsageError(f"{len(view.waiting)} calls of run {view.run_id!r} wait: {calls}", "Say which, behind the run.")


def call_of(view: RunView, given: str) -> CallView:
    """Return the one call of a run with this id or this beginning of an id."""
    calls = {call.call_id: call for call in view.calls}
    if given in calls:
        return calls[given]
    fitting = [one for one in calls if one.startswith(given)]
    return calls[only_one(f"call of run {view.run_id}", given, fitting, "standfast runs show")]


# --- about a run -----------------------------------------------------------------------------------------------------


async def cancel_run(args: argparse.Namespace, out: Output) -> int:
    """Give a saved run up: waiting calls are rejected, and its turn is stored whole."""
    by = args.by or whoever()
    async with open_named_store(args, read_only=False) as store:
        view = await store.run(await run_id_of(store, args.run_id))
        if view.status not in OPEN:
            raise RunStateError(f"run {view.run_id!r} has ended ({view.status})", "There is nothing to give up.")
        out.confirm(
            f"{by} gives up run {view.run_id}, which cannot be taken back",
            details=[f"  it {view.doing}; what waits is rejected, and its turn is stored as it is"],
        )
        after = await store.cancel(view.run_id, by=by, reason=args.say)
    if out.as_json:
        out.record(RUN, run_fields(after))
    elif after.cancelled_by is not None:
        out.line(f"run {after.run_id} {after.doing}; its worker ends it at its next step")
    else:
        out.line(f"run {after.run_id} is {after.status}")
    return DONE


async def unlock_session(args: argparse.Namespace, out: Output) -> int:
    """Take a session's lease away from its holder."""
    async with open_named_store(args, read_only=False) as store:
        if args.is_session:
            session_id = await session_id_of(store, args.run_id)
        else:
            view = await store.run(await run_id_of(store, args.run_id))
            if view.session_id is None:
                raise RunStateError(
                    f"run {view.run_id!r} has no session whose lease could be taken",
                    "Its own lease ends by itself; `runs resume --takeover` takes it when its worker is gone.",
                )
            session_id = view.session_id
        session = store.session(session_id)
        try:
            holder = await session.holder()
        finally:
            await session.close()
        if holder is None:
            raise RefusedError(f"nobody holds session {session_id!r}", "There is nothing to take away.")
        out.confirm(
            f"This takes session {session_id} away from {holder.name or 'its holder'}, who has it until "
            f"{when(holder.until)}",
            details=["  Whoever had it can store nothing more and is told so; what they have begun is not undone."],
        )
        fence = await store.unlock(session_id)
    if out.as_json:
        out.record("standfast.unlocked/1", {"session": session_id, "holder": holder.name, "number": fence})
    else:
        out.line(f"session {session_id} is free; it was held since {age(holder.since)}")
    return DONE


async def prune_runs(args: argparse.Namespace, out: Output) -> int:
    """Forget ended runs by age and number."""
    if args.older_than is None and args.keep is None:
        raise UsageError("nothing says which runs to forget", "Give --older-than AGE, --keep N, or both.")
    which = " and ".join(
        text for text, given in (
            (f"those last changed more than {span(args.older_than or 0)} ago", args.older_than is not None),
            (f"all but the newest {args.keep}", args.keep is not None),
        ) if given
    )  # fmt: skip
    async with open_named_store(args, read_only=False) as store:
        out.confirm(
            f"This forgets runs that have ended, for good: {which}",
            details=["  What they said and what they cost stays with their sessions; runs that have not ended stay."],
        )
        count = await store.prune_runs(older_than_s=args.older_than, keep=args.keep)
    if out.as_json:
        out.record("standfast.pruned/1", {"runs": count})
    else:
        out.line(f"forgot {several(count, 'run')}")
    return DONE
