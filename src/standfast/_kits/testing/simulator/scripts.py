"""Agents and conversations made from a seed: parallel tools, handoffs, nested agents, guardrails, approvals, reasoning.

Everything that must be found again in a retelling carries its place: `2#3.1` is call 1 of turn 3 of conversation turn
2. The model reads from the request which place comes next, so it says the same however often it is asked; asked
again, it uses other ids (`2#3.1~2`), as real models do. What it says never depends on what tools answered: that is
what makes two tellings comparable even where an outcome got lost.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from standfast._kits.testing.answering_model import AnsweringModel
from standfast._kits.testing.script import ModelCall, ModelStep, assistant_message, function_call, reasoning
from standfast._kits.testing.simulator.world import World
from standfast._src.agents.agent import Agent
from standfast._src.agents.guardrails import GuardrailFunctionOutput, input_guardrail, output_guardrail
from standfast._src.agents.handoff_data import HandoffInputData
from standfast._src.agents.handoffs import handoff
from standfast._src.agents.retry_policies import retry_policies
from standfast._src.items.usage import Usage
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.retry import ModelRetrySettings
from standfast._src.tools.function_tool import function_tool

if TYPE_CHECKING:
    from standfast._src.agents.context import RunContextWrapper
    from standfast._src.base.json_values import Item
    from standfast._src.runs.api.run_state import RunState

_SALT = re.compile(r"~\d+")
_PLACE = re.compile(r"(?<![\d.])(\d+(?:\.\d+\.\d+)?)#(\d+)")


def remove_salt(text: str) -> str:
    """Remove the attempt numbers of ids from a text."""
    return _SALT.sub("", text)


# --- what happens ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """Content of a turn: calls by the names of their tools."""

    calls: tuple[str, ...] = ()
    thinks: bool = False
    searches: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: an input, and the turns that follow, then an answer."""

    input: str
    turns: tuple[PlannedTurn, ...]
    answer: str = "answer"


TOOLS = ("note", "pay", "pay", "look", "check", "book", "fails", "late")


def plan_run(chance: random.Random, number: int, *, guarded: bool) -> Plan:
    """A run made by chance."""
    words = [f"question {number}#0"]
    if guarded and chance.random() < 0.15:
        words.append(chance.choice(("trips-gate", "trips-watch")))
    turns = [_turn(chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4)))]
    if chance.random() < 0.12:
        turns.append(PlannedTurn((*_calls(chance, 2), "finish")))
    answer = "forbidden" if guarded and chance.random() < 0.1 else "answer"
    return Plan(" ".join(words), tuple(turns), answer)


def _turn(chance: random.Random) -> PlannedTurn:
    if chance.random() < 0.08:
        return PlannedTurn((), searches=True)
    calls = _calls(chance, 4) or ("note",)
    if chance.random() < 0.2:
        place = chance.randrange(len(calls) + 1)
        calls = (*calls[:place], "transfer", *calls[place:])
        if chance.random() < 0.2:
            calls = (*calls, "transfer")
    elif chance.random() < 0.2:
        calls = (*calls, "help")
    return PlannedTurn(calls, thinks=chance.random() < 0.3)


def _calls(chance: random.Random, most: int) -> tuple[str, ...]:
    return tuple(chance.choice(TOOLS) for _ in range(chance.randrange(most)))


# --- the model -------------------------------------------------------------------------------------------------------


class Speaker:
    """Model behaviour that follows the plans, for an agent of this name."""

    def __init__(self, world: World, plans: list[Plan], agent: str, *, nested: bool = False) -> None:
        self._world, self._plans, self._agent, self._nested = world, plans, agent, nested

    def model(self) -> AnsweringModel:
        """Build the model."""
        return AnsweringModel(self.answer)

    def answer(self, call: ModelCall) -> ModelStep:
        """Return the next reply of the conversation."""
        name, turn = self._place(call.input)
        self._world.asked[f"{name}#{turn}"] += 1
        salt = f"~{self._world.asked[f'{name}#{turn}']}"
        items = self._items(name, turn, salt)
        usage = Usage(requests=1, input_tokens=turn, output_tokens=len(items), total_tokens=turn + len(items))
        return ModelStep(output=items, usage=usage, response_id=f"resp {name}#{turn}{salt}")

    def _place(self, items: object) -> tuple[str, int]:
        places = _PLACE.findall(json.dumps(items, ensure_ascii=False))
        names = [name for name, _ in places if ("." in name) == self._nested]
        name = max(names, key=lambda name: [int(part) for part in name.split(".")])
        return name, 1 + max(int(turn) for found, turn in places if found == name)

    def _items(self, name: str, turn: int, salt: str) -> list[Any]:
        plan = self._plan(name)
        place = f"{name}#{turn}"
        if turn > len(plan.turns):
            return [assistant_message(f"{plan.answer} {place}", item_id=f"{place}.m{salt}")]
        said = plan.turns[turn - 1]
        items: list[Any] = []
        if said.thinks:
            items.append(reasoning(f"thought {place}", item_id=f"{place}.r{salt}"))
        if said.searches:
            items.append({"type": "web_search_call", "id": f"{place}.w{salt}", "status": "completed"})
        for index, tool in enumerate(said.calls):
            items.append(self._call(tool, f"{place}.{index}", salt, f"{name}.{turn}.{index}"))
        return items

    def _call(self, tool: str, place: str, salt: str, nested: str) -> Item:
        call_id = f"{place}{salt}"
        if tool == "transfer":
            return function_call("transfer", {}, call_id=call_id)
        if tool == "help":
            return function_call("help", {"input": f"{nested}#0"}, call_id=call_id)
        return function_call(tool, {"what": place}, call_id=call_id)

    def _plan(self, name: str) -> Plan:
        if not self._nested:
            return self._plans[int(name)]
        # A nested run is short, and told from its name alone, so that it is the same in every process.
        chance = random.Random(name)
        calls = tuple(chance.choice(("note", "pay", "look", "book")) for _ in range(chance.randrange(3)))
        return Plan(name, (PlannedTurn(calls),) if calls else ())


