"""Conversion of the arguments of an agent tool's call to the input of the agent's run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import ModelBehaviorError, SettingTypeError, UserError
from standfast._src.base.json_values import Item, JsonValue
from standfast._src.base.type_names import describe_type
from standfast._src.items.texts_for_models import DEFAULT_TEXTS, model_text
from standfast._src.tools.prepared_arguments import INVALID, UNKNOWN, Prepared, compare
from standfast._src.tools.schema import unreadable_arguments
from standfast._src.tools.strict_schema import ensure_strict_json_schema

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class StructuredToolInputBuilderOptions(TypedDict, total=False):
    """Argument of an `input_builder`."""

    params: Any
    """The arguments, as JSON."""

    summary: str | None
    """The fields in words, if simple and described."""

    json_schema: dict[str, Any] | None
    """Their schema, with `include_input_schema`."""


StructuredToolInputResult: TypeAlias = str | list[Item]
"""Input of the inner run."""

StructuredToolInputBuilder = Callable[
    [StructuredToolInputBuilderOptions], "StructuredToolInputResult | Awaitable[StructuredToolInputResult]"
]
"""Makes the inner run's input of the call's arguments."""


@dataclass(frozen=True)
class StructuredInputSchemaInfo:
    """Description of the fields of structured input."""

    summary: str | None = None
    """In words, if the fields are simple and described."""

    json_schema: dict[str, Any] | None = None
    """As a schema, if wanted."""


_SINGLE_INPUT: Item = {
    "properties": {"input": {"title": "Input", "type": "string"}},
    "required": ["input"],
    "title": "AgentAsToolInput",
    "type": "object",
    "additionalProperties": False,
}
STRUCTURED_INPUT_PREAMBLE = DEFAULT_TEXTS.structured_input
"""Text before structured input, for the called agent."""


class ToolArguments:
    """Converter from a call's arguments to the nested run's input."""

    def __init__(
        self,
        tool_name: str,
        parameters: type[Any] | None,
        builder: StructuredToolInputBuilder | None,
        *,
        shows_schema: bool,
    ) -> None:
        self.tool_name, self.builder = tool_name, builder
        self.adapter: TypeAdapter[Any] | None = None
        self.schema: Item = _SINGLE_INPUT
        if parameters is not None:
            self.adapter = _adapter_of(parameters)
            self.schema = ensure_strict_json_schema(self.adapter.json_schema())
        self.structured = parameters is not None or builder is not None
        self.about = StructuredInputSchemaInfo()
        if self.structured:
            has_schema = shows_schema and parameters is not None
            self.about = build_structured_input_schema_info(self.schema, include_json_schema=has_schema)

    async def read(self, arguments: str) -> tuple[str | list[Item], Any]:
        """Return the nested run's input, and its `tool_input` (None for the usual single `input`)."""
        params = self._params(arguments)
        if not self.structured:
            text: str = params["input"]
            return text, None
        made = await resolve_agent_tool_input(params=params, schema_info=self.about, input_builder=self.builder)
        return made, params

    def prepare(self, arguments: str) -> Prepared:
        """Read a call's arguments before the call, except with a type of the application: making one may run
        its code.
        """
        if self.adapter is not None:
            return UNKNOWN
        try:
            return compare(arguments, self._single_input(arguments))
        except ModelBehaviorError:
            return INVALID
        except RecursionError:
            return UNKNOWN

    def _params(self, arguments: str) -> JsonValue:
        if self.adapter is None:
            return self._single_input(arguments)
        from pydantic import ValidationError

        try:
            parsed = self.adapter.validate_json(arguments or "{}")
        except ValidationError as error:
            raise unreadable_arguments(self.tool_name, error) from None  # the cause would carry the values
        return self.adapter.dump_python(parsed, mode="json")

    def _single_input(self, arguments: str) -> Item:
        try:
            params = json.loads(arguments or "{}")
        except ValueError:
            params = None
        if not isinstance(params, dict) or not isinstance(params.get("input"), str):
            raise ModelBehaviorError(
                f"Invalid JSON input for tool {self.tool_name}: expected a JSON object with the text 'input'",
                "Send one JSON object as the arguments.",
            )
        return {"input": params["input"]}


