"""Asking guardrails. What they look at is the same in both modes: the input as it was given, or the live output."""

from __future__ import annotations

from typing import Any

from standfast.agents.guardrails import InputGuardrail, OutputGuardrail, judge
from standfast.agents.run_config import OutputGuardrailBlockedMessageArgs
from standfast.driver.loop import Driver
from standfast.driver.run_scope import Live, logger
from standfast.engine.advance import WITHHELD
from standfast.engine.events import Judge, Judged
from standfast.engine.run import Run
from standfast.ground.errors import InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered
from standfast.ground.jsonvalue import copy_json
from standfast.words.items import to_plain


def input_guardrails(live: Live, agent: Any) -> list[InputGuardrail[Any]]:
    """The agent's and the run's, in that order."""
    return [*agent.input_guardrails, *(live.config.input_guardrails or ())]


def output_guardrails(live: Live, agent: Any) -> list[OutputGuardrail[Any]]:
    """The agent's and the run's, in that order."""
    return [*agent.output_guardrails, *(live.config.output_guardrails or ())]


async def perform_judge(driver: Driver, live: Live, effect: Judge) -> None:
    """Ask the guardrails of this stage and tell the verdict."""
    run = driver.run
    agent = live.graph.agent(run.progress.agent)
    if effect.stage == "output":
        await _judge_output(driver, live, effect, agent)
    else:
        await _judge_input(driver, live, effect, agent, run)


async def _judge_input(driver: Driver, live: Live, effect: Judge, agent: Any, run: Run) -> None:
    guardrails = input_guardrails(live, agent)
    more = False
    given: Any
    if effect.stage == "staged":
        given = [copy_json(item) for item in run.progress.staged]
    else:
        given = live.given_input if isinstance(live.given_input, str) else copy_json(live.given_input)
        if run.spec.owner.kind != "conversation" and run.progress.verdict == "blocking":
            blocking = [guardrail for guardrail in guardrails if not guardrail.run_in_parallel]
            more = len(blocking) < len(guardrails)
            guardrails = blocking
        elif run.spec.owner.kind != "conversation":
            guardrails = [guardrail for guardrail in guardrails if guardrail.run_in_parallel]
    results, tripped = (
        await judge(guardrails, lambda one: _asked(live, agent, effect.stage, one, agent, given, live.wrapper))
        if guardrails
        else ([], None)
    )
    live.input_results += results
    if tripped is not None:
        live.tripped = InputGuardrailTripwireTriggered(tripped)
    await driver.tell(
        Judged(effect.stage, tuple(_as_json(result, effect.stage) for result in results), tripped is not None, more),
        effect=effect,
    )


async def _judge_output(driver: Driver, live: Live, effect: Judge, agent: Any) -> None:
    guardrails = output_guardrails(live, agent)
    output = live.final_output
    results, tripped = (
        await judge(guardrails, lambda one: _asked(live, agent, "output", one, live.wrapper, agent, output))
        if guardrails
        else ([], None)
    )
    live.output_results += results
    withheld = ""
    if tripped is not None:
        live.tripped = OutputGuardrailTripwireTriggered(tripped)
        live.final_output = None
        withheld = _blocked_message(live, agent, tripped.guardrail.get_name())
    found = tuple(_as_json(result, "output") for result in results)
    await driver.tell(Judged("output", found, tripped is not None, withheld=withheld), effect=effect)


def _blocked_message(live: Live, agent: Any, guardrail_name: str) -> str:
    """What stands in the place of a refused tool result; the usual text if a function declines or fails."""
    wanted = live.config.output_guardrail_blocked_message
    if callable(wanted):
        try:
            wanted = wanted(OutputGuardrailBlockedMessageArgs(WITHHELD, guardrail_name, agent, live.wrapper))
        except Exception as error:
            # The verdict stands whatever the text does: the result must not be stored because a formatter failed.
            logger.warning("output_guardrail_blocked_message raised %s; the usual text is used", type(error).__name__)
            wanted = None
    return wanted if isinstance(wanted, str) and wanted else WITHHELD


async def _asked(live: Live, agent: Any, stage: str, guardrail: Any, *arguments: Any) -> Any:
    name = guardrail.get_name()
    with live.span("guardrail", name, agent=agent, stage=stage, guardrail=name) as span:
        result = await guardrail.run(*arguments)
        if span is not None:
            span.note(tripped=bool(result.output.tripwire_triggered))
    return result


def _as_json(result: Any, stage: str) -> dict[str, Any]:
    info = to_plain(result.output.output_info)
    return {
        "stage": stage,
        "guardrail": result.guardrail.get_name(),
        "tripped": bool(result.output.tripwire_triggered),
        "info": info if _is_json(info) else repr(info),
    }


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float | bool)
