"""Outcome of a complete turn: a final output, another turn, or an error with a handler.

The order is the SDK's: a tool result declared final by the agent, a refusal, the last message, else another request. A
turn with a handoff never comes here.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from standfast._src.agents.agent import ToolsToFinalOutputResult
from standfast._src.agents.error_handlers import RunErrorData, RunErrorHandlerInput, read_handler_result
from standfast._src.agents.output_type import AgentOutputSchemaBase, output_schema_of
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import MaxTurnsExceeded, ModelBehaviorError, ModelRefusalError, UserError
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ItemHelpers, to_plain
from standfast._src.runs.engine.events import Conclude, Concluded
from standfast._src.runs.engine.request import view_items
from standfast._src.runs.engine.run import Conclusion, Entry, Run, Turn, evolve
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import RunScope
from standfast._src.runs.persistence.pending_items import UNSENT_REMEDY, unsent_note
from standfast._src.runs.steps.call_hooks import hook_context, observers
from standfast._src.runs.steps.call_lookup import tool_of
from standfast._src.runs.steps.run_guardrails import output_guardrails
from standfast._src.tools.function_tool import FunctionToolResult
from standfast._src.tools.local_tool import LocalTool

HandledKind = Literal["max_turns", "model_refusal", "invalid_final_output"]
HandledError = MaxTurnsExceeded | ModelRefusalError | ModelBehaviorError
Final = tuple[Any, Conclusion]
"""A final output, as the live value and as what the run keeps of it."""


async def perform_conclude(loop: Loop, scope: RunScope, effect: Conclude) -> None:
    """Find out what the turn means and tell the run."""
    run = loop.run
    agent = scope.graph.agent(run.progress.agent)
    found: Final | None
    # No reply belongs to this turn: the model was asked as often as it may be, and the last one wanted more.
    if effect.exhausted:
        error = MaxTurnsExceeded(
            f"the run used its {run.spec.max_turns} turns without a final output{unsent_note(run)}",
            "Raise max_turns, or handle it with error_handlers={'max_turns': ...}."
            + (f" {UNSENT_REMEDY} They are error.run_data.owed_items." if unsent_note(run) else ""),
        )
        with scope.enter_user_code():
            found = await _handled_or_raised(scope, run, "max_turns", error)
    else:
        assert run.turn is not None  # due() asks for a conclusion only of a complete turn
        if callable(agent.tool_use_behavior) and run.turn.calls:
            await loop.save()  # what the calls came to would be stored with the turn; this may take its time
        with scope.enter_user_code():
            found = await _find_final(scope, run, run.turn)
    if found is None:
        await loop.record(Concluded(effect.turn, Conclusion(final=False)), completes=effect)
        return
    value, conclusion = found
    scope.final_output = value
    if conclusion.entries:
        scope.show_entries(conclusion.entries)
    if scope.hooks is not None or agent.hooks is not None:
        if run.calls:
            await loop.save()
        await observers(loop, scope, agent, "on_agent_end", hook_context(scope), agent, value)
    # Where no guardrail judges the output the turn joins at once: one effect less for every run without guardrails.
    judged = not output_guardrails(scope, agent)
    await loop.record(Concluded(effect.turn, conclusion, judged), completes=effect)


async def _find_final(scope: RunScope, run: Run, turn: Turn) -> Final | None:
    if any(call.kind in ("tool", "agent", "unknown", "gone") for call in turn.calls):
        return await final_from_tools(scope, run, turn)
    # Only hosted approvals, or an ignored handoff: the model goes on from their answers.
    if turn.calls:
        return None
    message = next((one.item for one in reversed(turn.reply) if one.kind == "message_output_item"), None)
    # A provider's tool was at work, or only old calls were repeated: silence is no answer then.
    if message is None and turn.is_unanswered:
        return None
    refusal = ItemHelpers.extract_refusal(message) if message is not None else None
    if refusal is not None:
        return await _handled_or_raised(scope, run, "model_refusal", ModelRefusalError(refusal))
    return await final_from_text(scope, run, ItemHelpers.extract_text(message) if message is not None else None)


async def final_from_text(scope: RunScope, run: Run, text: str | None) -> Final | None:
    """Return the final output of a message, or None if the model must be asked again."""
    schema = _structure(scope, run)
    if schema is None:
        return text or "", Conclusion(final=True, output=text or "")
    if not text:
        empty = ModelBehaviorError(
            "the model gave no text for a structured output",
            "Handle it with error_handlers={'invalid_final_output': ...}.",
        )
        return await _call_error_handler(scope, run, "invalid_final_output", empty)
    try:
        return schema.validate_json(text), Conclusion(final=True, output=text)
    except ModelBehaviorError as invalid:
        error = invalid  # kept, not raised: a handler may turn it into an output first
    return await _handled_or_raised(scope, run, "invalid_final_output", error)


def _structure(scope: RunScope, run: Run) -> AgentOutputSchemaBase | None:
    """Return the output schema of the run's agent, or None for plain text."""
    schema = output_schema_of(scope.graph.agent(run.progress.agent).output_type)
    return None if schema is None or schema.is_plain_text() else schema


