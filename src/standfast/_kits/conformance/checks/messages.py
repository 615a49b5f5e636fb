"""F1 to F5: a message to a conversation in any state is heard once, in order, between turns, and judged before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import AnySession, Lab
from standfast._kits.conformance.processes import together
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import SessionBusyError, SessionConflictError

if TYPE_CHECKING:
    from standfast._kits.testing.scripted_model import ScriptedModel
    from standfast._src.agents.agent import Agent
    from standfast._src.base.json_values import Item
    from standfast._src.tools.function_tool import FunctionTool

NEEDS = "runs", "record", "lease"


def _agent(*steps: Any, work: Any = None, guardrails: Any = ()) -> Agent[Any]:
    """Build an agent named `a` with a scripted model, and a tool that calls `work`."""
    from standfast._kits.testing.script import assistant_message
    from standfast._kits.testing.scripted_model import ScriptedModel
    from standfast._src.agents.agent import Agent

    steps = tuple([assistant_message(step)] if isinstance(step, str) else step for step in steps)
    tools: list[Any] = [] if work is None else [_tool(work)]
    return Agent(name="a", tools=tools, model=ScriptedModel(list(steps)), input_guardrails=list(guardrails))


def _tool(work: Any) -> FunctionTool:
    from standfast._src.tools.function_tool import FunctionTool

    async def invoke(context: object, arguments: str) -> str:
        await work()
        return "worked"

    parameters: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    return FunctionTool("work", "Work.", parameters, invoke)


def _call() -> Any:
    from standfast._kits.testing.script import function_call

    return [function_call("work", {}, call_id="c1")]


def _kinds(items: list[Item]) -> list[str]:
    """Shorten a history or a request to texts, roles and types."""
    return [str(one["content"]) if one.get("role") == "user" else str(one.get("role") or one["type"]) for one in items]


def _requests(agent: Agent[Any]) -> list[list[str]]:
    model: ScriptedModel = agent.model  # type: ignore[assignment]
    return [_kinds(call.input) for call in model.calls]


async def _run(agent: Agent[Any], text: str, session: AnySession, **options: Any) -> Any:
    from standfast._src.runs.api.runner import Runner

    return await Runner.run(agent, text, session=session, **options)


@proves("F1", *NEEDS)
async def a_message_sent_again_is_the_same_message_whatever_became_of_it(lab: Lab) -> None:
    session = lab.open()
    runs = session.run_store()

    async def again(after: str, state: str, run_id: str | None) -> None:
        receipt = await session.send("hello", agent="a", message_id="m")
        lab.same((receipt.state, receipt.run_id, receipt.is_new), (state, run_id, False), f"sent again {after}")
        other = session.send("something else", agent="a", message_id="m")
        await lab.refuses(other, f"another content {after}", SessionConflictError)

    first = await session.send("hello", agent="a", message_id="m")
    lab.same((first.state, first.is_new), ("waiting", True), "a message that was sent")
    await again("while it waits", "waiting", None)
    result = await _run(_agent("hi"), "own", session)
    lab.same(list(result.heard), ["m"], "a run that found a message waiting")
    lab.same(_kinds(await session.get_items()), ["hello", "own", "assistant"], "a run that found a message waiting")
    await again("after it was heard", "heard", result.run_id)
    await runs.prune_runs(keep=0)
    await again("after its record was pruned", "heard", result.run_id)
    await session.clear_session()
    await again("after the session was cleared", "heard", result.run_id)
    lab.same(await session.get_items(), [], "a repeat after the session was cleared")
    await session.send("waits", agent="a", message_id="n")
    await session.clear_session()
    lab.same((await session.send("waits", agent="a", message_id="n")).state, "cleared", "a message that was cleared")
    lab.same(await session.waiting_messages(), [], "clearing what waits")


@proves("F1", *NEEDS, "processes")
async def processes_that_send_at_once_lose_no_message(lab: Lab) -> None:
    session, count = lab.open(), 6
    with together(lab.backend, 3, "send_messages", messages=count) as children:
        for child in children:
            lab.same(await asyncio.to_thread(child.rest), [{"sent": count}], "one of three who send")
    found = [one.message_id for one in await session.waiting_messages()]
    lab.same(len(found), 3 * count, "messages of three processes that wait")
    for number in range(3):
        own = [one for one in found if one.startswith(f"{number}-")]
        lab.same(own, [f"{number}-{place}" for place in range(count)], "the messages of one of three processes")
    await _run(_agent("hi"), "own", session)
    lab.same(_kinds(await session.get_items()), [*found, "own", "assistant"], "a run that found them waiting")


@proves("F2", *NEEDS)
async def a_run_under_way_hears_a_message_before_its_next_request(lab: Lab) -> None:
    session, sender = lab.open(), lab.open()

    async def work() -> None:
        await sender.send("hurry", agent="a", message_id="m")

    agent = _agent(_call(), "done", work=work)
    result = await _run(agent, "go", session)
    told = ["go", "function_call", "function_call_output", "hurry"]
    lab.same(_requests(agent), [["go"], told], "the requests of a run that was sent a message")
    lab.same(_kinds(await session.get_items()), [*told, "assistant"], "a run that was sent a message")
    receipt = await sender.receipt("m")
    lab.same((receipt.state, receipt.run_id), ("heard", result.run_id), "the receipt of a message that was heard")
    lab.same(await session.waiting_messages(), [], "hearing what waits")


@proves("F2", *NEEDS)
async def a_message_to_an_idle_conversation_is_a_run_of_its_own(lab: Lab) -> None:
    from standfast._src.runs.api.runner import Runner

    session = lab.open()
    await session.send("hello", agent="a", message_id="m")
    report = await Runner.recover(_agent("hi"), sessions=lambda session_id: lab.open(session_id))
    lab.same(dict(report.counts), {"continued": 1}, "a worker that found a message")
    lab.same(_kinds(await session.get_items()), ["hello", "assistant"], "a message that a worker has begun")
    receipt = await session.receipt("m")
    lab.same((receipt.state, receipt.run_id), ("done", "m"), "the receipt of a message that was a run")


@proves("F2", *NEEDS)
async def a_message_that_was_queued_or_rejected_is_not_heard_by_the_run_under_way(lab: Lab) -> None:
    session, sender = lab.open(), lab.open()

    async def work() -> None:
        await sender.send("later", agent="a", message_id="q", when_busy="queue")
        await sender.send("behind", agent="a", message_id="s")
        rejected = sender.send("never", agent="a", message_id="r", when_busy="reject")
        await lab.refuses(rejected, "a message to a session that a run has", SessionBusyError)

    agent = _agent(_call(), "done", work=work)
    await _run(agent, "go", session)
    lab.same(_requests(agent)[-1], ["go", "function_call", "function_call_output"], "a run that heard nothing")
    waits = [one.message_id for one in await session.waiting_messages()]
    lab.same(waits, ["q", "s"], "what waits behind a queued message")
    taken = await session.send("now", agent="a", message_id="r", when_busy="reject")
    lab.same(taken.state, "waiting", "a message to a session that no run has")


@proves("F3", *NEEDS)
async def no_message_overtakes_one_that_was_sent_before(lab: Lab) -> None:
    from standfast._src.runs.api.runner import Runner

    session = lab.open()
    for number in range(3):
        await session.send(f"m{number}", agent="a", message_id=f"m{number}")
    await Runner.resume(_agent("hi"), "m1", session=session)
    wanted = ["m0", "m1", "m2", "assistant"]
    found = _kinds(await session.get_items())
    lab.expect(found in (wanted, ["m0", "m1", "assistant"]), f"the second of three that began left {found}")
    await _run(_agent("ho"), "own", session)
    said = [one for one in _kinds(await session.get_items()) if one != "assistant"]
    lab.same(said, ["m0", "m1", "m2", "own"], "messages that were begun in another order")


@proves("F4", *NEEDS)
async def a_refused_message_is_in_no_request_and_no_history(lab: Lab) -> None:
    from standfast._src.agents.guardrails import GuardrailFunctionOutput, InputGuardrail

    def judge(context: object, agent: object, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, "bad" in str(given))

    session, sender = lab.open(), lab.open()

    async def work() -> None:
        await sender.send("bad now", agent="a", message_id="b2")
        await sender.send("good now", agent="a", message_id="g2")

    await sender.send("bad before", agent="a", message_id="b1")
    await sender.send("good before", agent="a", message_id="g1")
    agent = _agent(_call(), "done", work=work, guardrails=[InputGuardrail(judge, name="polite")])
    result = await _run(agent, "go", session)
    lab.same(list(result.heard), ["g1", "g2"], "a run that was sent refused messages")
    told = ["good before", "go", "function_call", "function_call_output", "good now"]
    lab.same(_requests(agent)[-1], told, "the last request of that run")
    lab.same(_kinds(await session.get_items()), [*told, "assistant"], "the history of that run")
    for message_id in ("b1", "b2"):
        receipt = await session.receipt(message_id)
        lab.same((receipt.state, receipt.refused_by), ("refused", "polite"), "the receipt of a refused message")


@proves("F5", *NEEDS)
async def a_run_that_has_heard_a_message_is_saved(lab: Lab) -> None:
    session = lab.open()
    runs = session.run_store()
    await _run(_agent("hi"), "own", session)
    lab.same(len((await runs.list_runs())[0]), 0, "the saved runs after a run that heard nothing")
    await session.send("hello", agent="a", message_id="m")
    result = await _run(_agent("hi"), "own", session)
    found = {one.run_id: one.status for one in (await runs.list_runs())[0]}
    lab.same(found.get(result.run_id), "done", "the saved runs after one that heard a message")