# --- the agents ------------------------------------------------------------------------------------------------------


@functools.cache  # they hold no state, and their schemas cost more than a whole life
def _tools() -> tuple[Any, ...]:
    @function_tool(idempotent=True)
    async def note(what: str) -> str:
        """Harmless to repeat."""
        return f"noted {what}"

    @function_tool
    async def pay(what: str) -> str:
        """Must not be repeated."""
        await asyncio.sleep(0)
        return f"paid {what}"

    @function_tool(on_unknown="ask")
    async def check(what: str) -> str:
        """A person is asked whether to repeat it."""
        await asyncio.sleep(0.01)
        return f"checked {what}"

    @function_tool(needs_approval=True)
    async def book(what: str) -> str:
        """Waits for a person."""
        return f"booked {what}"

    @function_tool
    def look(what: str) -> str:
        """A function for a thread."""
        return f"looked {what}"

    @function_tool
    async def fails(what: str) -> str:
        """Raises, and the model is told."""
        raise ValueError(f"no luck with {what}")

    @function_tool(timeout=1.0)
    async def late(what: str) -> str:
        """Takes longer than it may."""
        await asyncio.sleep(5)
        return f"never {what}"

    @function_tool
    async def finish(what: str) -> str:
        """Its result is the run's."""
        return f"finished {what}"

    return note, pay, check, book, look, fails, late, finish


def _guards() -> dict[str, Any]:
    @input_guardrail(name="gate", run_in_parallel=False)
    async def gate(
        context: RunContextWrapper[Any], agent: Agent[Any], given: str | list[Item]
    ) -> GuardrailFunctionOutput:
        await asyncio.sleep(0)
        return GuardrailFunctionOutput(None, "trips-gate" in json.dumps(given))

    @input_guardrail(name="watch")
    async def watch(
        context: RunContextWrapper[Any], agent: Agent[Any], given: str | list[Item]
    ) -> GuardrailFunctionOutput:
        await asyncio.sleep(0.02)
        return GuardrailFunctionOutput(None, "trips-watch" in json.dumps(given))

    @output_guardrail(name="judge")
    async def judge(context: RunContextWrapper[Any], agent: Agent[Any], output: object) -> GuardrailFunctionOutput:
        await asyncio.sleep(0.01)
        return GuardrailFunctionOutput(None, "forbidden" in str(output))

    return {"input_guardrails": [gate, watch], "output_guardrails": [judge]}


def _short(data: HandoffInputData) -> HandoffInputData:
    """Filter the view of the next agent: the input and the handoff's turn, nothing between."""
    return data.clone(pre_handoff_items=())


@dataclass(frozen=True, slots=True)
class Conversation:
    """Product of a seed: inputs, and a factory of their agents for any process."""

    plans: list[Plan]
    factory: Callable[[World], Agent[Any]]


def conversation(seed: int) -> Conversation:
    """Generate the conversation of a seed."""
    chance = random.Random(f"conversation {seed}")
    guarded, filtered, retried = chance.random() < 0.4, chance.random() < 0.3, chance.random() < 0.5
    plans = [plan_run(chance, number, guarded=guarded) for number in range(chance.choice((1, 1, 2, 3)))]
    return Conversation(plans, conversation_of(plans, guarded=guarded, filtered=filtered, retried=retried))


def conversation_of(
    plans: list[Plan], *, guarded: bool = False, filtered: bool = False, retried: bool = False
) -> Callable[[World], Agent[Any]]:
    """Return the factory of the agents of these plans: with guardrails, a handoff filter, retries."""
    return lambda world: _agents(world, plans, guarded, filtered, retried)


def _agents(world: World, plans: list[Plan], guarded: bool, filtered: bool, retried: bool) -> Agent[Any]:
    backoff = {"initial_delay": 0.5, "max_delay": 2.0, "jitter": True}
    retry = ModelRetrySettings(max_retries=2, backoff=backoff, policy=retry_policies.network_error())
    settings = ModelSettings(retry=retry if retried else None)
    more: dict[str, Any] = {"tool_use_behavior": {"stop_at_tool_names": ["finish"]}, "model_settings": settings}
    if guarded:
        more |= _guards()
    helper = Agent(name="Helper", model=Speaker(world, plans, "Helper", nested=True).model(), tools=list(_tools()))
    help_tool = helper.as_tool("help", "Ask the helper.")
    first: Agent[Any] = Agent(
        name="First",
        model=Speaker(world, plans, "First").model(),
        tools=[*_tools(), help_tool],
        **more,
    )
    second: Agent[Any] = Agent(
        name="Second",
        model=Speaker(world, plans, "Second").model(),
        tools=[*_tools(), help_tool],
        handoffs=[handoff(first, tool_name_override="transfer")],
        **more,
    )
    # One name, whichever agent hands over: a handoff that got lost must not change what the model says next.
    first.handoffs = [handoff(second, tool_name_override="transfer", input_filter=_short if filtered else None)]
    return first


def decide(state: RunState[Any]) -> None:
    """Decide about every waiting call, the same in every run of a seed."""
    for item in state.get_interruptions():
        if zlib.crc32(remove_salt(item.call_id or "").encode()) % 4:
            state.approve(item)
        else:
            state.reject(item, rejection_message="not today")