def _adapter_of(parameters: object) -> TypeAdapter[Any]:
    from pydantic import BaseModel, TypeAdapter

    if not isinstance(parameters, type) or not (is_dataclass(parameters) or issubclass(parameters, BaseModel)):
        raise SettingTypeError(
            "the parameters of an agent tool are no type of fields", "Give a dataclass or a pydantic model."
        )
    return TypeAdapter(parameters)


def is_agent_tool_input(value: object) -> bool:
    """Return whether arguments consist of the usual single `input`."""
    return isinstance(value, dict) and isinstance(value.get("input"), str) and len(value) == 1


def build_structured_input_schema_info(
    params_schema: dict[str, Any] | None, *, include_json_schema: bool
) -> StructuredInputSchemaInfo:
    """Describe the fields of structured input: a summary in words, and the schema if wanted."""
    if not params_schema:
        return StructuredInputSchemaInfo()
    return StructuredInputSchemaInfo(_summary_of(params_schema), params_schema if include_json_schema else None)


async def resolve_agent_tool_input(
    *,
    params: JsonValue,
    schema_info: StructuredInputSchemaInfo | None = None,
    input_builder: StructuredToolInputBuilder | None = None,
) -> str | list[Item]:
    """Return the nested run's input: the builder's result, or the default text if the schema adds to the arguments."""
    about = schema_info or StructuredInputSchemaInfo()
    if input_builder is None and about.summary is None and about.json_schema is None:
        return params["input"] if is_agent_tool_input(params) else json.dumps(params)
    options: StructuredToolInputBuilderOptions = {
        "params": params,
        "summary": about.summary,
        "json_schema": about.json_schema,
    }
    made: Any = (input_builder or default_tool_input_builder)(options)
    made = await maybe_await(made)
    if not isinstance(made, str | list):
        raise UserError(
            f"the input_builder of an agent tool returned {describe_type(made)}",
            "Return a text or a list of input items.",
        )
    return made


def default_tool_input_builder(options: StructuredToolInputBuilderOptions) -> str:
    """Format the nested run's input as text: the data, then its schema or a summary of it."""
    parts = [model_text("structured_input"), "## Data", "```json", json.dumps(options.get("params"), indent=2), "```"]
    schema, summary = options.get("json_schema"), options.get("summary")
    if schema is not None:
        parts += ["## JSON schema of the data", "```json", json.dumps(schema, indent=2), "```"]
    elif summary:
        parts += ["## Fields of the data", summary]
    return "\n".join(parts)


def _summary_of(schema: Item) -> str | None:
    """Describe the fields in words; None if a field is too complicated, or nothing is described."""
    lines = []
    described = bool(schema.get("description"))
    for name, field in schema.get("properties", {}).items():
        kind = _kind_of(field)
        if kind is None:
            return None
        about = field.get("description")
        described = described or bool(about)
        lines.append(f"- {name} ({kind}){f': {about}' if about else ''}")
    if not described:
        return None
    return "\n".join([str(schema["description"]), *lines] if schema.get("description") else lines)


def _kind_of(field: object) -> str | None:
    if not isinstance(field, dict) or field.keys() & {"properties", "items", "anyOf", "allOf", "$ref"}:
        return None
    if "enum" in field:
        return " | ".join(json.dumps(value) for value in field["enum"])
    if "const" in field:
        return json.dumps(field["const"])
    kind = field.get("type")
    if isinstance(kind, list):
        kind = " | ".join(str(each) for each in kind)
    return kind if isinstance(kind, str) and "object" not in kind and "array" not in kind else None
