"""Guardrails of a run. Both modes judge the same data: the unchanged input, or the live output."""

from __future__ import annotations

from typing import Any, TypeVar

from standfast._src.agents.agent import Agent
from standfast._src.agents.guardrails import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
    judge,
)
from standfast._src.agents.run_config import OutputGuardrailBlockedMessageArgs
from standfast._src.base.errors import (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    StandfastError,
)
from standfast._src.base.json_values import Item, copy_json
from standfast._src.items.texts_for_models import model_text
from standfast._src.runs.engine.events import Judge, Judged
from standfast._src.runs.engine.run import Run
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import GuardrailResults, RunScope, logger
from standfast._src.tools.tool_call import json_or_repr
from standfast._src.tools.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailResult,
)

G = TypeVar("G")


def input_guardrails(scope: RunScope, agent: Agent[Any]) -> list[InputGuardrail[Any]]:
    """The agent's and the run's, in that order."""
    return [*agent.input_guardrails, *(scope.config.input_guardrails or ())]


def output_guardrails(scope: RunScope, agent: Agent[Any]) -> list[OutputGuardrail[Any]]:
    """The agent's and the run's, in that order."""
    return [*agent.output_guardrails, *(scope.config.output_guardrails or ())]


async def perform_judge(loop: Loop, scope: RunScope, effect: Judge) -> None:
    """Ask the guardrails of this stage and tell the verdict."""
    run, stage, more, withheld = loop.run, effect.stage, False, ""
    agent = scope.graph.agent(run.progress.agent)
    guardrails: list[Any]
    said: list[Any]
    results: list[Any] = []
    turn = max(run.progress.turns, 1)
    if stage == "output":
        guardrails, said = output_guardrails(scope, agent), scope.results.of_output
        given: tuple[Any, ...] = (scope.wrapper, agent, scope.final_output)
        if guardrails and run.calls:
            await loop.save()  # what its calls came to would be stored with the turn; a verdict may take its time
    else:
        (guardrails, more), said = _input_guardrails_now(scope, run, agent, stage), scope.results.of_input
        shown = run.progress.staged if stage == "staged" else scope.given_input
        given = agent, shown if isinstance(shown, str) else [copy_json(item) for item in shown], scope.wrapper

    async def ask(guardrail: Any) -> Any:
        name = guardrail.get_name()
        asked = scope.span("guardrail", name, agent=agent, stage=stage, guardrail=name, turn=turn)
        with scope.enter_user_code(), asked as span:
            result = await guardrail.run(*given)
            if span is not None:
                span.note(tripped=bool(result.output.tripwire_triggered))
        return result

    try:
        tripped = await judge(guardrails, ask, results) if guardrails else None
    finally:
        said += results
    if tripped is not None and stage == "output":
        scope.tripped = OutputGuardrailTripwireTriggered(tripped)
        # No caller may get what was refused, not even through the result of a run that raised.
        scope.final_output = None
        withheld = _blocked_message(scope, agent, tripped.guardrail.get_name())
    elif tripped is not None:
        scope.tripped = InputGuardrailTripwireTriggered(tripped)
    found = tuple(_as_json(result, stage) for result in results)
    await loop.record(Judged(stage, found, tripped is not None, more, withheld), completes=effect)


def _input_guardrails_now(
    scope: RunScope, run: Run, agent: Agent[Any], stage: str
) -> tuple[list[InputGuardrail[Any]], bool]:
    """Return the guardrails for the input now, and True if more guardrails run beside the model."""
    guardrails = input_guardrails(scope, agent)
    # Under a server's conversation all of them block (D10), so that one question answers for all.
    # Of a message too: refused, it is in no request (F4).
    if stage == "staged" or run.spec.owner.kind == "conversation" or run.spec.message is not None:
        return guardrails, False
    is_blocking = run.progress.verdict == "blocking"
    now = [guardrail for guardrail in guardrails if bool(guardrail.run_in_parallel) != is_blocking]
    return now, is_blocking and len(now) < len(guardrails)


