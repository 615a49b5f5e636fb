"""A payload is data: cut, edited, foreign or absurd, it is refused before anything runs, and it names no code."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import standfast
from standfast import Runner, RunState, RunStateError, StandfastError, UserError
from tests.golden.states import FOLDER

from .test_golden_states import agent_for, read, session_for

PAYLOADS = [read(file)[0] for file in sorted(FOLDER.rglob("*.json"))]
TEXTS = [json.dumps(payload) for payload in PAYLOADS]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


async def load(text: str, like: dict[str, Any]) -> RunState | None:
    """The state, or None if it was refused as it should be."""
    try:
        return await RunState.from_string(agent_for(like), text)
    except (RunStateError, UserError):
        return None


async def use(state: RunState, like: dict[str, Any]) -> None:
    """Do with a state that was accepted whatever a program would: it works, or fails with an error of ours."""
    try:
        for item in state.get_interruptions():
            state.approve(item)
        state.get_calls()
        json.loads(state.to_string())
        await Runner.run(agent_for(like), state, session=await session_for(like))
    except StandfastError:
        pass


# --- cut and foreign -------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.sampled_from(range(len(TEXTS))), st.floats(0, 1, exclude_max=True))
async def test_a_truncated_text_is_refused(which: int, where: float):
    text = TEXTS[which]
    with pytest.raises(RunStateError):
        await RunState.from_string(agent_for(PAYLOADS[which]), text[: int(len(text) * where)])


@settings(max_examples=100)
@given(st.one_of(json_values.map(json.dumps), st.text(), st.binary().map(lambda data: data.decode("latin-1"))))
async def test_what_is_no_saved_run_is_refused(text: str):
    with pytest.raises(RunStateError):
        await RunState.from_string(agent_for(PAYLOADS[0]), text)


@pytest.mark.parametrize("wrong", [None, 7, "text", [], [1], object()], ids=lambda wrong: type(wrong).__name__)
async def test_what_is_not_even_an_object_is_refused(wrong: Any):
    agent = agent_for(PAYLOADS[0])
    with pytest.raises(RunStateError):
        await RunState.from_json(agent, wrong)
    if not isinstance(wrong, str):
        with pytest.raises(RunStateError):
            await RunState.from_string(agent, wrong)


@pytest.mark.parametrize("depth", [50, 500, 5_000, 100_000])
async def test_deep_nesting_is_refused_or_read_and_never_breaks_the_process(depth: int):
    payload = copy.deepcopy(next(one for one in PAYLOADS if one["turn"] and one["turn"]["calls"][0]["child"]))
    deep = f"{'[' * depth}{']' * depth}"
    for place in ("saved_context", "usage", "decisions"):
        text = json.dumps(payload | {place: "HERE"}).replace('"HERE"', deep)
        state = await load(text, payload)
        assert state is None or depth <= 500
    text = json.dumps(payload | {"spec": payload["spec"] | {"context": "HERE"}}).replace('"HERE"', deep)
    state = await load(text, payload)
    if state is not None:
        await use(state, payload)
    call = json.dumps(payload["turn"]["calls"][0])
    child = json.dumps(payload["turn"]["calls"][0]["child"])
    nested = call
    for _ in range(min(depth, 200)):
        nested = call.replace(child, child.replace(json.dumps(_inner_call(payload)), nested))
    await load(json.dumps(payload).replace(call, nested), payload)


COUNTS = [
    ("requests",),
    ("input_tokens",),
    ("output_tokens",),
    ("total_tokens",),
    ("input_tokens_details", "cached_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
    ("request_usage_entries", 0, "input_tokens"),
]


@pytest.mark.parametrize("place", COUNTS, ids=lambda place: ".".join(map(str, place)))
@pytest.mark.parametrize("count", ["1e999", "-1e999", "NaN"])
async def test_a_usage_that_is_not_a_count_is_refused(place: tuple[str | int, ...], count: str):
    usage: dict[str, Any] = {
        "input_tokens_details": {},
        "output_tokens_details": {},
        "request_usage_entries": [{"input_tokens": 1}],
    }
    inner: Any = usage
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = "HERE"
    text = json.dumps(PAYLOADS[0] | {"usage": usage}).replace('"HERE"', count)
    with pytest.raises(RunStateError, match="usage"):
        await RunState.from_string(agent_for(PAYLOADS[0]), text)


def _inner_call(payload: dict[str, Any]) -> Any:
    return payload["turn"]["calls"][0]["child"]["turn"]["calls"][0]


# --- edited ----------------------------------------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


PLACES = [list(places(payload))[1:] for payload in PAYLOADS]


def edited(payload: dict[str, Any], path: tuple[Any, ...], how: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(payload)
    around: Any = changed
    for key in path[:-1]:
        around = around[key]
    if how == "remove":
        del around[path[-1]]
    elif how == "double" and isinstance(around, list):
        around.append(copy.deepcopy(around[path[-1]]))
    else:
        around[path[-1]] = value
    return changed


@settings(max_examples=200)
@given(st.data())
async def test_an_edited_payload_is_refused_or_works_and_nothing_else(data: st.DataObject):
    """No KeyError, no assertion, no hang: an edit is noticed, or it makes another valid run."""
    which = data.draw(st.sampled_from(range(len(PAYLOADS))))
    payload = PAYLOADS[which]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(PLACES[which]))
        how = data.draw(st.sampled_from(["replace", "replace", "remove", "double"]))
        other = data.draw(st.sampled_from(PLACES[which]))
        value: Any = data.draw(json_values | st.just(_at(PAYLOADS[which], other)))
        try:
            payload = edited(payload, path, how, value)
        except (KeyError, IndexError, TypeError):
            continue  # the second edit's place went away with the first
    state = await load(json.dumps(payload), PAYLOADS[which])
    if state is not None:
        await use(state, PAYLOADS[which])


def _at(payload: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        payload = payload[key]
    return payload


def once_each() -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """Every place that any payload has, once: numbers in lists and the run's kind do not make another place."""
    seen = set()
    for payload, where in zip(PAYLOADS, PLACES, strict=True):
        for path in where:
            place = tuple("#" if isinstance(key, int) else key for key in path)
            if place not in seen:
                seen.add(place)
                yield payload, path


