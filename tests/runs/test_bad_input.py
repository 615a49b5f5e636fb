"""Bad input, from every side: each ends in a specific error or in a configured recovery, and never in lost history.

Every case starts from a conversation that holds something, goes wrong in its second turn where it can, and is held to
the same: what was there is there, what was completed is there, what is stored is valid, the error says what happened,
and the conversation can go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from standfast import (
    Agent,
    HandoffInputData,
    ModelBehaviorError,
    ModelResponse,
    RunConfig,
    RunErrorHandlerResult,
    RunHooks,
    Runner,
    RunState,
    StandfastError,
    StoreError,
    ToolGuardrailFunctionOutput,
    Usage,
    UserError,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from standfast._kits.testing.simulator.world import invalid
from standfast._src.models.interface import Model
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call, handoff_call

from .observing import SESSIONS
from .whole_runs import KINDS, RecordingAble, RecordingPlain, add, adding, go, kinds, outputs, said, user

BEFORE = [user("before"), {"role": "assistant", "content": "ok"}]
FIRST_TURN = ["user", "function_call", "function_call_output"]

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_session = pytest.mark.parametrize("kind", KINDS)


class Whim(Exception):
    """What a user's own code raises."""


@dataclass
class Case:
    """What goes wrong: an agent, settings, the error it must end in (None: it recovers), and what is stored of it."""

    agent: Agent[Any]
    error: type[BaseException] | None
    stored: list[str]
    options: dict[str, Any] = field(default_factory=dict)
    says: str = ""


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def raising(*_: Any, **__: Any) -> Any:
    raise Whim("on a whim")


def second_turn(step: Any, *, error: Any, stored: list[str] | None = None, says: str = "", **agent: Any) -> Case:
    """A first turn that goes well, then `step`."""
    tools = [add, *agent.pop("tools", [])]
    options = agent.pop("options", {})
    made: Agent[Any] = Agent(
        name="A", model=ScriptedModel([[adding(1, "c1")], step, said("again")]), tools=tools, **agent
    )
    return Case(made, error, FIRST_TURN if stored is None else stored, options, says)


# --- the model -------------------------------------------------------------------------------------------------------


@case
def a_tool_that_does_not_exist() -> Case:
    return second_turn([function_call("nothing", {}, call_id="c2")], error=ModelBehaviorError, says="nothing")


@case
def a_tool_that_does_not_exist_told_to_the_model() -> Case:
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    stored = [*FIRST_TURN, "function_call", "function_call_output", "assistant"]
    return second_turn(
        [function_call("nothing", {}, call_id="c2")], error=None, stored=stored, options={"run_config": config}
    )


@case
def a_call_without_an_id() -> Case:
    return second_turn(
        [{"type": "function_call", "call_id": "", "name": "add", "arguments": "{}"}], error=ModelBehaviorError
    )


@case
def one_id_for_two_calls() -> Case:
    return second_turn([adding(1, "same"), adding(2, "same")], error=ModelBehaviorError, says="same")


@case
def an_old_id_for_another_call() -> Case:
    return second_turn([adding(2, "c1")], error=ModelBehaviorError, says="c1")


@case
def an_item_without_a_type() -> Case:
    return second_turn([{"nonsense": True}], error=ModelBehaviorError)


@case
def a_reply_that_is_cut_off() -> Case:
    return second_turn(ModelStep(output=said("half an answer"), cut_after=3), error=ModelBehaviorError)


@case
def a_model_that_fails() -> Case:
    return second_turn(Whim("on a whim"), error=Whim)


