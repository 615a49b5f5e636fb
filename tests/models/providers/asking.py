"""One way to ask a model, streaming or not, so that a test can say the same thing of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from standfast._src.items.items import ModelResponse, to_json_item
from standfast._src.items.usage import Usage
from standfast._src.models.interface import Model, ModelTracing
from standfast._src.models.model_settings import ModelSettings


@dataclass
class Tool:
    """A function tool, reduced to what an adapter looks at."""

    name: str
    description: str = "a tool"
    params_json_schema: dict[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    )
    strict_json_schema: bool = True


@dataclass
class Handoff:
    """A handoff, reduced to what an adapter looks at."""

    tool_name: str
    tool_description: str = "hands over"
    input_json_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict_json_schema: bool = False


class Schema:
    """An output type that is an object with one number."""

    def is_plain_text(self) -> bool:
        return False

    def json_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}

    def is_strict_json_schema(self) -> bool:
        return True


async def ask(
    model: Model,
    input: str | list[Any],
    *,
    streamed: bool = False,
    instructions: str | None = None,
    settings: ModelSettings | None = None,
    tools: list[Any] | None = None,
    schema: Any = None,
    handoffs: list[Any] | None = None,
    previous_response_id: str | None = None,
    conversation_id: str | None = None,
    prompt: Any = None,
) -> ModelResponse:
    """The reply, however it is asked for: what a stream ends with is read as the runner reads it."""
    settings = settings or ModelSettings()
    ids = {"previous_response_id": previous_response_id, "conversation_id": conversation_id, "prompt": prompt}
    rest = (settings, tools or [], schema, handoffs or [], ModelTracing.DISABLED)
    if not streamed:
        return await model.get_response(instructions, input, *rest, **ids)
    events = [event async for event in model.stream_response(instructions, input, *rest, **ids)]
    assert events[-1].type == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1].response
    return ModelResponse(list(final.output), Usage.from_provider(final.usage), final.id or None)


def items(reply: ModelResponse) -> list[dict[str, Any]]:
    """What the reply says, as JSON."""
    return [to_json_item(item) for item in reply.output]


def said(reply: ModelResponse) -> str:
    """The text of the reply."""
    return "".join(part["text"] for item in items(reply) for part in item.get("content", ()) if "text" in part)
