"""Policy of a tool call, for text and voice alike: from the model's arguments to the output it reads.

The caller has decided that the call may run (`needs_approval` helps with that) and has saved that it begins. The steps,
in this order: input guardrails, start hooks, the tool with its timeout and failure policy, output guardrails, the
application's own data, end hooks. Nothing here starts a task for an async tool; a sync one runs in a thread that is
abandoned on cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.agents.context import NamedAgent, RunContextWrapper
from standfast._src.agents.hooks import AgentHooksBase, RunHooksBase, await_both, overridden
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import StandfastError, ToolTimeoutError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import call_output_item
from standfast._src.tools.local_tool import (
    LocalTool,
    ToolInvoker,
    default_tool_error_function,
    failure_text,
    timeout_text,
)
from standfast._src.tools.outputs import failure_output, model_output
from standfast._src.tools.refusal_texts import ToolErrorFormatter, ToolErrorFormatterArgs, format_error
from standfast._src.tools.tool_guardrails import (
    ToolInputGuardrailData,
    ToolInputGuardrailResult,
    ToolOutputGuardrailData,
    ToolOutputGuardrailResult,
    judge_call,
    judge_output,
)


@dataclass(slots=True)
class CallOutcome:
    """Outcome of a tool call."""

    output: Any
    """The tool's own value, or the text in its place."""

    item_output: str | list[Item]
    """The output as the model reads it."""

    input_results: list[ToolInputGuardrailResult] = field(default_factory=list)
    output_results: list[ToolOutputGuardrailResult] = field(default_factory=list)
    rejected: bool = False
    """True if an input guardrail prevented the call; no hook was called then."""

    custom_data: dict[str, Any] | None = None
    """Result of the tool's `custom_data_extractor`; never shown to a model."""

    error: Exception | None = None
    """The failure or timeout behind the output; for traces."""


class ToolCancelled(Exception):
    """Cancellation of a tool by itself: for a failure function this is a failure like any other."""


# --- whether a person must agree -------------------------------------------------------------------------------------


async def needs_approval(tool: LocalTool, ctx: RunContextWrapper[Any], arguments: str, call_id: str = "") -> bool:
    """Return whether a call needs an approval; in doubt True.

    A policy function is asked only about arguments it can understand: a JSON object with finite numbers, of which the
    tool gets exactly what the model wrote (C16). Everything else needs approval, and so does a call about which the
    function returned None, which is not an answer. Input guardrails decide, too: a call whose tool would certainly get
    other values than the guardrails check needs approval as well. Values of the application's own types
    (a date, an enum, a model) do not: a guardrail reads text, and text is their only form.
    """
    policy: Any = tool.needs_approval
    if isinstance(policy, bool):
        return policy or differs_from_guarded(tool, arguments)
    if not callable(policy):
        raise UserError(
            f"needs_approval of tool {tool.qualified_name!r} is {describe_type(policy)}", "Give a bool or a function."
        )
    parsed = tool.judged_input(arguments)
    if parsed is None or tool.prepare(arguments).kind != "exact":
        return True
    if not call_id and isinstance(ctx, ToolContext):
        call_id = ctx.tool_call_id
    answer: Any = await maybe_await(policy(ctx, parsed, call_id))
    return True if answer is None else bool(answer)


def function_decides(tool: LocalTool) -> bool:
    """Return whether the application's code decides about calls of a tool: a policy function or input guardrails."""
    return callable(tool.needs_approval) or bool(tool.tool_input_guardrails)


def differs_from_guarded(tool: LocalTool, arguments: str) -> bool:
    """Return whether the tool certainly gets other values than the input guardrails check."""
    return bool(tool.tool_input_guardrails) and tool.prepare(arguments).differs


async def judge_before_approval(
    tool: LocalTool, ctx: ToolContext[Any], *, agent: NamedAgent
) -> tuple[list[ToolInputGuardrailResult], str | None]:
    """Ask the input guardrails before a person is asked (`pre_approval_tool_input_guardrails`): results, rejection."""
    if not tool.tool_input_guardrails:
        return [], None
    return await judge_call(tool.tool_input_guardrails, ToolInputGuardrailData(ctx, agent))


# --- the call --------------------------------------------------------------------------------------------------------