class Nonsense(Model):
    """A model that does not keep to what a model is."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def get_response(self, *args: Any, **named: Any) -> Any:
        return self._answer

    async def stream_response(self, *args: Any, **named: Any) -> Any:
        for event in self._answer if isinstance(self._answer, list) else [self._answer]:
            yield event


@case
def a_model_that_returns_nothing() -> Case:
    return Case(Agent(name="A", model=Nonsense(None)), StandfastError, [])


@case
def a_model_that_returns_a_text() -> Case:
    return Case(Agent(name="A", model=Nonsense("hello")), StandfastError, [])


@case
def a_model_whose_items_are_no_items() -> Case:
    return Case(Agent(name="A", model=Nonsense(ModelResponse([42], Usage(), None))), StandfastError, [])


# --- arguments and outputs -------------------------------------------------------------------------------------------


@case
def arguments_that_do_not_parse() -> Case:
    call = {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{nonsense"}
    return second_turn([call], error=None, stored=[*FIRST_TURN, "function_call", "function_call_output", "assistant"])


@case
def arguments_that_are_no_object() -> Case:
    call = {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "[1, 2]"}
    return second_turn([call], error=None, stored=[*FIRST_TURN, "function_call", "function_call_output", "assistant"])


@case
def arguments_that_do_not_parse_and_a_tool_that_wants_it_raised() -> Case:
    @function_tool(failure_error_function=None)
    async def strict(a: int) -> int:
        """Take a number."""
        return a

    call = {"type": "function_call", "call_id": "c2", "name": "strict", "arguments": "{nonsense"}
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn([call], error=ModelBehaviorError, stored=stored, tools=[strict])


class City(BaseModel):
    name: str
    people: int


@case
def an_output_that_does_not_fit() -> Case:
    return second_turn([assistant_message('{"name": "Lisbon"}')], error=ModelBehaviorError, output_type=City)


@case
def an_output_that_is_no_json() -> Case:
    return second_turn([assistant_message("Lisbon!")], error=ModelBehaviorError, output_type=City)


@case
def an_output_that_does_not_fit_and_a_handler_for_it() -> Case:
    handlers = {"invalid_final_output": lambda given: RunErrorHandlerResult(City(name="Nowhere", people=0))}
    return second_turn(
        [assistant_message("Lisbon!")],
        error=None,
        stored=[*FIRST_TURN, "assistant", "assistant"],
        output_type=City,
        options={"error_handlers": handlers},
    )


@case
def a_handler_whose_own_output_does_not_fit() -> Case:
    handlers = {"invalid_final_output": lambda given: RunErrorHandlerResult({"people": "many"})}
    return second_turn(
        [assistant_message("Lisbon!")], error=UserError, output_type=City, options={"error_handlers": handlers}
    )


@case
def a_handler_that_raises() -> Case:
    return second_turn(
        [assistant_message("Lisbon!")],
        error=Whim,
        output_type=City,
        options={"error_handlers": {"invalid_final_output": raising}},
    )


# --- filters and callbacks -------------------------------------------------------------------------------------------


def _config(**settings: Any) -> dict[str, Any]:
    return {"options": {"run_config": RunConfig(**settings)}}


@case
def a_filter_that_returns_the_wrong_thing() -> Case:
    return second_turn(
        said("x"), error=UserError, stored=[], says="filter", **_config(call_model_input_filter=lambda data: None)
    )


@case
def a_filter_that_raises() -> Case:
    return second_turn(said("x"), error=Whim, stored=[], **_config(call_model_input_filter=raising))


@case
def a_session_callback_that_returns_the_wrong_thing() -> Case:
    callback = lambda history, new: "everything"  # noqa: E731 — a user's mistake
    return second_turn(said("x"), error=UserError, stored=[], **_config(session_input_callback=callback))


@case
def a_session_callback_that_raises() -> Case:
    return second_turn(said("x"), error=Whim, stored=[], **_config(session_input_callback=raising))


@case
def a_session_callback_that_is_no_function() -> Case:
    config = RunConfig()
    config.session_input_callback = "mine"  # type: ignore[assignment]  # set later: the constructor refuses it
    return second_turn(said("x"), error=UserError, stored=[], options={"run_config": config})


@case
def instructions_that_raise() -> Case:
    return second_turn(said("x"), error=Whim, stored=[], instructions=raising)


@case
def a_switch_that_raises() -> Case:
    @function_tool(is_enabled=raising)
    async def hidden() -> str:
        """Sometimes there."""
        return "here"

    return second_turn(said("x"), error=Whim, stored=[], tools=[hidden])


@case
def an_approval_policy_that_raises() -> Case:
    @function_tool(needs_approval=raising)
    async def pay() -> str:
        """Pay."""
        return "paid"

    return second_turn([function_call("pay", {}, call_id="c2")], error=Whim, tools=[pay])


@case
def an_approval_policy_that_raises_after_another_call_ran() -> Case:
    ran = asyncio.Event()

    @function_tool
    async def quick() -> str:
        """Run at once."""
        ran.set()
        return "quick"

    async def policy(context: Any, arguments: Any, call_id: str) -> bool:
        await ran.wait()
        await asyncio.sleep(0.05)
        raise Whim("on a whim")

    @function_tool(needs_approval=policy)
    async def pay() -> str:
        """Pay."""
        return "paid"

    calls = [function_call("pay", {}, call_id="c2"), function_call("quick", {}, call_id="c3")]
    stored = [*FIRST_TURN, *["function_call"] * 2, *["function_call_output"] * 2]
    return second_turn(calls, error=Whim, stored=stored, tools=[pay, quick])


@case
def a_tool_that_raises_and_wants_it_raised() -> Case:
    broken = function_tool(name_override="broken", failure_error_function=None)(_breaking)
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn([function_call("broken", {}, call_id="c2")], error=UserError, stored=stored, tools=[broken])


@case
def a_failure_function_that_raises() -> Case:
    broken = function_tool(name_override="broken", failure_error_function=raising)(_breaking)
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn([function_call("broken", {}, call_id="c2")], error=Whim, stored=stored, tools=[broken])


async def _breaking() -> str:
    """Break."""
    raise ValueError("no luck")


@case
def a_tool_behaviour_that_returns_the_wrong_thing() -> Case:
    return second_turn(said("x"), error=UserError, tool_use_behavior=lambda context, results: "final")


@case
def a_tool_behaviour_that_raises() -> Case:
    return second_turn(said("x"), error=Whim, tool_use_behavior=raising)


@case
def data_about_an_output_that_is_no_mapping() -> Case:
    broken = function_tool(name_override="broken", custom_data_extractor=lambda data: 42)(_working)  # type: ignore[arg-type,return-value]
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn([function_call("broken", {}, call_id="c2")], error=UserError, stored=stored, tools=[broken])


async def _working() -> str:
    """Work."""
    return "works"


# --- handoffs --------------------------------------------------------------------------------------------------------


def _handing_over(error: Any, **options: Any) -> Case:
    other = Agent(name="Other", model=ScriptedModel([said("other here")]))
    made = second_turn([handoff_call(other, call_id="h1")], error=error, handoffs=[handoff(other, **options)])
    return made


@case
def a_handoff_filter_that_returns_the_wrong_thing() -> Case:
    return _handing_over(UserError, input_filter=lambda data: data.input_history)


@case
def a_handoff_filter_that_raises() -> Case:
    return _handing_over(Whim, input_filter=raising)


@case
def a_handoff_callback_that_raises() -> Case:
    return _handing_over(Whim, on_handoff=lambda context: raising())


@case
def a_handoff_filter_that_shows_an_orphan() -> Case:
    """It cuts a call from its output: what no provider would take is not sent, and nothing is lost."""

    def cut(data: HandoffInputData) -> HandoffInputData:
        return data.clone(pre_handoff_items=data.pre_handoff_items[-1:])

    made = _handing_over(None, input_filter=cut)
    made.stored = [*FIRST_TURN, "function_call", "function_call_output", "assistant"]
    return made


# --- guardrails and hooks --------------------------------------------------------------------------------------------


@case
def an_input_guardrail_that_raises() -> Case:
    return second_turn(said("x"), error=Whim, stored=[], input_guardrails=[input_guardrail(raising)])


@case
def an_input_guardrail_that_returns_the_wrong_thing() -> Case:
    return second_turn(
        said("x"), error=StandfastError, stored=[], input_guardrails=[input_guardrail(lambda *given: "fine")]
    )


@case
def an_output_guardrail_that_raises() -> Case:
    return second_turn(
        said("x"), error=Whim, stored=[*FIRST_TURN, "assistant"], output_guardrails=[output_guardrail(raising)]
    )


@case
def a_tool_guardrail_that_raises() -> Case:
    guarded = function_tool(name_override="guarded", tool_input_guardrails=[tool_input_guardrail(raising)])(_working)
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn([function_call("guarded", {}, call_id="c2")], error=Whim, stored=stored, tools=[guarded])


@case
def a_tool_output_guardrail_that_raises() -> Case:
    guarded = function_tool(name_override="guarded", tool_output_guardrails=[tool_output_guardrail(raising)])(_working)
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn([function_call("guarded", {}, call_id="c2")], error=Whim, stored=stored, tools=[guarded])


@case
def a_tool_guardrail_that_ends_the_run() -> Case:
    stop = tool_input_guardrail(lambda data: ToolGuardrailFunctionOutput.raise_exception("no"))
    guarded = function_tool(name_override="guarded", tool_input_guardrails=[stop])(_working)
    stored = [*FIRST_TURN, "function_call", "function_call_output"]
    return second_turn(
        [function_call("guarded", {}, call_id="c2")], error=StandfastError, stored=stored, tools=[guarded]
    )


def _hook(name: str, stored: list[str]) -> Callable[[], Case]:
    async def raise_it(self: Any, *args: Any, **named: Any) -> None:
        raise Whim("on a whim")

    class Hooks(RunHooks[Any]):
        """Hooks of which one raises."""

    setattr(Hooks, name, raise_it)
    error = UserError if "_tool_" in name else Whim  # as with the SDK: what a tool's hook raises is told with the tool
    return lambda: second_turn(said("x"), error=error, stored=stored, options={"hooks": Hooks()})


CASES["a_hook_at_the_start_of_an_agent_that_raises"] = _hook("on_agent_start", [])
CASES["a_hook_before_a_request_that_raises"] = _hook("on_llm_start", [])
CASES["a_hook_after_a_reply_that_raises"] = _hook("on_llm_end", [])
CASES["a_hook_before_a_tool_that_raises"] = _hook("on_tool_start", FIRST_TURN)
CASES["a_hook_after_a_tool_that_raises"] = _hook("on_tool_end", FIRST_TURN)
CASES["a_hook_at_the_end_that_raises"] = _hook("on_agent_end", FIRST_TURN)


@case
def a_reply_that_was_refused() -> Case:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]}
    return second_turn([refusal], error=StandfastError)


@case
def no_turn_left() -> Case:
    return second_turn(
        [adding(2, "c2")],
        error=StandfastError,
        stored=[*FIRST_TURN, "function_call", "function_call_output"],
        options={"max_turns": 2},
    )


# --- every case, in both modes, on every kind of session -------------------------------------------------------------


@every_session
@both_modes
@pytest.mark.parametrize("name", CASES)
async def test_it_ends_in_an_error_or_a_recovery_and_never_in_lost_history(
    name: str, streamed: bool, kind: str, tmp_path: Path
) -> None:
    made, session = CASES[name](), SESSIONS[kind](tmp_path)
    await session.add_items(BEFORE)
    error: BaseException | None = None
    try:
        await go(made.agent, "go", streamed=streamed, session=session, **made.options)
    except Exception as raised:
        error = raised
    if made.error is None:
        assert error is None, f"it should have recovered: {error!r}"
    else:
        assert isinstance(error, made.error), f"{error!r} is not a {made.error.__name__}"
        assert made.says in str(error)
        if isinstance(error, StandfastError):
            assert error.remedy, "an error says what to do"
    stored = await session.get_items()
    assert stored[:2] == BEFORE
    assert kinds(stored[2:]) == made.stored
    assert invalid(stored) is None
    follow = ScriptedModel([said("going on")])
    await go(Agent(name="Next", model=follow), "next", streamed=streamed, session=session)
    assert follow.calls[0].input[:2] == BEFORE
    assert invalid(follow.calls[0].input) is None
    assert len(await session.get_items()) == len(stored) + 2


# --- a store that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [1, 2, 3, 4])
@pytest.mark.parametrize("how", ["refused", "after", "partly"])
@pytest.mark.parametrize("kind", ["plain", "able"])
@both_modes
async def test_a_store_that_fails_on_a_write_costs_no_history(streamed: bool, kind: str, how: str, write: int) -> None:
    """On the first, the second, the third: the error is the store's own, and the run goes on from where it was."""
    ran: list[int] = []

    @function_tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    steps = {number: [function_call("pay", {"amount": number}, call_id=f"p{number}")] for number in (1, 2)}

    def answer(call: Any) -> Any:
        done = sum(item.get("type") == "function_call_output" for item in call.input)
        return steps.get(done + 1) or said("done")

    model = ScriptedModel([ModelStep(responder=answer) for _ in range(8)])
    session: Any = RecordingPlain() if kind == "plain" else RecordingAble()
    await session.add_items([user("before"), user("before")])
    session.fail, session.writes = {write: how}, 0
    agent = Agent(name="A", model=model, tools=[pay])
    result: Any = None
    try:
        result = await go(agent, "go", streamed=streamed, session=session)
    except (OSError, StoreError) as error:
        assert write <= 3
        assert invalid(await session.get_items()) is None
        state: RunState = error.run_state  # type: ignore[union-attr]
        result = await go(agent, state, streamed=streamed, session=session)
    assert result.final_output == "done"
    assert ran == [1, 2], "a finished tool ran again"
    whole = ["user", "user", "user", *["function_call", "function_call_output"] * 2, "assistant"]
    assert kinds(await session.get_items()) == whole
    assert outputs(await session.get_items()) == ["paid 1", "paid 2"]