async def test_every_field_may_be_missing_or_of_another_kind():
    refused = 0
    for payload, path in once_each():
        for how, value in (
            ("remove", None),
            ("replace", None),
            ("replace", 7),
            ("replace", {"a": []}),
            ("replace", "x"),
        ):
            state = await load(json.dumps(edited(payload, path, how, value)), payload)
            refused += state is None
            if state is not None:
                await use(state, payload)
    assert refused > 100


# --- code ------------------------------------------------------------------------------------------------------------


async def test_nothing_in_a_payload_can_name_code_to_load():
    """Every text of a payload is replaced by the name of a module in turn; it is never imported."""
    bomb = "tests.runs.api.bomb"
    for payload, path in once_each():
        if isinstance(_at(payload, path), str):
            state = await load(json.dumps(edited(payload, path, "replace", f"{bomb}.Bomb")), payload)
            if state is not None:
                await use(state, payload)
    assert bomb not in sys.modules


def test_the_code_that_reads_payloads_has_no_way_to_load_code():
    modules = [
        "_src.runs.api.run_state",
        "_src.runs.api.saved_context",
        "_src.runs.engine.codec",
        "_src.runs.engine.upgrades",
        "_src.runs.engine.run",
        "_src.runs.persistence.resume_checks",
    ]
    for name in modules:
        module = __import__(f"standfast.{name}", fromlist=["_"])
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not imported & {"importlib", "pickle", "marshal", "pydoc", "runpy", "builtins"}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__", "globals", "open")


def test_loading_a_payload_imports_nothing_that_it_names():
    """In a process of its own, with the interpreter's own report of every import."""
    program = """
import asyncio, json, sys
from tests.golden.states import FOLDER
from tests.runs.api.test_golden_states import agent_for, read
from standfast import RunState
pairs = [read(file)[0] for file in sorted(FOLDER.rglob("*.json"))]
pairs[0]["saved_context"] = {"via": "asdict", "class": "antigravity", "module": "antigravity", "value": {}}
for payload in pairs:  # whatever is loaded lazily is loaded now
    asyncio.run(RunState.from_json(agent_for(payload), payload))
seen = []
sys.addaudithook(lambda event, args: seen.append(args[0]) if event == "import" else None)
for payload in pairs:
    asyncio.run(RunState.from_json(agent_for(payload), payload))
print(seen)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_environment())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def test_the_golden_payloads_were_found():
    assert len(PAYLOADS) > 20
    assert standfast.RunState is RunState