async def invoke(
    tool: LocalTool,
    ctx: ToolContext[Any],
    arguments: str,
    *,
    agent: NamedAgent | None = None,
    run_hooks: RunHooksBase[Any, Any] | None = None,
    agent_hooks: AgentHooksBase[Any, Any] | None = None,
    formatter: ToolErrorFormatter | None = None,
    again: bool = False,
) -> CallOutcome:
    """Run a tool call to its end.

    Raises errors that end a run: a tripwire, a failure of a tool without a failure function, a `ToolTimeoutError` if
    configured, a hook's error. `formatter` is the run's `tool_error_formatter`; it may replace the default failure
    text. `again` continues a call that was entered before (an agent's, which waited for a person): its guardrails and
    start hooks have already run.
    """
    agent = ctx.agent if agent is None else agent
    input_results: list[ToolInputGuardrailResult] = []
    if tool.tool_input_guardrails and not again:
        input_results, rejection = await judge_call(tool.tool_input_guardrails, ToolInputGuardrailData(ctx, agent))
        if rejection is not None:
            read_as = failure_output(tool, ctx.tool_call, rejection)
            return CallOutcome(rejection, read_as, input_results, rejected=True)
    if (run_hooks is not None or agent_hooks is not None) and not again:
        await _tell("on_tool_start", run_hooks, agent_hooks, ctx, agent, tool)
    output, error = await _output_of(tool, ctx, arguments, formatter)
    output_results: list[ToolOutputGuardrailResult] = []
    stands_in = error is not None
    if tool.tool_output_guardrails:
        data = ToolOutputGuardrailData(ctx, agent, output)
        output_results, judged = await judge_output(tool.tool_output_guardrails, data)
        output, stands_in = judged, stands_in or judged is not output
    read_as = (failure_output if stands_in else model_output)(tool, ctx.tool_call, output)
    outcome = CallOutcome(output, read_as, input_results, output_results, error=error)
    if tool.custom_data_extractor is not None:
        outcome.custom_data = await _custom_data(tool, ctx, outcome)
    if run_hooks is not None or agent_hooks is not None:
        await _tell("on_tool_end", run_hooks, agent_hooks, ctx, agent, tool, output)
    return outcome


async def _tell(
    name: str,
    run_hooks: RunHooksBase[Any, Any] | None,
    agent_hooks: AgentHooksBase[Any, Any] | None,
    ctx: ToolContext[Any],
    agent: NamedAgent,
    tool: LocalTool,
    *result: object,
) -> None:
    """Call the hooks of a name. An error of a hook ends the run as a UserError: it is the program's own code."""
    of_run, of_agent = overridden(run_hooks, name), overridden(agent_hooks, name)
    arguments = (ctx, agent, tool, *result)
    try:
        await await_both(
            (lambda: of_run(*arguments)) if of_run else None, (lambda: of_agent(*arguments)) if of_agent else None
        )
    except StandfastError:
        raise
    except Exception as error:
        raise UserError(
            f"the hook {name} of tool {tool.qualified_name!r} raised {type(error).__name__}: {error}",
            "Catch it in the hook: what a hook raises ends the run.",
        ) from error


async def _output_of(
    tool: LocalTool, ctx: ToolContext[Any], arguments: str, formatter: ToolErrorFormatter | None
) -> tuple[Any, Exception | None]:
    """Return the tool's result and None, or the text of its failure or timeout policy and the error."""
    run = tool.runner()
    try:
        if tool.timeout_seconds is None:
            return await run(ctx, arguments), None
        finished, result = await _within(tool.timeout_seconds, run, ctx, arguments)
    except Exception as error:
        return await _format_failure(tool, ctx, error, formatter), error
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if tool.failure_error_function is None or (task is not None and task.cancelling()):
            raise  # the call was cancelled from outside, or the tool wants its own failures raised
        itself = ToolCancelled(str(cancelled) or "the tool cancelled itself")
        return await _format_failure(tool, ctx, itself, formatter), itself
    if finished:
        return result, None
    late = ToolTimeoutError(tool.qualified_name, tool.timeout_seconds)
    return await _timed_out(tool, ctx, late), late


async def _within(seconds: float, run: ToolInvoker, ctx: ToolContext[Any], arguments: str) -> tuple[bool, Any]:
    """Run a call with a deadline; return whether it finished in time, and its result. A late result or error does not
    count.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            result = await run(ctx, arguments)
    except Exception:
        if not deadline.expired():
            raise  # the tool's own failure, which may well be a TimeoutError
        return False, None
    return (False, None) if deadline.expired() else (True, result)


async def _timed_out(tool: LocalTool, ctx: ToolContext[Any], error: ToolTimeoutError) -> str:
    if tool.timeout_behavior == "raise_exception":
        raise error
    if tool.timeout_error_function is None:
        return timeout_text(tool.qualified_name, error.timeout_seconds)
    return await maybe_await(tool.timeout_error_function(ctx, error))


async def _format_failure(
    tool: LocalTool, ctx: ToolContext[Any], error: Exception, formatter: ToolErrorFormatter | None
) -> str:
    text = await failure_text(tool, ctx, error)
    if formatter is None or tool.failure_error_function is not default_tool_error_function:
        return text
    return await format_error(
        formatter,
        ToolErrorFormatterArgs("tool_exception", tool.error_kind, tool.name, ctx.tool_call_id, text, ctx, error),
    )


async def _custom_data(tool: LocalTool, ctx: ToolContext[Any], outcome: CallOutcome) -> dict[str, Any] | None:
    call = ctx.tool_call if ctx.tool_call is not None else {"call_id": ctx.tool_call_id}
    raw_item = call_output_item(call, "") | {"output": outcome.item_output}
    data = await tool.custom_data(ctx, outcome.output, raw_item)
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise UserError(
            f"the custom_data_extractor of tool {tool.qualified_name!r} returned {describe_type(data)}",
            "Return a mapping of JSON values, or None.",
        )
    return dict(data)