def _blocked_message(scope: RunScope, agent: Agent[Any], guardrail_name: str) -> str:
    """Return the text in place of a refused tool result; the usual text if a function declines or fails."""
    wanted, usual = scope.config.output_guardrail_blocked_message, model_text("output_withheld")
    if callable(wanted):
        try:
            wanted = wanted(OutputGuardrailBlockedMessageArgs(usual, guardrail_name, agent, scope.wrapper))
        except Exception as error:
            # The verdict stands whatever the text does: the result must not be stored because a formatter failed.
            logger.warning("output_guardrail_blocked_message raised %s; the usual text is used", type(error).__name__)
            wanted = None
    return wanted if isinstance(wanted, str) and wanted else usual


def _as_json(result: InputGuardrailResult | OutputGuardrailResult, stage: str) -> Item:
    found: Item = {
        "stage": stage,
        "guardrail": result.guardrail.get_name(),
        "tripped": bool(result.output.tripwire_triggered),
        "info": json_or_repr(result.output.output_info),
    }
    if isinstance(result, OutputGuardrailResult):
        found["agent"] = result.agent.name
    return found


# --- after a resume --------------------------------------------------------------------------------------------------


def restored_results(scope: RunScope, run: Run, earlier: GuardrailResults | None = None) -> GuardrailResults:
    """Return guardrail results from before the save as their own objects; those of `earlier`, where known.

    A guardrail is known by its name. A missing guardrail is replaced by one of its name that cannot be called. Its
    `output_info` is the saved JSON.
    """
    found = GuardrailResults()
    agents = scope.graph.agents() if len(run.results) else []
    tools = [tool for agent in agents for tool in agent.tools]
    for one in run.results:
        name, info = str(one.get("guardrail")), one.get("info")
        verdict = GuardrailFunctionOutput(info, bool(one.get("tripped")))
        said = ToolGuardrailFunctionOutput(info, one.get("behavior") or {"type": "allow"})
        match one.get("stage"):
            case "tool_input":
                known = [guard for tool in tools for guard in getattr(tool, "tool_input_guardrails", None) or ()]
                found.of_tool_input.append(
                    ToolInputGuardrailResult(_find_guardrail(known, name, ToolInputGuardrail), said)
                )
            case "tool_output":
                known = [guard for tool in tools for guard in getattr(tool, "tool_output_guardrails", None) or ()]
                found.of_tool_output.append(
                    ToolOutputGuardrailResult(_find_guardrail(known, name, ToolOutputGuardrail), said)
                )
            case "output":
                agent = scope.graph.agent(run.progress.agent)
                guardrail = _find_guardrail(output_guardrails(scope, agent), name, OutputGuardrail)
                found.of_output.append(OutputGuardrailResult(guardrail, run.progress.output, agent, verdict))
            case _:
                known = [guard for agent in agents for guard in input_guardrails(scope, agent)]
                found.of_input.append(InputGuardrailResult(_find_guardrail(known, name, InputGuardrail), verdict))
    if earlier is not None:
        # The very objects, but only as many as this state of the run knows: the run may have gone on since.
        for kind in ("of_input", "of_output", "of_tool_input", "of_tool_output"):
            objects, made = getattr(earlier, kind), getattr(found, kind)
            made[: len(objects)] = objects[: len(made)]
    return found


def _find_guardrail(known: list[Any], name: str, kind: type[G]) -> G:
    for guardrail in known:
        if guardrail.get_name() == name:
            same: G = guardrail
            return same
    # every kind of guardrail is made of a function and a name
    return kind(_raise_missing_guardrail, name=name)  # type: ignore[call-arg]


def _raise_missing_guardrail(*arguments: object) -> Any:
    raise StandfastError(
        "this guardrail was not there when the run was resumed", "Resume with the agents it began with."
    )
