"""C12: promises of a store of saved runs: one owner per revision, recognised repeats, logs in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab
from standfast._kits.conformance.processes import together
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import RunClaimedError
from standfast._src.runs.engine.run_store import LogTail, RunStore

if TYPE_CHECKING:
    from standfast._src.agents.tool_context import ToolContext


async def _save(runs: RunStore, run_id: str, expect: int, head: bytes, **more: object) -> int:
    values: dict[str, Any] = {"tails": {}, "status": "running", "agent": "a", **more}
    saved: int = await runs.save_run(run_id, expect=expect, head=head, **values)
    return saved


@proves("C12", "runs")
async def of_two_who_save_on_one_revision_the_second_is_told(lab: Lab) -> None:
    runs = lab.open().run_store()
    lab.same(await _save(runs, "r", 0, b"0"), 1, "the first save, by its revision")
    outcomes = await asyncio.gather(*(_save(runs, "r", 1, b"%d" % n) for n in range(1, 7)), return_exceptions=True)
    claimed = [outcome for outcome in outcomes if isinstance(outcome, RunClaimedError)]
    lab.expect(len(claimed) == 5, f"of six who saved on one revision {len(claimed)} were refused")
    winner = next(n for n, outcome in enumerate(outcomes, 1) if outcome == 2)
    found = await runs.load_run("r")
    lab.same((found.revision, found.head), (2, b"%d" % winner), "six who saved on one revision")
    for expect in (0, 1, 5):
        await lab.refuses(_save(runs, "r", expect, b"late"), f"a save on revision {expect}", RunClaimedError)


@proves("C12", "runs", "record", "processes")
async def a_turn_and_the_run_that_made_it_are_stored_together_or_not_at_all(lab: Lab) -> None:
    session, turns = lab.open(), 8
    with together(lab.backend, 3, "save_turns", turns=turns) as children:
        for child in children:
            lab.same(await asyncio.to_thread(child.rest), [{"saved": turns}], "one of three who save one run")
    found = await session.run_store().load_run("run")
    items = len(await session.get_items())
    lab.same((found.revision, items), (3 * turns, 3 * turns), "saves of a run and the items they brought")


@proves("C12", "runs")
async def the_same_save_again_succeeds(lab: Lab) -> None:
    runs = lab.open().run_store()
    for _ in range(2):
        tails = {"items": LogTail(0, [b"a"])}
        lab.same(await _save(runs, "r", 0, b"head", tails=tails), 1, "a save and its repeat, by the revision")
    found = await runs.load_run("r")
    lab.same(list(found.logs["items"]), [b"a"], "a save and its repeat, by the log")


@proves("C12", "runs")
async def a_tail_takes_the_place_of_what_the_log_has_from_its_start_on(lab: Lab) -> None:
    runs = lab.open().run_store()
    await _save(runs, "r", 0, b"1", tails={"items": LogTail(0, [b"a", b"b", b"c"]), "calls": LogTail(0, [b"x"])})
    await _save(runs, "r", 1, b"2", tails={"items": LogTail(1, [b"B"])})
    await _save(runs, "r", 2, b"3", tails={"items": LogTail(2, [b"d"]), "calls": LogTail(1, [b"y"])})
    found = await runs.load_run("r")
    seen = {name: list(log) for name, log in found.logs.items()}
    lab.same(seen, {"items": [b"a", b"B", b"d"], "calls": [b"x", b"y"]}, "three saves of tails")
    late = _save(runs, "r", 3, b"4", tails={"items": LogTail(9, [b"?"])})
    await lab.refuses(late, "a tail behind the end of its log", LookupError)
    lab.same((await runs.load_run("r")).revision, 3, "a refused tail")
    await _save(runs, "r", 3, b"short", tails={"items": LogTail(0, []), "calls": LogTail(0, [])}, status="done")
    found = await runs.load_run("r")
    lab.same({name: list(log) for name, log in found.logs.items() if log}, {}, "a save that empties every log")


@proves("C12", "runs")
async def runs_are_listed_newest_change_first(lab: Lab) -> None:
    runs = lab.open().run_store()
    for number in range(5):
        status = "paused" if number % 2 else "done"
        await _save(runs, f"r{number}", 0, b"1", status=status, session_id="s" if number < 3 else None)
    await _save(runs, "r1", 1, b"2", status="paused", session_id="s")
    seen, after = [], None
    while True:
        page, after = await runs.list_runs(after=after, limit=2)
        seen += [one.run_id for one in page]
        if after is None:
            break
    lab.same(seen, ["r1", "r4", "r3", "r2", "r0"], "a listing of runs, in pages of two")
    paused, _ = await runs.list_runs(status="paused")
    lab.same([one.run_id for one in paused], ["r1", "r3"], "the paused runs")
    of_session, _ = await runs.list_runs(session_id="s")
    lab.same([one.run_id for one in of_session], ["r1", "r2", "r0"], "a session's runs")
    lab.same(await runs.prune_runs(keep=1), 2, "pruning all ended runs but one")
    left, _ = await runs.list_runs()
    lab.same([one.run_id for one in left], ["r1", "r4", "r3"], "pruning all ended runs but one")
    lab.same([await runs.delete_run("r4"), await runs.delete_run("r4")], [True, False], "deleting a run twice")


@proves("C12", "runs")
async def pruning_leaves_a_run_that_has_something_to_tell(lab: Lab) -> None:
    from standfast._kits.testing.script import ModelStep, function_call
    from standfast._kits.testing.scripted_model import ScriptedModel
    from standfast._src.agents.agent import Agent  # a whole runtime: the plugin loads where none of it is wanted
    from standfast._src.runs.api.runner import Runner
    from standfast._src.tools.function_tool import FunctionTool

    session = lab.open()
    runs = session.run_store()
    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], ModelStep(error=_Down("down"))])
    agent = Agent(name="a", tools=[FunctionTool("pay", "Pay.", _NO_PARAMETERS, _paid)], model=model)
    await lab.refuses(Runner.run(agent, "pay", session=session), "a request that fails after a turn", _Down)
    failed, _ = await runs.list_runs(status="failed")
    lab.same(len(failed), 1, "a request that failed after a turn was stored, by the failed runs")
    lab.same(await runs.prune_runs(keep=0), 0, "pruning a run that failed after a turn was stored, before it is told")
    lab.same(len(await session.get_items()), 3, "pruning a run that failed after a turn was stored")
    await Runner.cancel_run(agent, failed[0].run_id, session=session)
    lab.same(await runs.prune_runs(keep=0), 1, "pruning a failed run that was given up")
    if lab.has(session, "lease"):
        async with await session.lease(ttl_s=60, wait_s=0) as lease:
            told = tuple(getattr(lease, "open_runs", ()))
            lab.same(told, (), "pruning a failed run, by what its session knows of it")


class _Down(Exception):
    """Failure of a check's model."""


_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}


async def _paid(context: ToolContext[Any], arguments: str) -> str:
    return "paid"