async def test_a_store_that_cannot_be_read_fails_before_anything_is_paid_for() -> None:
    class Unreadable(RecordingPlain):
        async def get_items(self, limit: int | None = None) -> list[Any]:
            raise OSError("unreadable")

    model = ScriptedModel([said("never")])
    with pytest.raises(OSError, match="unreadable"):
        await go(Agent(name="A", model=model), "go", session=Unreadable())
    assert not model.calls


async def test_an_item_that_no_store_can_hold_is_refused_and_leaves_the_history_as_it_was() -> None:
    session = SESSIONS["memory"](Path())
    await session.add_items(BEFORE)
    with pytest.raises((StandfastError, TypeError)):
        await go(
            Agent(name="A", model=ScriptedModel([said("ok")])),
            [{"role": "user", "content": object()}],
            session=session,
        )
    assert await session.get_items() == BEFORE


@both_modes
@pytest.mark.parametrize("given", [None, 42, b"bytes", {"role": "user"}, [42], ["text"]])
async def test_an_input_of_the_wrong_kind_is_refused_by_name(given: Any, streamed: bool) -> None:
    model = ScriptedModel([said("never")])
    with pytest.raises(StandfastError):
        await go(Agent(name="A", model=model), given, streamed=streamed)
    assert not model.calls


async def test_settings_of_the_wrong_kind_are_refused_before_anything_runs() -> None:
    model = ScriptedModel([said("never")])
    agent = Agent(name="A", model=model)
    wrong: list[dict[str, Any]] = [
        {"run_config": {"no_such_setting": 1}},
        {"run_config": 7},
        {"hooks": "mine"},
        {"error_handlers": {"no_such_error": raising}},
    ]
    for options in wrong:
        with pytest.raises(StandfastError):
            await go(agent, "go", **options)
    with pytest.raises(StandfastError):
        await Runner.run("not an agent", "go")
    with pytest.raises(StandfastError):
        Agent(name="A", tool_use_behavior="stop_sometimes")  # type: ignore[arg-type]
    assert not model.calls
