"""Runs of every kind, each a function that makes its world anew. All are deterministic but for scheduling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    HandoffInputData,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    RunErrorHandlerResult,
    ToolGuardrailFunctionOutput,
    ToolsToFinalOutputResult,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    retry_policies,
    tool_input_guardrail,
    tool_output_guardrail,
)
from standfast._src.agents.run_config import CallModelData, ModelInputData, ToolExecutionConfig
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

from .observing import World

SCENARIOS: dict[str, Callable[[], World]] = {}


def scenario(make: Callable[[], World]) -> Callable[[], World]:
    SCENARIOS[make.__name__] = make
    return make


def message(text: str) -> list[Any]:
    return [assistant_message(text)]


def one(
    steps: list[Any],
    log: list[Any] | None = None,
    *,
    input: Any = "hi",
    history: Any = (),
    decide: Any = None,
    options: Any = None,
    hooks: bool = True,
    **agent: Any,
) -> World:
    model = ScriptedModel(steps)
    return World(
        Agent(name="A", model=model, **agent),
        [model],
        input=input,
        log=[] if log is None else log,
        options=options or {},
        history=list(history),
        decide=decide,
        hooks=hooks,
    )


def tools(log: list[Any]) -> list[Any]:
    @function_tool
    async def add(a: int, b: int) -> int:
        """Add."""
        log.append(("add", a, b))
        return a + b

    @function_tool
    async def slow(n: int) -> str:
        """Come back late."""
        log.append(("slow", n))
        await asyncio.sleep(0.02)
        return f"slow {n}"

    @function_tool
    def sync(n: int) -> str:
        """Run in a thread."""
        log.append(("sync", n))
        return f"sync {n}"

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        log.append(("pay", amount))
        return f"paid {amount}"

    @function_tool
    async def fails() -> str:
        """Raise, and let the model know."""
        log.append("fails")
        raise ValueError("no luck")

    @function_tool(failure_error_function=None)
    async def breaks() -> str:
        """Raise, and end the run."""
        log.append("breaks")
        raise ValueError("no luck at all")

    return [add, slow, sync, pay, fails, breaks]


# --- answers ---------------------------------------------------------------------------------------------------------


@scenario
def plain_answer() -> World:
    return one([message("hello")])


@scenario
def answer_on_a_history() -> World:
    history = [{"role": "user", "content": "yes"}, {"role": "assistant", "content": "yes"}]
    return one([message("yes")], input="yes", history=history)


@scenario
def input_as_items() -> World:
    return one([message("hello")], input=[{"role": "user", "content": "a"}, {"role": "user", "content": "a"}])


class City(BaseModel):
    name: str
    people: int


@scenario
def structured_answer() -> World:
    return one([message('{"name": "Lisbon", "people": 5}')], output_type=City)


@scenario
def structured_answer_that_does_not_fit() -> World:
    return one([message('{"name": "Lisbon"}')], output_type=City)


@scenario
def structured_answer_repaired_by_a_handler() -> World:
    handlers = {"invalid_final_output": lambda given: RunErrorHandlerResult(City(name="Nowhere", people=0))}
    return one([message("{}")], output_type=City, options={"error_handlers": handlers})


@scenario
def list_as_answer() -> World:
    return one([message('{"response": [1, 2]}')], output_type=list[int])


@scenario
def refusal() -> World:
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]}
    return one([[item]])


@scenario
def refusal_handled() -> World:
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]}
    return one([[item]], options={"error_handlers": {"model_refusal": lambda given: "a kind word"}})


@scenario
def nothing_at_all() -> World:
    return one([[]])


@scenario
def hosted_tool_then_answer() -> World:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    return one([[search], message("found")])


@scenario
def unknown_item_kind() -> World:
    return one([[{"type": "telepathy", "id": "t1", "thought": {"deep": [1, 2.0]}}, assistant_message("ok")]])


# --- tools -----------------------------------------------------------------------------------------------------------


@scenario
def one_tool() -> World:
    log: list[Any] = []
    return one([[function_call("add", {"a": 1, "b": 2}, call_id="c1")], message("3")], log, tools=tools(log))


@scenario
def parallel_tools_that_finish_in_another_order() -> World:
    log: list[Any] = []
    calls = [
        function_call("slow", {"n": 1}, call_id="c1"),
        function_call("add", {"a": 1, "b": 2}, call_id="c2"),
        function_call("sync", {"n": 3}, call_id="c3"),
    ]
    world = one([calls, message("done")], log, tools=tools(log), hooks=False)
    return world


@scenario
def one_tool_at_a_time() -> World:
    log: list[Any] = []
    calls = [function_call("slow", {"n": n}, call_id=f"c{n}") for n in range(4)]
    config = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
    return one([calls, message("done")], log, tools=tools(log), options={"run_config": config})


@scenario
def many_tool_turns() -> World:
    log: list[Any] = []
    turns = [[function_call("add", {"a": n, "b": 1}, call_id=f"c{n}")] for n in range(6)]
    return one([*turns, message("done")], log, tools=tools(log))


@scenario
def reasoning_before_a_call() -> World:
    log: list[Any] = []
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    return one([[thought, function_call("add", {"a": 1, "b": 1}, call_id="c1")], message("2")], log, tools=tools(log))


@scenario
def tool_that_fails() -> World:
    log: list[Any] = []
    return one([[function_call("fails", {}, call_id="c1")], message("sorry")], log, tools=tools(log))


@scenario
def tool_that_breaks_the_run_after_another_ran() -> World:
    log: list[Any] = []
    calls = [function_call("add", {"a": 1, "b": 1}, call_id="c1")]
    more = [function_call("add", {"a": 2, "b": 2}, call_id="c2"), function_call("breaks", {}, call_id="c3")]
    return one([calls, more], log, tools=tools(log), hooks=False)


@scenario
def arguments_that_do_not_parse() -> World:
    log: list[Any] = []
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{nonsense"}
    return one([[call], message("sorry")], log, tools=tools(log))


@scenario
def arguments_of_the_wrong_type() -> World:
    log: list[Any] = []
    return one([[function_call("add", {"a": "x", "b": 1}, call_id="c1")], message("sorry")], log, tools=tools(log))


@scenario
def tool_that_is_not_there() -> World:
    return one([[function_call("nothing", {}, call_id="c1")]])


@scenario
def tool_that_is_not_there_told_to_the_model() -> World:
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    return one([[function_call("nothing", {}, call_id="c1")], message("ok")], options={"run_config": config})


@scenario
def call_without_an_id() -> World:
    return one([[{"type": "function_call", "call_id": "", "name": "add", "arguments": "{}"}]], tools=tools([]))


@scenario
def same_call_twice_in_one_reply() -> World:
    log: list[Any] = []
    call = function_call("add", {"a": 1, "b": 1}, call_id="c1")
    return one([[call, call], message("2")], log, tools=tools(log))


@scenario
def same_id_for_two_calls() -> World:
    log: list[Any] = []
    calls = [function_call("add", {"a": n, "b": 1}, call_id="c1") for n in (1, 2)]
    return one([calls], log, tools=tools(log))


@scenario
def completed_call_asked_for_again() -> World:
    log: list[Any] = []
    call = function_call("add", {"a": 1, "b": 1}, call_id="c1")
    return one([[call], [call], message("2")], log, tools=tools(log))


@scenario
def stop_on_first_tool() -> World:
    log: list[Any] = []
    calls = [function_call("slow", {"n": 1}, call_id="c1"), function_call("add", {"a": 1, "b": 1}, call_id="c2")]
    return one([calls], log, tools=tools(log), tool_use_behavior="stop_on_first_tool", hooks=False)


@scenario
def stop_at_a_named_tool() -> World:
    log: list[Any] = []
    calls = [function_call("slow", {"n": 1}, call_id="c1"), function_call("add", {"a": 1, "b": 1}, call_id="c2")]
    behavior = {"stop_at_tool_names": ["add"]}
    return one([calls], log, tools=tools(log), tool_use_behavior=behavior, hooks=False)


@scenario
def tool_use_decided_by_a_function() -> World:
    log: list[Any] = []

    def decide(context: Any, results: list[Any]) -> ToolsToFinalOutputResult:
        return ToolsToFinalOutputResult(results[0].output > 2, results[0].output)

    calls = [[function_call("add", {"a": n, "b": 1}, call_id=f"c{n}")] for n in (1, 2)]
    return one(calls, log, tools=tools(log), tool_use_behavior=decide)


@scenario
def max_turns() -> World:
    log: list[Any] = []
    turns = [[function_call("add", {"a": n, "b": 1}, call_id=f"c{n}")] for n in range(3)]
    return one(turns, log, tools=tools(log), options={"max_turns": 2})


@scenario
def max_turns_handled() -> World:
    log: list[Any] = []
    turns = [[function_call("add", {"a": n, "b": 1}, call_id=f"c{n}")] for n in range(3)]
    handlers = {"max_turns": lambda given: f"gave up after {len(given.run_data.new_items)} items"}
    return one(turns, log, tools=tools(log), options={"max_turns": 2, "error_handlers": handlers})


@scenario
def no_turn_at_all() -> World:
    return one([message("never")], options={"max_turns": 0})


@scenario
def tool_guardrails() -> World:
    log: list[Any] = []

    @tool_input_guardrail
    def no_ones(data: Any) -> ToolGuardrailFunctionOutput:
        if '"a":1' in data.context.tool_arguments.replace(" ", ""):
            return ToolGuardrailFunctionOutput.reject_content("no ones, please")
        return ToolGuardrailFunctionOutput.allow()

    @tool_output_guardrail
    def no_fours(data: Any) -> ToolGuardrailFunctionOutput:
        if data.output == 4:
            return ToolGuardrailFunctionOutput.reject_content("a number")
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(tool_input_guardrails=[no_ones], tool_output_guardrails=[no_fours])
    async def add(a: int, b: int) -> int:
        log.append((a, b))
        return a + b

    calls = [function_call("add", {"a": n, "b": n}, call_id=f"c{n}") for n in (1, 2, 3)]
    return one([calls, message("done")], log, tools=[add], hooks=False)


# --- handoffs --------------------------------------------------------------------------------------------------------


def _two(first: list[Any], second: list[Any], log: list[Any], *, wrap: Any = None, options: Any = None) -> World:
    one_model, other_model = ScriptedModel(first), ScriptedModel(second)
    other = Agent(name="B", model=other_model, tools=tools(log))
    agent = Agent(name="A", model=one_model, handoffs=[wrap(other) if wrap else other], tools=tools(log))
    return World(agent, [one_model, other_model], log=log, options=options or {}, hooks=True)


def _to_b(call_id: str = "h1") -> Any:
    return function_call("transfer_to_b", {}, call_id=call_id)


@scenario
def handoff_to_another_agent() -> World:
    log: list[Any] = []
    first = [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], [_to_b()]]
    return _two(first, [[function_call("add", {"a": 2, "b": 2}, call_id="c2")], message("B here")], log)


@scenario
def handoff_beside_a_tool() -> World:
    log: list[Any] = []
    first = [[_to_b(), function_call("slow", {"n": 1}, call_id="c1")]]
    return _two(first, [message("B here")], log)


@scenario
def two_handoffs_in_one_reply() -> World:
    return _two([[_to_b("h1"), _to_b("h2")]], [message("B here")], [])


@scenario
def handoff_with_a_filter() -> World:
    log: list[Any] = []

    def only_the_last(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=(), new_items=data.new_items[-1:])

    first = [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], [assistant_message("moving on"), _to_b()]]
    return _two(first, [message("B here")], log, wrap=lambda other: handoff(other, input_filter=only_the_last))


@scenario
def handoff_with_nested_history() -> World:
    log: list[Any] = []
    first = [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], [_to_b()]]
    return _two(first, [message("B here")], log, options={"run_config": RunConfig(nest_handoff_history=True)})


# --- guardrails ------------------------------------------------------------------------------------------------------


def _guard(log: list[Any], *, trips: bool, parallel: bool, delay_s: float = 0.0, raises: bool = False) -> Any:
    @input_guardrail(name="guard", run_in_parallel=parallel)
    async def guard(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        log.append(("guard", given))
        await asyncio.sleep(delay_s)
        if raises:
            raise RuntimeError("the guard fell asleep")
        return GuardrailFunctionOutput({"seen": 1}, trips)

    return guard


def _guarded(**guard: Any) -> World:
    log: list[Any] = []
    steps = [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], message("2")]
    world = one(steps, log, tools=tools(log), input_guardrails=[_guard(log, **guard)], hooks=False)
    return world


for _name, _guard_options in {
    "blocking_guardrail_passes": {"trips": False, "parallel": False},
    "parallel_guardrail_passes_late": {"trips": False, "parallel": True, "delay_s": 0.02},
    "blocking_guardrail_trips": {"trips": True, "parallel": False},
    "parallel_guardrail_raises_late": {"trips": False, "parallel": True, "delay_s": 0.02, "raises": True},
    "blocking_guardrail_raises": {"trips": False, "parallel": False, "raises": True},
}.items():
    SCENARIOS[_name] = lambda options=_guard_options: _guarded(**options)


@scenario
def parallel_guardrail_trips_late() -> World:
    """Slow enough that the reply is there, and its call must not begin."""
    return _guarded(trips=True, parallel=True, delay_s=0.05)


def _judged(*, trips: bool = True, raises: bool = False, steps: Any = None, **agent: Any) -> World:
    log: list[Any] = []

    @output_guardrail(name="judge")
    async def judge(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        log.append(("judge", output))
        if raises:
            raise RuntimeError("no verdict")
        return GuardrailFunctionOutput(None, trips)

    script = steps or [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], message("two")]
    return one(script, log, tools=tools(log), output_guardrails=[judge], **agent)


@scenario
def output_guardrail_passes() -> World:
    return _judged(trips=False)


@scenario
def output_guardrail_trips() -> World:
    return _judged()


@scenario
def output_guardrail_trips_on_the_first_turn() -> World:
    return _judged(steps=[message("bad")])


@scenario
def output_guardrail_raises() -> World:
    return _judged(raises=True)


@scenario
def output_guardrail_trips_on_a_tool_result() -> World:
    return _judged(tool_use_behavior="stop_on_first_tool")


# --- what shapes a request -------------------------------------------------------------------------------------------


@scenario
def filter_that_hides_and_adds() -> World:
    log: list[Any] = []

    def hide(data: CallModelData[Any]) -> ModelInputData:
        kept = [item for item in data.model_data.input if item.get("role") != "user"]
        return ModelInputData([{"role": "user", "content": "injected"}, *kept], "other instructions")

    steps = [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], message("2")]
    return one(steps, log, tools=tools(log), options={"run_config": RunConfig(call_model_input_filter=hide)})


@scenario
def filter_that_returns_the_wrong_thing() -> World:
    config = RunConfig(call_model_input_filter=lambda data: data.model_data.input)  # type: ignore[arg-type,return-value]
    return one([message("never")], options={"run_config": config})


@scenario
def instructions_that_raise() -> World:
    def instructions(context: Any, agent: Any) -> str:
        raise RuntimeError("no instructions today")

    return one([message("never")], instructions=instructions)


@scenario
def dynamic_instructions() -> World:
    async def instructions(context: Any, agent: Any) -> str:
        return f"You are {agent.name}"

    return one([message("ok")], instructions=instructions)


# --- failures of the model -------------------------------------------------------------------------------------------


@scenario
def model_fails_at_once() -> World:
    return one([RuntimeError("model is out")])


@scenario
def model_fails_on_the_second_turn() -> World:
    log: list[Any] = []
    steps = [[function_call("add", {"a": 1, "b": 1}, call_id="c1")], RuntimeError("model is out")]
    return one(steps, log, tools=tools(log))


@scenario
def model_retried() -> World:
    retry = ModelRetrySettings(
        max_retries=2, backoff={"initial_delay": 0.0, "jitter": False}, policy=retry_policies.network_error()
    )
    steps = [ModelStep.raise_error(ConnectionResetError("cut")), message("at last")]
    return one(steps, model_settings=ModelSettings(retry=retry))


# --- approvals -------------------------------------------------------------------------------------------------------


def _approve_all(state: Any) -> None:
    for item in state.get_interruptions():
        state.approve(item)


def _reject_all(state: Any) -> None:
    for item in state.get_interruptions():
        state.reject(item, rejection_message="not today")


def _payment(decide: Any) -> World:
    log: list[Any] = []
    calls = [
        function_call("pay", {"amount": 5}, call_id="c1"),
        function_call("add", {"a": 1, "b": 1}, call_id="c2"),
        function_call("pay", {"amount": 7}, call_id="c3"),
    ]
    return one([calls, message("done")], log, tools=tools(log), decide=decide, hooks=False)


@scenario
def paused() -> World:
    return _payment(None)


@scenario
def approved() -> World:
    return _payment(_approve_all)


@scenario
def rejected() -> World:
    return _payment(_reject_all)


@scenario
def one_approved_one_rejected() -> World:
    def decide(state: Any) -> None:
        first, second = state.get_interruptions()
        state.approve(first)
        state.reject(second)

    return _payment(decide)


@scenario
def decided_one_by_one() -> World:
    return _payment(lambda state: state.approve(state.get_interruptions()[0]))


@scenario
def approved_for_good() -> World:
    log: list[Any] = []
    turns = [[function_call("pay", {"amount": n}, call_id=f"c{n}")] for n in (1, 2)]

    def decide(state: Any) -> None:
        state.approve(state.get_interruptions()[0], always_approve=True)

    return one([*turns, message("done")], log, tools=tools(log), decide=decide, hooks=False)


@scenario
def nested_agent() -> World:
    log: list[Any] = []
    inner_model = ScriptedModel([[function_call("add", {"a": 1, "b": 1}, call_id="i1")], message("inner says 2")])
    inner = Agent(name="Inner", model=inner_model, tools=tools(log))
    outer_model = ScriptedModel([[function_call("ask", {"input": "add"}, call_id="o1")], message("outer says 2")])
    outer = Agent(name="Outer", model=outer_model, tools=[inner.as_tool("ask", "Ask the other one.")])
    return World(outer, [outer_model, inner_model], log=log)


@scenario
def nested_agent_that_waits_for_approval() -> World:
    log: list[Any] = []
    inner_model = ScriptedModel([[function_call("pay", {"amount": 9}, call_id="i1")], message("inner paid")])
    inner = Agent(name="Inner", model=inner_model, tools=tools(log))
    calls = [function_call("ask", {"input": "pay"}, call_id="o1"), function_call("add", {"a": 1, "b": 1}, call_id="o2")]
    outer_model = ScriptedModel([calls, message("outer done")])
    outer = Agent(name="Outer", model=outer_model, tools=[inner.as_tool("ask", "Ask."), *tools(log)])
    return World(outer, [outer_model, inner_model], log=log, decide=_approve_all, hooks=False)
