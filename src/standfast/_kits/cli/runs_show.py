"""`standfast runs ls`, `show` and `result`: saved runs without any of their agents. Nothing is changed."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import (
    Commands,
    Parser,
    add_page,
    command,
    open_named_store,
    run_id_of,
    session_id_of,
    store_named,
)
from standfast._kits.cli.formatting import (
    age,
    call_fields,
    one_line,
    several,
    speaker,
    tokens,
    usage_fields,
    when,
    words_in,
)
from standfast._kits.cli.output import Column, Node, Output, json_text
from standfast._kits.cli.pages import Rows, show_pages
from standfast._kits.operators.exit_codes import DONE, RefusedError
from standfast._kits.operators.next_steps import next_step_of
from standfast._kits.operators.run_worker import STATES_IN_WORDS
from standfast._kits.operators.suggested_commands import store_command

if TYPE_CHECKING:
    from standfast._kits.operators.run_view import CallView, RunView
    from standfast._kits.operators.run_worker import RunWorker
    from standfast._kits.operators.store import Store
    from standfast._src.runs.engine.run_store import RunSummary

RUN, SUMMARY, RESULT = "standfast.run/1", "standfast.run-summary/1", "standfast.result/1"
STATUSES = ("running", "paused", "ready", "done", "failed", "cancelled")
OPEN = ("running", "paused", "ready")
PAGE = 256


def add(commands: Commands[Parser]) -> None:
    """Add the commands for looking."""
    ls = command(commands, "ls", list_runs, "saved runs, newest change first")
    add_page(ls, 50)
    ls.add_argument("--all", action="store_true", help="all of them, however many")
    ls.add_argument("--status", choices=STATUSES, help="those of this status")
    ls.add_argument("--session", metavar="SESSION", help="those of this session")

    show = command(commands, "show", show_run, "one run: what it does or waits for, its calls, decisions and costs")
    show.add_argument("run_id", metavar="RUN")

    result = command(commands, "result", show_result, "what a run that has ended gave")
    result.add_argument("run_id", metavar="RUN")


# --- ls --------------------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("RUN", "run"),
    Column("STATUS", "status"),
    Column("LAST CHANGE", "updated", age),
    Column("AGENT", "agent"),
    Column("SESSION", "session", gives_way=True),
)


async def list_runs(args: argparse.Namespace, out: Output) -> int:
    """List saved runs: a page, or all of them."""
    async with open_named_store(args) as store:
        session_id = None if args.session is None else await session_id_of(store, args.session)
        shown, after = await show_pages(out, SUMMARY, COLUMNS, _list_pages(store, session_id, args), "runs")
    out.page(after, several(shown, "run") if shown else "no run")
    return DONE


async def _list_pages(store: Store, session_id: str | None, args: argparse.Namespace) -> AsyncIterator[Rows]:
    after, left = args.after, args.limit
    while True:
        limit = PAGE if args.all else min(PAGE, left)
        page = await store.runs(status=args.status, session_id=session_id, after=after, limit=limit)
        after, left = page.after, left - len(page.runs)
        yield Rows([_summary_fields(run) for run in page.runs], after)
        if after is None or (left <= 0 and not args.all):
            return


def _summary_fields(run: RunSummary) -> dict[str, Any]:
    """A run of a listing in JSON (`standfast.run-summary/1`)."""
    return {
        "run": run.run_id,
        "status": run.status,
        "session": run.session_id,
        "agent": run.agent,
        "created": run.created_at,
        "updated": run.updated_at,
        "revision": run.revision,
    }


# --- show ------------------------------------------------------------------------------------------------------------


async def show_run(args: argparse.Namespace, out: Output) -> int:
    """Show a run as a tree: its input, its turns, its calls and their outcomes."""
    async with open_named_store(args) as store:
        view = await store.run(await run_id_of(store, args.run_id))
    if out.as_json:
        out.record(RUN, run_fields(view))
        return DONE
    out.tree(tree_of(view))
    for call in view.waiting:
        line = store_command("runs approve", store_named(args), view.run_id, call.call_id)
        out.note(f"to decide about {quote(call.tool)}: {line}   (or: reject … --say WHY)")
    if (step := next_step_of(view, store_named(args))) is not None:
        out.note(f"{step.text}: {step.command}" + (f"   (or give it up: {step.give_up})" if step.give_up else ""))
    return DONE


def _describe_worker(worker: RunWorker) -> str:
    """Say who drives a run, since when and until when."""
    who = worker.holder or "a worker that gave no name"
    ends = "ended" if worker.until <= datetime.now(UTC) else "ends"
    return (
        f"worker: {who} {STATES_IN_WORDS[worker.state]} · since {when(worker.since)} · "
        f"renewed {age(worker.renewed)} · lease {ends} {age(worker.until)}"
    )


def run_fields(view: RunView) -> dict[str, Any]:
    """A run in JSON (`standfast.run/1`)."""
    return {
        "run": view.run_id,
        "kind": view.kind,
        "status": view.status,
        "doing": view.doing,
        "agent": view.agent,
        "session": view.session_id,
        "owner": view.owner,
        "created": view.created_at,
        "updated": view.updated_at,
        "revision": view.revision,
        "turns": view.turns,
        "max_turns": view.max_turns,
        "input": view.input,
        "open_items": view.open_items,
        "calls": [call_fields(call) for call in view.calls],
        "usage": usage_fields(view.usage),
        "requests": [
            {"turn": one.turn, "model": one.model, "agent": one.agent, "usage": usage_fields(one.usage)}
            for one in view.requests
        ],
        "spoken": [dataclasses.asdict(one) for one in view.spoken],
        "output": view.output,
        "settled_by": view.settled_by,
        "hold": None if view.hold is None else dataclasses.asdict(view.hold),
        "worker": None if view.worker is None else dataclasses.asdict(view.worker),
    }


def tree_of(view: RunView) -> Node:
    """Return a run as a tree for people."""
    where = "no session" if view.session_id is None else f"session {view.session_id}"
    root = Node(
        f"run {view.run_id}  {view.status}, {age(view.updated_at)} · agent {view.agent or '–'} · {where} · "
        f"{several(view.turns, 'turn')} · {tokens(usage_fields(view.usage))}"
    )
    root.add(f"it {view.doing}")
    if view.worker is not None:
        root.add(_describe_worker(view.worker))
    for item in view.input:
        root.add(f"{speaker(item)}: {one_line(words_in(item))}")
    turns: dict[int, Node] = {}
    for call in view.calls:
        node = turns.get(call.turn) or turns.setdefault(call.turn, root.add(f"turn {call.turn}"))
        node.below.append(_call_node(call, view))
    for reply in view.spoken:
        node = root.add(f"heard {reply.heard_ms / 1000:.1f} of {reply.total_ms / 1000:.1f} s: {one_line(reply.heard)}")
        if reply.unheard:
            node.add(f"not heard: {one_line(reply.unheard)}")
    if view.output is not None:
        root.add(f"gave: {one_line(view.output)}")
    if view.settled_by is not None:
        root.add(f"was found gone, and closed by run {view.settled_by}")
    return root


def _call_node(call: CallView, view: RunView) -> Node:
    states = {
        "intended": "will run",
        "waiting": "WAITS for a decision" if call.reason != "unknown" else "WAITS: nobody knows whether it took effect",
        "decided": "is decided, and waits for a worker",
        "started": "has begun",
        "unknown": "had begun when its worker was lost",
        "done": "done",
    }
    node = Node(f"{call.tool} {one_line(call.arguments)}   {states[call.state]}  ({call.call_id})")
    if call.prepared_arguments is not None:
        node.add(f"the tool will get {one_line(call.prepared_arguments)}")
    if call.run_id != view.run_id:
        node.add(f"inside run {call.run_id}")
    if call.decision is not None:
        did = "approved" if call.decision.approved else "rejected"
        said = f": {call.decision.message}" if call.decision.message else ""
        node.add(f"{did} by {call.decision.by or 'a program'}, {age(call.decision.at)}{said}")
    if call.output is not None:
        node.add(f"gave: {one_line(call.output)}")
    return node


# --- result ----------------------------------------------------------------------------------------------------------


async def show_result(args: argparse.Namespace, out: Output) -> int:
    """Print the output of an ended run, unchanged if it is a text, else as JSON."""
    async with open_named_store(args) as store:
        view = await store.run(await run_id_of(store, args.run_id))
    if view.status in OPEN:
        raise RefusedError(
            f"run {view.run_id!r} has not ended ({view.status}): it {view.doing}", "Resume or cancel it."
        )
    if out.as_json:
        out.record(RESULT, {"run": view.run_id, "status": view.status, "output": view.output})
    elif view.output is None:
        out.note(f"run {view.run_id} has ended ({view.status}) and gave nothing")
    else:
        out.text(view.output if isinstance(view.output, str) else json_text(view.output))
    return DONE
