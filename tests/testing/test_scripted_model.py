"""The scripted model: both modes tell the same, mistakes are found early, and faults happen where they should."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.base.errors import StreamCutError
from standfast._src.items.items import ModelResponse
from standfast._src.items.usage import Usage
from standfast._src.models.interface import Model, ModelTracing
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from standfast._src.models.stream_assembly import StreamAssembler
from standfast.testing import (
    InvalidModelStep,
    ModelScriptError,
    ModelStep,
    ScriptedModel,
    UnconsumedModelSteps,
    UnexpectedModelCall,
    assistant_message,
    final,
    function_call,
    handoff_call,
    reasoning,
    refusal,
    stream_of,
    text_of,
)

HELLO = assistant_message("hello")
LOOK = function_call("look", {"where": "here"}, call_id="c1")


def asked(input: Any = "hi", settings: ModelSettings | None = None) -> tuple[Any, ...]:
    return ("be kind", input, settings or ModelSettings(), [], None, [], ModelTracing.DISABLED)


IDS: dict[str, Any] = {"previous_response_id": None, "conversation_id": None, "prompt": None}


async def whole(model: Model, *args: Any) -> ModelResponse:
    return await model.get_response(*(args or asked()), **IDS)


async def streamed(model: Model, *args: Any) -> ModelResponse:
    reply = StreamAssembler()
    async for event in model.stream_response(*(args or asked()), **IDS):
        reply.feed(event)
    return reply.result()


both_modes = pytest.mark.parametrize("ask", [whole, streamed])


# --- both modes ------------------------------------------------------------------------------------------------------


@both_modes
async def test_steps_are_played_in_order(ask):
    model = ScriptedModel([[LOOK], final("done")])
    assert (await ask(model)).output == [LOOK]
    assert model.remaining_steps == 1
    assert (await ask(model)).output == [assistant_message("done")]
    model.assert_complete()


steps = st.builds(
    ModelStep,
    output=st.lists(st.sampled_from([HELLO, LOOK, refusal("no"), reasoning("why", "so", item_id="r1")]), max_size=3),
    usage=st.none() | st.builds(Usage, st.integers(1, 3), st.integers(0, 9), total_tokens=st.integers(0, 9)),
    response_id=st.none() | st.just("resp_1"),
    request_id=st.none() | st.just("req_1"),
    chunk_chars=st.none() | st.integers(1, 3),
)


@given(steps)
def test_a_step_tells_the_same_streaming_and_not(step):
    """C11 begins here: a script must not depend on the mode."""
    assert asyncio.run(whole(ScriptedModel([step]))) == asyncio.run(streamed(ScriptedModel([step])))


@both_modes
async def test_every_form_of_a_step_is_understood(ask):
    usage = Usage(requests=1, total_tokens=5)
    given_steps: list[Any] = [
        [HELLO],
        {"output": [HELLO], "response_id": None},
        ModelResponse([HELLO], usage, "resp_9"),
        ModelStep(output=(HELLO,)),
        ModelStep.respond(lambda call: [HELLO]),
        ModelStep.stream(list(stream_of([HELLO], response_id="resp_7"))),
    ]
    replies = [await ask(ScriptedModel([step])) for step in given_steps]
    assert all(reply.output == [HELLO] for reply in replies)
    assert [reply.response_id for reply in replies] == ["resp-789", None, "resp_9", "resp-789", "resp-789", "resp_7"]
    assert replies[2].usage == usage
    assert replies[0].usage == Usage(requests=1)


@both_modes
async def test_a_step_without_usage_costs_the_default(ask):
    model = ScriptedModel([[HELLO], [HELLO]], default_usage=Usage(requests=1, total_tokens=9))
    assert (await ask(model)).usage.total_tokens == 9
    model.set_default_usage(None)
    assert (await ask(model)).usage == Usage(requests=1)


@both_modes
async def test_raw_usage_is_told_only_where_it_was_asked_for(ask):
    step = {"output": [HELLO], "raw_usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}}
    reply = await ask(ScriptedModel([step]))
    assert reply.raw_usage is None
    assert reply.usage.total_tokens == 4
    settings = ModelSettings(preserve_raw_usage=True)
    assert (await whole(ScriptedModel([step]), *asked(settings=settings))).raw_usage == step["raw_usage"]


@both_modes
async def test_a_responder_sees_the_call_and_may_take_its_time(ask):
    async def answer(call: Any) -> Any:
        await asyncio.sleep(0)
        return final(text_of(call).upper())

    model = ScriptedModel([ModelStep.respond(answer)])
    reply = await ask(model, *asked([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]))
    assert reply.output == [assistant_message("HI")]
    model.enqueue(ModelStep.respond(answer))
    assert (await ask(model, *asked("ho"))).output == [assistant_message("HO")]


@both_modes
async def test_typed_objects_are_passed_on_as_they_are(ask):
    from openai.types.responses import ResponseOutputMessage

    typed = ResponseOutputMessage.model_validate(HELLO)
    assert (await ask(ScriptedModel([[typed]]))).output == [typed]


async def test_the_stream_of_a_call_is_the_one_the_sdk_shows():
    model = ScriptedModel([[LOOK]])
    events = [event.type async for event in model.stream_response(*asked(), **IDS)]
    assert events == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


async def test_deltas_are_cut_as_the_script_says():
    model = ScriptedModel([[HELLO]], chunk_chars=2)
    deltas = [event.delta async for event in model.stream_response(*asked(), **IDS) if event.type.endswith(".delta")]
    assert deltas == ["he", "ll", "o"]


# --- what was asked --------------------------------------------------------------------------------------------------


@both_modes
async def test_a_call_is_recorded_as_it_was(ask):
    model = ScriptedModel([[HELLO], [HELLO]])
    items = [{"role": "user", "content": "hi"}]
    settings = ModelSettings(temperature=0.5)
    assert model.first_call is None
    assert model.last_call is None
    await ask(model, *asked(items, settings))
    items[0]["content"] = "changed"
    settings.temperature = 1.0
    await ask(model)
    first = model.first_call
    assert first is model.calls[0]
    assert first is not None
    assert first.input == [{"role": "user", "content": "hi"}]
    assert first.model_settings.temperature == 0.5
    assert first.streamed == (ask is streamed)
    assert first.system_instructions == "be kind"
    assert model.last_call is model.calls[1]


@both_modes
async def test_measuring_keeps_no_copies(ask):
    model = ScriptedModel([[HELLO]], record_calls=False)
    assert (await ask(model)).output == [HELLO]
    assert model.calls == ()


# --- scripts and runs that do not fit --------------------------------------------------------------------------------


@both_modes
async def test_a_call_too_many_says_what_was_sent(ask):
    model = ScriptedModel()
    with pytest.raises(UnexpectedModelCall, match="model call #1: no scripted steps remain") as caught:
        await ask(model)
    assert (caught.value.call.input, caught.value.call_index) == ("hi", 0)
    assert isinstance(caught.value, ModelScriptError)


def test_a_step_too_many_is_found():
    model = ScriptedModel([[HELLO]])
    model.extend([[HELLO]])
    model.enqueue(ValueError("x"))
    with pytest.raises(UnconsumedModelSteps, match=r"3 scripted model step\(s\) were not consumed") as caught:
        model.assert_complete()
    assert pickle.loads(pickle.dumps(caught.value)).remaining_steps == 3


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (3, "invalid_input"),
        ("text", "invalid_input"),
        ({"output": 3}, "invalid_input"),
        ({"bogus": 1}, "unsupported_field"),
        (HELLO, "unsupported_field"),
        ({"error": 3}, "invalid_error"),
        ({"responder": 3}, "invalid_responder"),
        ({"stream_events": 3}, "invalid_stream_events"),
        ({"usage": 3}, "invalid_input"),
        ({"response_id": 3}, "invalid_input"),
        ({"error": ValueError(), "responder": print}, "conflicting_outcomes"),
        ({"stream_events": [], "responder": print}, "conflicting_outcomes"),
        ({"retry_advice": ModelRetryAdvice()}, "invalid_retry_advice"),
        ({"delay_s": -1}, "invalid_input"),
        ({"cut_after": -1}, "invalid_input"),
        ({"chunk_chars": 0}, "invalid_input"),
    ],
)
def test_a_mistake_in_a_script_is_found_when_it_is_written(step, reason):
    with pytest.raises(InvalidModelStep, match="step #2") as caught:
        ScriptedModel([[HELLO], step])
    assert (caught.value.reason, caught.value.input_index) == (reason, 1)


def test_of_steps_added_together_all_count_or_none():
    model = ScriptedModel()
    with pytest.raises(InvalidModelStep):
        model.extend([[HELLO], 3])
    assert model.remaining_steps == 0


@both_modes
async def test_a_responder_that_answers_nonsense_is_named(ask):
    with pytest.raises(InvalidModelStep, match="step #1"):
        await ask(ScriptedModel([ModelStep.respond(lambda call: 3)]))


# --- faults ----------------------------------------------------------------------------------------------------------


@both_modes
async def test_an_error_is_raised_with_the_advice_about_it(ask):
    error, advice = ConnectionError("x"), ModelRetryAdvice(suggested=True)
    model = ScriptedModel([ModelStep.raise_error(error, retry_advice=advice), ValueError("y")])
    with pytest.raises(ConnectionError) as caught:
        await ask(model)
    assert caught.value is error
    assert model.get_retry_advice(ModelRetryAdviceRequest(error, 1, False)) is advice
    assert model.get_retry_advice(ModelRetryAdviceRequest(ConnectionError("x"), 1, False)) is None
    with pytest.raises(ValueError, match="y"):
        await ask(model)


@both_modes
async def test_a_computed_step_may_be_late_or_wrong_too(ask):
    model = ScriptedModel([ModelStep.respond(lambda call: ModelStep(error=ValueError("late"), delay_s=0.001))])
    with pytest.raises(ValueError, match="late"):
        await ask(model)


@both_modes
async def test_advice_about_a_cut_is_the_scripts_where_it_has_some(ask):
    error, advice = ConnectionError("gone"), ModelRetryAdvice(replay_safety="safe")
    model = ScriptedModel([ModelStep.cut(3, [HELLO], error=error, retry_advice=advice)])
    with pytest.raises(ConnectionError):
        await ask(model)
    assert model.get_retry_advice(ModelRetryAdviceRequest(error, 1, False)) is advice


@both_modes
async def test_a_factory_may_have_to_wait_before_it_has_events(ask):
    async def events(call: Any) -> Any:
        return list(stream_of([HELLO]))

    assert (await ask(ScriptedModel([ModelStep.stream(events)]))).output == [HELLO]


def test_script_errors_survive_pickling():
    with pytest.raises(InvalidModelStep) as caught:
        ScriptedModel([3])  # type: ignore[list-item]
    assert pickle.loads(pickle.dumps(caught.value)).reason == "invalid_input"
    lost = pickle.loads(pickle.dumps(UnexpectedModelCall("x", call=None, call_index=2)))  # type: ignore[arg-type]
    assert (lost.call_index, str(lost)) == (2, str(UnexpectedModelCall("x", call=None, call_index=2)))  # type: ignore[arg-type]


@both_modes
async def test_a_hanging_step_ends_when_it_is_cancelled(ask):
    model = ScriptedModel([ModelStep.hang()])
    task = asyncio.create_task(ask(model))
    await model.wait_for_call()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@both_modes
async def test_a_delayed_step_answers_after_its_time(ask):
    model = ScriptedModel([ModelStep.delay(0.01, [HELLO])])
    loop = asyncio.get_running_loop()
    before = loop.time()
    assert (await ask(model)).output == [HELLO]
    assert loop.time() - before >= 0.009


@both_modes
@pytest.mark.parametrize("events", [0, 2, 3, 6])
async def test_a_cut_stream_is_an_error_in_both_modes(ask, events):
    with pytest.raises(StreamCutError):
        await ask(ScriptedModel([ModelStep.cut(events, [HELLO])]))


@both_modes
async def test_a_cut_after_the_end_cuts_nothing(ask):
    assert (await ask(ScriptedModel([ModelStep.cut(100, [HELLO])]))).output == [HELLO]


@both_modes
async def test_a_stream_can_break_with_an_error_of_choice(ask):
    error = ConnectionResetError("gone")
    model = ScriptedModel([ModelStep.cut(3, [HELLO], error=error)])
    with pytest.raises(ConnectionResetError):
        await ask(model)


@both_modes
@pytest.mark.parametrize(("events", "begun"), [(2, False), (3, True)])
async def test_how_far_a_cut_reply_had_come_is_told_to_those_who_did_not_see_it(ask, events, begun):
    """Output already begun is not retried in either mode, so both modes must know."""
    error = ConnectionResetError("gone")
    model = ScriptedModel([ModelStep.cut(events, [HELLO], error=error)])
    with pytest.raises(ConnectionResetError):
        await ask(model)
    advice = model.get_retry_advice(ModelRetryAdviceRequest(error, 1, ask is streamed))
    assert advice is not None
    assert advice.response_started == begun


async def test_exactly_so_many_events_come_before_the_cut():
    model = ScriptedModel([ModelStep.cut(4, [HELLO])])
    assert len([event async for event in model.stream_response(*asked(), **IDS)]) == 4


@both_modes
async def test_a_factory_makes_the_events_when_they_are_needed(ask):
    async def events(call: Any) -> Any:
        for piece in stream_of([assistant_message(call.input)], response_id="made"):
            yield piece

    reply = await ask(ScriptedModel([ModelStep.stream(events)]))
    assert (reply.output, reply.response_id) == ([assistant_message("hi")], "made")


async def test_leaving_a_stream_early_leaves_nothing_behind():
    model = ScriptedModel([[HELLO], ModelStep.cut(9, [HELLO])])
    for _ in range(2):
        stream = model.stream_response(*asked(), **IDS)
        assert (await anext(stream)).type == "response.created"
        await stream.aclose()  # type: ignore[attr-defined]


async def test_waiting_for_calls_ends_when_they_have_come():
    model = ScriptedModel([[HELLO]] * 3)
    waiting = asyncio.create_task(model.wait_for_call(3))
    for _ in range(2):
        await whole(model)
    await asyncio.sleep(0)
    assert not waiting.done()
    await whole(model)
    await waiting
    await model.wait_for_call(3)


# --- items -----------------------------------------------------------------------------------------------------------


def test_items_are_those_of_the_sdk_without_what_was_not_set():
    import agents.testing as theirs

    def dumped(item: Any) -> Any:
        return item.model_dump(exclude_unset=True)

    assert dumped(theirs.assistant_message("x")) == assistant_message("x")
    assert dumped(theirs.function_call("n", {"a": 1}, call_id="c")) == function_call("n", {"a": 1}, call_id="c")
    ours = function_call("n", "{}", call_id="c", item_id="i", namespace="s")
    assert dumped(theirs.function_call("n", "{}", call_id="c", item_id="i", namespace="s")) == ours


def test_a_handoff_is_called_by_agent_handoff_or_name():
    class Named:
        name = "Sales Team"

    class Made:
        tool_name = "to_sales"

    assert handoff_call(Named(), call_id="h1")["name"] == "transfer_to_sales_team"
    assert handoff_call(Made(), call_id="h1")["name"] == "to_sales"
    assert handoff_call("go", {"why": "x"}, call_id="h1") == function_call("go", {"why": "x"}, call_id="h1")


def test_a_final_value_is_written_as_json():
    assert final({"a": 1}).output == [assistant_message('{"a": 1}')]


def test_no_provider_library_is_needed():
    code = (
        "import sys\n"
        "sys.modules['openai'] = sys.modules['agents'] = None\n"
        "import asyncio\n"
        "from standfast.testing import ScriptedModel, final\n"
        "from standfast._src.models.model_settings import ModelSettings\n"
        "from standfast._src.models.interface import ModelTracing\n"
        "async def main():\n"
        "    model = ScriptedModel([final('hi')], chunk_chars=1)\n"
        "    args = (None, 'x', ModelSettings(), [], None, [], ModelTracing.DISABLED)\n"
        "    ids = dict(previous_response_id=None, conversation_id=None, prompt=None)\n"
        "    print(len([event async for event in model.stream_response(*args, **ids)]))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("10", "")
