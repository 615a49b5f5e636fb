"""The policy of one call: order, approvals, failures, timeouts, cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.agents.context import ChildPaused, RunContextWrapper
from standfast._src.agents.hooks import AgentHooks, RunHooks
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import StandfastError, ToolInputGuardrailTripwireTriggered, ToolTimeoutError, UserError
from standfast._src.items.tool_outputs import ToolOutputImage
from standfast._src.tools.function_tool import FunctionTool, FunctionToolCustomDataContext, function_tool
from standfast._src.tools.invocation import ToolCancelled, invoke, judge_before_approval, needs_approval
from standfast._src.tools.refusal_texts import (
    REJECTED,
    ToolErrorFormatterArgs,
    format_error,
    rejection_text,
    unknown_tool_text,
)
from standfast._src.tools.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
)

FOREVER_S = 3600.0
SOON_S = 0.01


def context(**extra: Any) -> ToolContext[Any]:
    return ToolContext("app", tool_name="t", tool_call_id="c1", tool_arguments="{}", agent="agent", **extra)


@function_tool
async def echo(word: str) -> str:
    return word


# --- order -----------------------------------------------------------------------------------------------------------


async def test_everything_happens_in_its_order():
    """§1.9.3: input guardrails, start hooks, the tool, output guardrails, custom data, end hooks."""
    log: list[Any] = []

    def before(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        log.append(("input guardrail", data.agent))
        return ToolGuardrailFunctionOutput.allow("in")

    def after(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        log.append(("output guardrail", data.output))
        return ToolGuardrailFunctionOutput.reject_content("replaced", "out")

    def extract(data: FunctionToolCustomDataContext) -> dict[str, Any]:
        log.append(("custom data", data.output, data.raw_item["output"], data.raw_item["call_id"]))
        return {"kept": True}

    class OfRun(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            log.append(("run start", type(context), agent, tool.name))

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            log.append(("run end", result))

    class OfAgent(AgentHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            log.append(("agent start",))

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            log.append(("agent end", result))

    @function_tool(
        tool_input_guardrails=[ToolInputGuardrail(before)],
        tool_output_guardrails=[ToolOutputGuardrail(after)],
        custom_data_extractor=extract,
    )
    async def tool() -> str:
        log.append(("tool",))
        return "original"

    outcome = await invoke(tool, context(), "", run_hooks=OfRun(), agent_hooks=OfAgent())
    assert log == [
        ("input guardrail", "agent"),
        ("run start", ToolContext, "agent", "tool"),
        ("agent start",),
        ("tool",),
        ("output guardrail", "original"),
        ("custom data", "replaced", "replaced", "c1"),
        ("run end", "replaced"),
        ("agent end", "replaced"),
    ]
    assert (outcome.output, outcome.item_output, outcome.rejected) == ("replaced", "replaced", False)
    assert outcome.custom_data == {"kept": True}
    assert [result.output.output_info for result in outcome.input_results] == ["in"]
    assert [result.output.output_info for result in outcome.output_results] == ["out"]


async def test_a_rejected_call_runs_nothing_and_tells_no_hook():
    ran: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            ran.append("hook")

    def refuse(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("not like that")

    @function_tool(tool_input_guardrails=[ToolInputGuardrail(refuse)])
    async def tool() -> None:
        ran.append("tool")

    outcome = await invoke(tool, context(), "", run_hooks=Hooks())
    assert (outcome.output, outcome.item_output, outcome.rejected) == ("not like that", "not like that", True)
    assert ran == []
    assert (await judge_before_approval(tool, context(), agent="agent"))[1] == "not like that"
    assert await judge_before_approval(echo, context(), agent="agent") == ([], None)


async def test_a_tripwire_of_a_tool_ends_the_run():
    def trip(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception()

    tool = function_tool(echo.__wrapped__, tool_input_guardrails=[ToolInputGuardrail(trip)])
    with pytest.raises(ToolInputGuardrailTripwireTriggered):
        await invoke(tool, context(), '{"word": "x"}')


@pytest.mark.parametrize("kind", ["run_hooks", "agent_hooks"])
async def test_a_hook_that_raises_fails_the_call(kind: str):
    class OfRun(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            raise ZeroDivisionError

    class OfAgent(AgentHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            raise ZeroDivisionError

    hooks: Any = {"run_hooks": OfRun(), "agent_hooks": OfAgent()}
    with pytest.raises(UserError, match="ZeroDivisionError"):
        await invoke(echo, context(), '{"word": "x"}', **{kind: hooks[kind]})
    with pytest.raises(UserError, match="ZeroDivisionError"):
        await invoke(echo, context(), '{"word": "x"}', **hooks)


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("text", "text"),
        ({"a": 1}, "{'a': 1}"),
        (None, "None"),
        (ToolOutputImage(image_url="http://x"), [{"type": "input_image", "image_url": "http://x"}]),
    ],
)
async def test_the_native_value_is_kept_beside_what_the_model_reads(returned: Any, shown: Any):
    @function_tool
    async def tool() -> Any:
        return returned

    outcome = await invoke(tool, context(), "")
    assert outcome.output is returned
    assert outcome.item_output == shown


async def test_custom_data_must_be_a_mapping_and_may_be_made_later():
    async def extract(data: Any) -> Any:
        await asyncio.sleep(0)
        return None

    def wrong(data: Any) -> Any:
        return 3

    assert (
        await invoke(function_tool(echo.__wrapped__, custom_data_extractor=extract), context(), '{"word": "x"}')
    ).custom_data is None
    with pytest.raises(UserError, match="custom_data_extractor"):
        await invoke(function_tool(echo.__wrapped__, custom_data_extractor=wrong), context(), '{"word": "x"}')


# --- where it runs ---------------------------------------------------------------------------------------------------


async def test_an_async_tool_runs_in_the_callers_own_task():
    """One call costs no task."""

    @function_tool
    async def where() -> Any:
        return asyncio.current_task()

    @function_tool(timeout=FOREVER_S)
    async def limited() -> Any:
        return asyncio.current_task()

    assert (await invoke(where, context(), "")).output is asyncio.current_task()
    assert (await invoke(limited, context(), "")).output is asyncio.current_task()


async def test_a_sync_tool_runs_in_a_thread_with_the_callers_context():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")

    @function_tool
    def where() -> Any:
        seen = variable.get()
        variable.set("changed in the thread")
        return threading.current_thread(), seen

    thread, seen = (await invoke(where, context(), "")).output
    assert thread is not threading.current_thread()
    assert seen == "seen"
    assert variable.get() == "seen"


async def test_a_sync_function_that_returns_an_awaitable_is_awaited():
    async def later() -> str:
        return "later"

    @function_tool
    def tool() -> Any:
        return later()

    assert (await invoke(tool, context(), "")).output == "later"


# --- failures --------------------------------------------------------------------------------------------------------


async def test_the_model_is_told_what_went_wrong_so_that_it_can_react():
    @function_tool
    async def broken() -> None:
        raise ValueError("no such city")

    assert (await invoke(broken, context(), "")).output == "The tool failed: no such city"
    said = (await invoke(echo, context(), '{"word": 3}')).output
    assert "word: Input should be a valid string" in said


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failure_function_of_the_tool_decides_what_is_said(is_async: bool):
    async def later(ctx: RunContextWrapper[Any], error: Exception) -> str:
        return f"{ctx.context}: {type(error).__name__}"

    def now(ctx: RunContextWrapper[Any], error: Exception) -> str:
        return f"{ctx.context}: {type(error).__name__}"

    @function_tool(failure_error_function=later if is_async else now)
    def broken() -> None:
        raise KeyError("k")

    assert (await invoke(broken, context(), "")).output == "app: KeyError"


async def test_without_a_failure_function_the_run_ends():
    class OurOwn(StandfastError):
        pass

    @function_tool(failure_error_function=None)
    async def broken(ours: bool) -> None:
        raise OurOwn("x") if ours else ValueError("x")

    with pytest.raises(OurOwn):
        await invoke(broken, context(), '{"ours": true}')
    with pytest.raises(UserError) as failed:
        await invoke(broken, context(), '{"ours": false}')
    assert isinstance(failed.value.__cause__, ValueError)


async def test_a_tool_made_by_hand_ends_the_run_when_it_raises():
    async def broken(ctx: Any, arguments: str) -> None:
        raise ValueError("by hand")

    with pytest.raises(UserError, match="by hand"):
        await invoke(FunctionTool("t", "", {}, broken), context(), "")


async def test_a_formatter_may_replace_the_default_text_but_not_the_tools_own():
    async def formatter(args: ToolErrorFormatterArgs[Any]) -> str | None:
        assert args.kind == "tool_exception"
        return f"[{args.tool_name} {args.call_id} {type(args.error).__name__}]"

    async def body() -> None:
        raise ValueError("x")

    broken = function_tool(body, name_override="broken")
    own = function_tool(body, failure_error_function=lambda ctx, error: "own words")
    assert (await invoke(broken, context(), "", formatter=formatter)).output == "[broken c1 ValueError]"
    assert (await invoke(own, context(), "", formatter=formatter)).output == "own words"


async def test_a_paused_run_inside_a_call_is_no_failure():
    @function_tool
    async def nested() -> None:
        raise ChildPaused("child")

    with pytest.raises(ChildPaused):
        await invoke(nested, context(), "")


# --- timeouts --------------------------------------------------------------------------------------------------------


def endless(**options: Any) -> FunctionTool:
    @function_tool(timeout=SOON_S, **options)
    async def wait() -> None:
        await asyncio.Event().wait()

    return wait


async def test_a_timeout_is_told_to_the_model():
    told = (await invoke(endless(), context(), "")).output
    assert told.startswith("Tool 'wait' did not finish within 0.01 seconds")
    assert "Whether it took effect is not known" in told  # it had begun: a model that reads no more would pay again
    own = endless(timeout_error_function=lambda ctx, error: f"{error.tool_name} took {error.timeout_seconds}")  # type: ignore[attr-defined]
    assert (await invoke(own, context(), "")).output == "wait took 0.01"


async def test_a_timeout_ends_the_run_if_the_tool_wants_that():
    with pytest.raises(ToolTimeoutError) as late:
        await invoke(endless(timeout_behavior="raise_exception"), context(), "")
    assert (late.value.tool_name, late.value.timeout_seconds) == ("wait", SOON_S)


async def test_a_timeout_of_the_tools_own_is_a_failure_and_not_a_timeout():
    @function_tool(timeout=FOREVER_S, timeout_behavior="raise_exception")
    async def inner() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert (await invoke(inner, context(), "")).output == "The tool failed: TimeoutError"


@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_what_a_tool_does_after_its_deadline_does_not_count(ending: str):
    @function_tool(timeout=SOON_S)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending == "raises":
                raise ValueError("clean-up failed") from None
        return "too late"

    assert "did not finish" in (await invoke(stubborn, context(), "")).output


async def test_a_tool_that_is_fast_enough_is_not_touched_by_its_timeout():
    tool = function_tool(echo.__wrapped__, timeout=FOREVER_S)
    assert (await invoke(tool, context(), '{"word": "x"}')).output == "x"


# --- cancellation ----------------------------------------------------------------------------------------------------


async def test_a_call_that_is_cancelled_is_cancelled_and_no_failure():
    running, cleaned = asyncio.Event(), []

    @function_tool
    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    task = asyncio.create_task(invoke(wait, context(), ""))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


async def test_a_sync_call_that_is_cancelled_is_abandoned_and_its_result_ignored():
    running, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    @function_tool
    def stuck() -> str:
        running.set()
        go_on.wait(60)
        ended.set()
        return "late"

    task = asyncio.create_task(invoke(stuck, context(), ""))
    await asyncio.to_thread(running.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set(), "the caller did not wait for the thread"
    go_on.set()
    await asyncio.to_thread(ended.wait, 60)
    await asyncio.sleep(0)


async def test_a_tool_that_cancels_itself_has_failed():
    seen: list[Exception] = []

    def note(ctx: Any, error: Exception) -> str:
        seen.append(error)
        return "it gave up"

    async def body() -> None:
        raise asyncio.CancelledError("enough")

    assert (await invoke(function_tool(body, failure_error_function=note), context(), "")).output == "it gave up"
    assert isinstance(seen[0], ToolCancelled)
    assert str(seen[0]) == "enough"
    with pytest.raises(asyncio.CancelledError):
        await invoke(function_tool(body, failure_error_function=None), context(), "")


# --- approvals -------------------------------------------------------------------------------------------------------


def guarded(policy: Any) -> FunctionTool:
    return function_tool(echo.__wrapped__, needs_approval=policy)


async def test_a_bool_decides_by_itself():
    assert await needs_approval(guarded(True), context(), "not json") is True
    assert await needs_approval(guarded(False), context(), "not json") is False


async def test_a_policy_gets_context_arguments_and_call_id():
    seen: list[Any] = []

    async def policy(ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        seen.append((ctx.context, arguments, call_id))
        return arguments.get("word") != "safe"

    assert await needs_approval(guarded(policy), context(), '{"word": "safe"}') is False
    assert await needs_approval(guarded(policy), context(), '{"word": "rm"}', "c9") is True
    assert await needs_approval(guarded(policy), context(), "") is True  # nothing to read: it is not even asked (C16)
    assert seen == [("app", {"word": "safe"}, "c1"), ("app", {"word": "rm"}, "c9")]


@pytest.mark.parametrize(
    "arguments", ["{", "[]", '"x"', "null", "3", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', "[" * 100_000]
)
async def test_arguments_a_policy_cannot_understand_need_approval(arguments: str):
    """§1.10 fails closed: the policy is not even asked."""

    async def policy(ctx: Any, arguments: Any, call_id: str) -> bool:
        raise AssertionError("asked")

    assert await needs_approval(guarded(policy), context(), arguments) is True


async def test_a_policy_without_an_answer_means_yes_and_one_that_raises_is_not_ignored():
    async def forgot(ctx: Any, arguments: Any, call_id: str) -> Any:
        return None

    async def broken(ctx: Any, arguments: Any, call_id: str) -> bool:
        raise ZeroDivisionError

    assert await needs_approval(guarded(forgot), context(), '{"word": "x"}') is True
    assert await needs_approval(guarded(lambda ctx, arguments, call_id: False), context(), '{"word": "x"}') is False
    with pytest.raises(ZeroDivisionError):
        await needs_approval(guarded(broken), context(), '{"word": "x"}')


@given(st.text(max_size=20))
def test_any_text_is_asked_about_as_an_object_or_needs_approval(text: str):
    asked: list[Any] = []

    async def policy(ctx: Any, arguments: Any, call_id: str) -> bool:
        asked.append(arguments)
        return False

    needed = asyncio.run(needs_approval(guarded(policy), context(), text))
    assert needed is not bool(asked)
    assert all(isinstance(arguments, dict) for arguments in asked)


# --- texts -----------------------------------------------------------------------------------------------------------


async def test_what_the_person_said_beats_the_formatter_beats_the_default():
    def formatter(args: ToolErrorFormatterArgs[Any]) -> str:
        return f"{args.kind}/{args.tool_type}: {args.default_message}"

    asked: dict[str, Any] = {"tool_name": "t", "call_id": "c"}
    assert await rejection_text(context(), **asked) == REJECTED
    assert await rejection_text(context(), **asked, formatter=formatter) == f"approval_rejected/function: {REJECTED}"
    assert await rejection_text(context(), **asked, formatter=formatter, message="") == ""
    said = await unknown_tool_text(context(), **asked, formatter=formatter)
    assert said == "tool_not_found/function: There is no tool named 't'. Use only the tools you were given."


def raising(args: Any) -> str:
    raise ZeroDivisionError


@pytest.mark.parametrize("formatter", [raising, lambda args: None, lambda args: 3])
async def test_a_formatter_that_fails_costs_nothing_but_its_text(formatter: Any):
    args: ToolErrorFormatterArgs[Any] = ToolErrorFormatterArgs(
        "tool_not_found", "function", "t", "c", "default", context()
    )
    assert await format_error(formatter, args) == "default"
