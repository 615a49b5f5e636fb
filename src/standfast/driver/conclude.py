"""What a complete turn means: a final output, another turn, or an error that a handler may turn into an output.

The order is the SDK's: a tool's result that the agent declares final, a refusal, the last message, else the model is
asked again. A turn that hands over never comes here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any, Literal

from standfast.agents.agent import Agent, ToolsToFinalOutputResult
from standfast.agents.error_handlers import RunErrorData, RunErrorHandlerInput, read_handler_result
from standfast.agents.output_type import AgentOutputSchemaBase
from standfast.driver.agent_offer import output_schema
from standfast.driver.guardrails import output_guardrails
from standfast.driver.hooks import hook_context, hook_pair, observing
from standfast.driver.loop import Loop
from standfast.driver.model_call import view_of
from standfast.driver.run_scope import RunScope
from standfast.driver.unsent import REMEDY, unsent_note
from standfast.engine.events import Conclude, Concluded
from standfast.engine.run import Conclusion, Entry, Run, Turn
from standfast.ground.errors import MaxTurnsExceeded, ModelBehaviorError, ModelRefusalError, UserError
from standfast.tools.function import FunctionTool, FunctionToolResult
from standfast.words.items import ItemHelpers, to_plain

HandledKind = Literal["max_turns", "model_refusal", "invalid_final_output"]
HandledError = MaxTurnsExceeded | ModelRefusalError | ModelBehaviorError


async def perform_conclude(loop: Loop, scope: RunScope, effect: Conclude) -> None:
    """Find out what the turn means and tell the run."""
    run = loop.run
    agent = scope.graph.agent(run.progress.agent)
    schema = output_schema(agent)
    # No reply belongs to this turn: the model was asked as often as it may be, and the last one wanted more.
    if effect.exhausted:
        error = MaxTurnsExceeded(
            f"the run used its {run.spec.max_turns} turns without a final output{unsent_note(run)}",
            "Raise max_turns, or handle it with error_handlers={'max_turns': ...}."
            + (f" {REMEDY} They are error.run_data.owed_items." if unsent_note(run) else ""),
        )
        found = await _handled(scope, run, agent, schema, "max_turns", error)
        if found is None:
            raise error
    else:
        assert run.turn is not None  # due() asks for a conclusion only of a complete turn
        if callable(agent.tool_use_behavior) and run.turn.calls:
            await loop.save()  # what the calls came to would be stored with the turn; this may take its time
        found = await _meaning(scope, run, run.turn, agent, schema)
    if found is None:
        await loop.record(Concluded(effect.turn, Conclusion(final=False)), completes=effect)
        return
    value, conclusion = found
    scope.final_output = value
    if conclusion.entries:
        scope.show_entries(conclusion.entries)
    if scope.hooks is not None or agent.hooks is not None:
        if run.turn is not None and run.turn.calls:
            await loop.save()
        async with observing(loop):
            await hook_pair(scope, agent, "on_agent_end", hook_context(scope), agent, value)
    # Where nobody judges the output the turn joins at once: one effect less for every run without guardrails.
    judged = not output_guardrails(scope, agent)
    await loop.record(Concluded(effect.turn, conclusion, judged), completes=effect)


async def _meaning(
    scope: RunScope, run: Run, turn: Turn, agent: Agent[Any], schema: AgentOutputSchemaBase | None
) -> tuple[Any, Conclusion] | None:
    if any(call.kind in ("tool", "agent", "unknown") for call in turn.calls):
        return await final_from_tools(scope, run, turn, agent, schema)
    # Only hosted approvals, or an ignored handoff: the model goes on from their answers.
    if turn.calls:
        return None
    message = _last_message(turn)
    # A provider's tool was at work, or only old calls were repeated: silence is no answer then.
    if message is None and turn.is_unanswered:
        return None
    refusal = ItemHelpers.extract_refusal(message) if message is not None else None
    if refusal is not None:
        error = ModelRefusalError(refusal)
        found = await _handled(scope, run, agent, schema, "model_refusal", error)
        if found is None:
            raise error
        return found
    text = ItemHelpers.extract_text(message) if message is not None else None
    return await final_from_text(scope, run, agent, schema, text)


async def final_from_text(
    scope: RunScope, run: Run, agent: Agent[Any], schema: AgentOutputSchemaBase | None, text: str | None
) -> tuple[Any, Conclusion] | None:
    """The final output a message stands for; None where the model must be asked again."""
    if schema is None or schema.is_plain_text():
        return text or "", Conclusion(final=True, output=text or "")
    error: ModelBehaviorError | None = None
    if text:
        try:
            return schema.validate_json(text), Conclusion(final=True, output=text)
        # Kept, not raised: a handler may turn it into an output first.
        except ModelBehaviorError as invalid:
            error = invalid
    empty = ModelBehaviorError(
        "the model gave no text for a structured output", "Handle it with error_handlers={'invalid_final_output': ...}."
    )
    found = await _handled(scope, run, agent, schema, "invalid_final_output", error or empty)
    if found is None and error is not None:
        raise error
    return found


def restored_output(scope: RunScope, run: Run) -> Any:
    """The final output of a run that ended in another process, as its agent's output type where it was text."""
    output, schema = run.progress.output, output_schema(scope.graph.agent(run.progress.agent))
    if schema is None or schema.is_plain_text() or not isinstance(output, str):
        return output
    try:
        return schema.validate_json(output)
    except ModelBehaviorError:
        return output  # a tool or a handler gave a text that only its own process understood


