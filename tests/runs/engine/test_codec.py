"""A saved run is the run and wants the same; what is not one is refused by name, whatever it is (D7, D9)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from runs.engine.schedule import Play

from standfast._src.base.errors import RunStateError
from standfast._src.base.json_values import decode_value, encode_value
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.codec import (
    decode_run,
    decode_saved,
    encode_ending,
    encode_head,
    encode_run,
    encode_tails,
    ending_of,
    has_ended,
)
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import Claimed, Concluded, Judged, Replied
from standfast._src.runs.engine.run import Conclusion, Entry, Response, Run, begin
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.engine.upgrades import VERSION
from tests.runs.engine import strategies as some

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
items = st.dictionaries(st.text(max_size=8), json_values, max_size=4)


def some_runs(script: Any, schedule: Any) -> list[Run]:
    """The runs a telling passes through."""
    seen: list[Run] = []
    play = Play(script)
    told = play.advanced

    def remembered(run: Run, event: Any) -> Run:
        after = told(run, event)
        seen.append(after)
        return after

    play.advanced = play.performers.moved = remembered  # type: ignore[method-assign]
    play.play(schedule)
    return [play.run, *seen]


@some.examples(100)
@given(st.lists(items, max_size=4), items, json_values, items)
def test_any_item_and_any_output_come_back_equal(given_items, reply, output, extra):
    """Unknown fields, integers of any size, odd text: a run keeps what a session would keep (A17)."""
    run = begin(run_id="run", agent="agent", input_items=given_items)
    entry = Entry("message_output_item", "agent", reply, extra)
    run = advance(run, Replied(1, (entry,), (), Response((reply,), extra, "r1")))
    for one in (run, advance(run, Concluded(1, Conclusion(True, output)))):
        again = decode_run(decode_value(encode_value(encode_run(one))))
        assert again == one
        assert json.dumps(encode_run(again)) == json.dumps(encode_run(one))  # 1 and 1.0 are equal, but not the same
        assert due(again) == due(one)


def test_text_that_is_not_unicode_and_numbers_without_bound_survive():
    strange = {"lone": "\ud800", "nul": "\x00", "big": 10**40, "small": -(2**70), "float": 1e300}
    run = begin(run_id="run", agent="agent", input_items=[strange])
    assert decode_run(decode_value(encode_value(encode_run(run)))) == run
    saved = SavedRun("run", 1, encode_head(run), {name: tail.records for name, tail in encode_tails(run, {}).items()})
    assert decode_saved(saved) == run


def test_a_run_in_its_encoding_shares_nothing_with_the_run():
    item = {"content": ["a"]}
    run = begin(run_id="run", agent="agent", input_items=[item])
    encode_run(run)["ledger"][0]["item"]["content"].append("b")
    assert item == {"content": ["a"]}


# --- what is not a run ------------------------------------------------------------------------------------------------


def assert_refused_or_usable(payload: Any) -> None:
    """Either RunStateError, or a run that all the pure functions take."""
    try:
        run = decode_run(payload)
    except RunStateError:
        return
    assert decode_run(encode_run(run)) == run
    due(run)
    assert run.status in ("running", "paused", "done", "failed", "cancelled")
    if not run.finished:
        due(advance(run, Claimed("me")))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def put(payload: Any, path: tuple[Any, ...], value: Any, *, drop: bool) -> Any:
    if not path:
        return value
    payload = copy.deepcopy(payload)
    around = payload
    for key in path[:-1]:
        around = around[key]
    if drop:
        del around[path[-1]]
    else:
        around[path[-1]] = value
    return payload


# What a careless or a hostile editor would write, in the places where numbers, lists and names are expected.
wrong = json_values | st.sampled_from(
    [-1, 0, 1, 2, 99, 2**63, 2**200, True, None, "", "waiting", "begun", "returned", [], {}, [[]], [0], [-1], 1.5]
)


@some.examples(250)
@given(st.data())
def test_an_edited_payload_is_a_run_or_is_refused(data):
    """A payload is data: fuzz it (issue 5)."""
    runs = some_runs(data.draw(some.scripts()), data.draw(some.gentle))
    payload = encode_run(data.draw(st.sampled_from(runs)))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(payload)))
        payload = put(payload, path, data.draw(wrong), drop=bool(path) and data.draw(st.booleans()))
        if not isinstance(payload, dict | list):
            break
    assert_refused_or_usable(payload)


@some.examples(200)
@given(json_values)
def test_any_json_at_all_is_refused_or_is_a_run(value):
    assert_refused_or_usable(value)
    assert_refused_or_usable({"schema": "standfast.run", "version": VERSION, "spec": value, "ledger": value})


@some.examples(200)
@given(st.data())
def test_a_damaged_save_is_refused_or_is_a_run(data):
    """Truncated, with a byte flipped, with records missing: RunStateError, nothing else."""
    run = data.draw(st.sampled_from(some_runs(data.draw(some.scripts(0)), [])))
    head = encode_head(run)
    logs = {name: list(tail.records) for name, tail in encode_tails(run, {}).items()}
    kind = data.draw(st.sampled_from(["cut the head", "flip a byte", "cut a log", "cut a record", "lose a log"]))
    name = data.draw(st.sampled_from(sorted(logs)))
    if kind == "cut the head":
        head = head[: data.draw(st.integers(0, len(head) - 1))]
    elif kind == "flip a byte":
        place = data.draw(st.integers(0, len(head) - 1))
        head = head[:place] + bytes([head[place] ^ data.draw(st.integers(1, 255))]) + head[place + 1 :]
    elif kind == "cut a log":
        logs[name].pop()
    elif kind == "cut a record":
        logs[name][-1] = logs[name][-1][:-1]
    else:
        del logs[name]
    try:
        again = decode_saved(SavedRun("run", 1, head, logs))
    except RunStateError:
        return
    assert kind == "flip a byte", "something is missing and nobody noticed"
    assert_refused_or_usable(encode_run(again))


@pytest.mark.parametrize("lengths", [-1, True, None, "1", 1.0, 10**30])
def test_a_head_with_impossible_lengths_is_refused(lengths):
    run = begin(run_id="run", agent="agent", input_items=[{"role": "user", "content": "hi"}])
    head = decode_value(encode_head(run))
    head["lengths"]["ledger"] = lengths
    logs = {name: tail.records for name, tail in encode_tails(run, {}).items()}
    with pytest.raises(RunStateError):
        decode_saved(SavedRun("run", 1, encode_value(head), logs))


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ("text", "not a saved run"),
        ({}, "not a standfast run"),
        ({"$schemaVersion": "1.17"}, "OpenAI Agents SDK, version '1.17'"),
        ({"schema": "standfast.run"}, "not a version"),
        ({"schema": "standfast.run", "version": "1"}, "not a version"),
        ({"schema": "standfast.run", "version": True}, "not a version"),
        ({"schema": "standfast.run", "version": 0}, "not a version"),
        ({"schema": "standfast.run", "version": VERSION + 1}, "newer standfast"),
        ({"schema": "standfast.run", "version": VERSION}, "cannot be used|can be used"),
    ],
)
def test_newer_foreign_and_unknown_payloads_are_refused_by_name(payload, says):
    """D9."""
    with pytest.raises(RunStateError, match=says):
        decode_run(payload)


def test_a_run_nested_deeper_than_anybody_nests_is_refused_and_does_not_break_the_reader():
    run = begin(run_id="run", agent="agent", input_items=[])
    payload: dict[str, Any] = encode_run(run)
    call = {"id": "c", "name": "n", "kind": "agent", "arguments": "{}", "digest": "d"}
    for _ in range(3_000):
        child = {name: value for name, value in payload.items() if name not in ("schema", "version")}
        turn = {"number": 0, "agent": "a", "reply": [], "calls": [{**call, "child": child}]}
        payload = {**encode_run(run), "turn": turn}
    with pytest.raises(RunStateError):
        decode_run(payload)


# --- saving what is new -----------------------------------------------------------------------------------------------


@some.examples(60)
@given(some.scripts(), some.gentle, st.lists(st.booleans(), min_size=30, max_size=30))
def test_saving_only_what_is_new_at_any_moments_gives_the_whole_run(script, schedule, when):
    uninterrupted = [action for action in schedule if action[0] not in ("crash", "strike", "hunt")]
    runs = [run for run in some_runs(script, uninterrupted)[1:] if run.spec.run_id == "run"]
    logs: dict[str, list[bytes]] = {}
    for number, run in enumerate(runs):
        if number < len(when) and not when[number]:
            continue
        for name, tail in encode_tails(run, {name: len(log) for name, log in logs.items()}).items():
            assert tail.start == len(logs.get(name, []))
            logs[name] = [*logs.get(name, []), *tail.records]
        again = decode_saved(SavedRun("run", 1, encode_head(run), logs))
        assert again == run
        assert due(again) == due(run)


def test_of_a_run_that_has_ended_its_ending_can_be_all_that_is_kept():
    run = advance(begin(run_id="run", agent="agent", input_items=[]), Replied(1, (), (), Response((), {})))
    assert not has_ended(SavedRun("run", 1, encode_head(run)))
    assert ending_of(SavedRun("run", 1, encode_head(run))) is None
    run = advance(run, Concluded(1, Conclusion(True, {"a": [1]}), judged=True))
    saved = SavedRun("run", 2, encode_ending(run))
    ending = ending_of(saved)
    assert ending is not None
    assert (ending["status"], ending["agent"], ending["output"]) == ("done", "agent", {"a": [1]})
    with pytest.raises(RunStateError, match="has ended"):
        decode_saved(saved)


@given(st.binary(max_size=60) | json_values.map(encode_value))
def test_bytes_that_are_no_head_have_no_ending(head):
    saved = SavedRun("run", 1, head)
    assert not has_ended(saved)
    assert ending_of(saved) is None
    with pytest.raises(RunStateError):
        decode_saved(saved)


def test_a_judged_run_is_saved_with_its_results():
    run = begin(run_id="run", agent="agent", input_items=[], verdict="blocking")
    run = advance(run, Judged("input", ({"guardrail": "polite", "info": [1, None]},)))
    assert decode_run(encode_run(run)).results == Log([{"guardrail": "polite", "info": [1, None]}])


def test_a_record_of_another_kind_is_named_before_its_lengths_are_looked_at():
    """A run store may hold other records than runs: whoever resumes one by mistake is told what it is."""
    saved = SavedRun("call", 1, encode_value({"schema": "standfast.call", "version": 1, "lengths": {}}))
    with pytest.raises(RunStateError, match=r"a record of another kind, 'standfast\.call'"):
        decode_saved(saved)