def restored_output(scope: RunScope, run: Run) -> Any:
    """Return the final output of a run ended in another process, converted from text to its agent's output type."""
    output, schema = run.progress.output, _structure(scope, run)
    if schema is None or not isinstance(output, str):
        return output
    try:
        return schema.validate_json(output)
    except ModelBehaviorError:
        return output  # a tool or a handler gave a text that only its own process understood


# --- tool results that end a run -------------------------------------------------------------------------------------


async def final_from_tools(scope: RunScope, run: Run, turn: Turn) -> Final | None:
    """Return the final output from the results of a turn's tools, or None if the model must be asked again."""
    agent, schema = scope.graph.agent(run.progress.agent), _structure(scope, run)
    behavior = agent.tool_use_behavior
    if behavior == "run_llm_again":
        return None
    results = _results(scope, await scope.agents.tools(agent), turn)
    if not results:
        return None
    if behavior == "stop_on_first_tool":
        chosen = results
    elif isinstance(behavior, dict):
        names = behavior.get("stop_at_tool_names", [])
        chosen = [one for one in results if one[1].tool.name in names or one[1].tool.qualified_name in names]
    elif callable(behavior):
        answer = await maybe_await(behavior(scope.wrapper, [result for _, result in results]))
        if not isinstance(answer, ToolsToFinalOutputResult):
            raise UserError(
                f"tool_use_behavior returned {describe_type(answer)}",
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


def _tool_final(value: object, schema: AgentOutputSchemaBase | None, calls: tuple[str, ...]) -> Final:
    if schema is None:
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


def _results(scope: RunScope, tools: dict[str, LocalTool], turn: Turn) -> list[tuple[str, FunctionToolResult]]:
    results = []
    for call in turn.calls:
        tool: Any = tool_of(tools, turn.item_of(call), call.name)
        # Outputs of free-form tools never end a run, as in the SDK: their text is meant for the model.
        if call.kind not in ("tool", "agent") or tool is None or not tool.may_end_run or not call.outputs:
            continue
        entry = call.outputs[0]
        item: Any = scope.run_item(entry if entry.agent else evolve(entry, agent=turn.agent))
        results.append((call.id, FunctionToolResult(tool=tool, output=item.output, run_item=item)))
    return results


# --- error handlers --------------------------------------------------------------------------------------------------


async def _handled_or_raised(scope: RunScope, run: Run, kind: HandledKind, error: HandledError) -> Final:
    """Return the output of the user's handler for this error; raise the error if there is none."""
    found = await _call_error_handler(scope, run, kind, error)
    if found is None:
        raise error
    return found


async def _call_error_handler(scope: RunScope, run: Run, kind: HandledKind, error: HandledError) -> Final | None:
    """Return the output of the user's handler for the error; None without a handler, or if the handler declines."""
    handler = (scope.arguments.error_handlers or {}).get(kind)
    if handler is None:
        return None
    agent = scope.graph.agent(run.progress.agent)
    # The reply too, though it is not history yet: a handler decides about that very reply.
    items = scope.run_items((*run.ledger, *(run.turn.reply if run.turn is not None else ())))
    data = RunErrorData(
        input=scope.given_input,
        new_items=items,
        history=view_items(run, scope.history),
        output=[item.to_input_item() for item in items],
        raw_responses=list(scope.responses),
        last_agent=agent,
    )
    given = RunErrorHandlerInput(error=error, context=scope.wrapper, run_data=data)
    wanted = read_handler_result(await maybe_await(handler(given)))
    if wanted is None:
        return None
    text, value = _checked_output(_structure(scope, run), wanted.final_output)
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    entry = Entry("message_output_item", scope.graph.key(agent), message)
    return value, Conclusion(final=True, output=text, entries=(entry,) if wanted.include_in_history else ())


def _checked_output(schema: AgentOutputSchemaBase | None, value: Any) -> tuple[str, Any]:
    """The value as text for history, and as the agent's output type."""
    if schema is None:
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