def _last_message(turn: Turn) -> dict[str, Any] | None:
    for entry in reversed(turn.reply):
        if entry.kind == "message_output_item":
            return entry.item
    return None


# --- tool results that end a run -------------------------------------------------------------------------------------


async def final_from_tools(
    scope: RunScope, run: Run, turn: Turn, agent: Agent[Any], schema: AgentOutputSchemaBase | None
) -> tuple[Any, Conclusion] | None:
    """The final output that the results of a turn's tools stand for; None where the model must be asked again."""
    behavior = agent.tool_use_behavior
    if behavior == "run_llm_again":
        return None
    results = _results(scope, await scope.agents.tools(agent), turn)
    if not results:
        return None
    if behavior == "stop_on_first_tool":
        chosen = results[:1]
    elif isinstance(behavior, dict):
        names = behavior.get("stop_at_tool_names", [])
        chosen = [pair for pair in results if _stops(pair[1].tool, names)][:1]
    elif callable(behavior):
        answer = behavior(scope.wrapper, [result for _, result in results])
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, ToolsToFinalOutputResult):
            raise UserError(
                f"tool_use_behavior returned a {type(answer).__name__}",
                "Return ToolsToFinalOutputResult(is_final_output=..., final_output=...).",
            )
        if not answer.is_final_output:
            return None
        return _tool_final(answer.final_output, schema, tuple(call_id for call_id, _ in results))
    else:
        raise UserError(
            f"tool_use_behavior {behavior!r} is not known",
            "Use 'run_llm_again', 'stop_on_first_tool', {'stop_at_tool_names': [...]} or a function.",
        )
    if not chosen:
        return None
    call_id, result = chosen[0]
    return _tool_final(result.output, schema, (call_id,))


def _tool_final(value: object, schema: AgentOutputSchemaBase | None, calls: tuple[str, ...]) -> tuple[Any, Conclusion]:
    if schema is None or schema.is_plain_text():
        value = str(value)
    plain = to_plain(value)
    try:
        return value, Conclusion(final=True, output=_json_or_text(plain), calls=calls)
    # A value that holds itself has no JSON; its text stands for it in the saved run.
    except RecursionError:
        return value, Conclusion(final=True, output=str(value), calls=calls)


def _json_or_text(value: object) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_or_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json_or_text(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _results(scope: RunScope, tools: dict[str, FunctionTool], turn: Turn) -> list[tuple[str, FunctionToolResult]]:
    results = []
    for call in turn.calls:
        tool = tools.get(call.name)
        if call.kind not in ("tool", "agent") or tool is None or not call.outputs:
            continue
        item: Any = scope.run_item(_owned(call.outputs[0], turn.agent))
        results.append((call.id, FunctionToolResult(tool=tool, output=item.output, run_item=item)))
    return results


def _owned(entry: Entry, agent: str) -> Entry:
    return entry if entry.agent else Entry(entry.kind, agent, entry.item, entry.extra)


def _stops(tool: FunctionTool, names: Sequence[str]) -> bool:
    return tool.name in names or tool.qualified_name in names


# --- error handlers --------------------------------------------------------------------------------------------------


async def _handled(
    scope: RunScope,
    run: Run,
    agent: Agent[Any],
    schema: AgentOutputSchemaBase | None,
    kind: HandledKind,
    error: HandledError,
) -> tuple[Any, Conclusion] | None:
    """The output that the user's handler for this error gives; None if there is none, or it declines."""
    handler = (scope.arguments.error_handlers or {}).get(kind)
    if handler is None:
        return None
    turn = run.turn
    # The reply too, though it is not history yet: a handler decides about that very reply.
    entries = [*run.ledger, *(turn.reply if turn is not None else ())]
    items = scope.run_items(entries)
    answer = handler(
        RunErrorHandlerInput(
            error=error,
            context=scope.wrapper,
            run_data=RunErrorData(
                input=scope.given_input,
                new_items=items,
                history=view_of(scope, run),
                output=[item.to_input_item() for item in items],
                raw_responses=list(scope.responses),
                last_agent=agent,
            ),
        )
    )
    if inspect.isawaitable(answer):
        answer = await answer
    wanted = read_handler_result(answer)
    if wanted is None:
        return None
    value, in_history = wanted.final_output, wanted.include_in_history
    text, value = _checked_output(schema, value)
    entry = Entry(
        "message_output_item",
        scope.graph.key(agent),
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        },
    )
    return value, Conclusion(final=True, output=text, entries=(entry,) if in_history else ())


def _checked_output(schema: AgentOutputSchemaBase | None, value: Any) -> tuple[str, Any]:
    """The value as text for history, and as the agent's output type."""
    if schema is None or schema.is_plain_text():
        # The value itself is the output, as the handler gave it; history holds text.
        return value if isinstance(value, str) else json.dumps(to_plain(value), default=str), value
    text = schema.dump_json(value) if hasattr(schema, "dump_json") else value
    if not isinstance(text, str):
        raise UserError("an error handler's output cannot be written as JSON text", "Return JSON text for this schema.")
    try:
        return text, schema.validate_json(text)
    except ModelBehaviorError as error:
        raise UserError(
            f"an error handler's output does not fit the agent's output type: {error.what}",
            "Return a value of the agent's output_type.",
        ) from error
