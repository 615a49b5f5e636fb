"""Structured outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents import Agent, AgentOutputSchema, AgentOutputSchemaBase, ModelBehaviorError, Runner, UserError
from agents.agent_output import AgentOutputSchema as SameSchema
from agents.testing import ScriptedModel, assistant_message
from pydantic import BaseModel
from typing_extensions import TypedDict


class Event(BaseModel):
    name: str
    guests: list[str]


@dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    key: str
    value: int


async def _answered(output_type: Any, text: str) -> Any:
    agent = Agent(name="A", output_type=output_type, model=ScriptedModel([[assistant_message(text)]]))
    return await Runner.run(agent, "Go")


async def example_kinds_of_outputs(folder):
    party = await _answered(Event, '{"name": "Party", "guests": ["Ada"]}')
    point = await _answered(Point, '{"response": {"x": 1, "y": 2}}')
    row = await _answered(Row, '{"key": "k", "value": 3}')
    numbers = await _answered(list[int], '{"response": [1, 2, 3]}')
    number = await _answered(int, '{"response": 4}')
    text = await _answered(str, "plain")
    as_event = party.final_output_as(Event)
    assert isinstance(party.final_output, Event)
    assert isinstance(point.final_output, Point)
    kinds = [type(r.final_output).__name__ for r in (party, point, row, numbers, number, text)]
    return kinds, as_event.guests, point.final_output.y, [r.final_output for r in (row, numbers, number, text)]


async def example_an_output_that_does_not_fit(folder):
    errors = []
    for text in ("not json", '{"name": "Party"}', '{"name": 1, "guests": 2}'):
        try:
            await _answered(Event, text)
        except ModelBehaviorError as error:
            errors.append(error)
    party = await _answered(Event, '{"name": "Party", "guests": []}')
    try:
        party.final_output_as(str, raise_if_incorrect_type=True)
    except TypeError as error:
        errors.append(isinstance(error, TypeError))
    return errors


async def example_a_schema_that_is_not_strict(folder):
    class Open(BaseModel):
        values: dict[str, int]

    refused = None
    try:
        AgentOutputSchema(Open)
    except UserError as error:
        refused = error
    result = await _answered(AgentOutputSchema(Open, strict_json_schema=False), '{"values": {"a": 1}}')
    schema = AgentOutputSchema(Event)
    return (
        refused,
        result.final_output.values,
        schema.name(),
        schema.is_strict_json_schema(),
        schema.is_plain_text(),
        schema.json_schema(),
        SameSchema is AgentOutputSchema,
    )


async def example_a_schema_of_ones_own(folder):
    class Shouted(AgentOutputSchemaBase):
        def is_plain_text(self) -> bool:
            return False

        def name(self) -> str:
            return "Shouted"

        def json_schema(self) -> dict[str, Any]:
            return {"type": "string"}

        def is_strict_json_schema(self) -> bool:
            return False

        def validate_json(self, json_str: str) -> Any:
            return json_str.upper()

    return await _answered(Shouted(), "hello")


async def example_what_the_model_is_told(folder):
    model = ScriptedModel([[assistant_message('{"name": "P", "guests": []}')]])
    await Runner.run(Agent(name="A", output_type=Event, model=model), "Go")
    schema = model.last_call.output_schema
    return schema.name(), schema.json_schema()
