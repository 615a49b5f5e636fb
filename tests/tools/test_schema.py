"""From a function to a schema and back, compared with the OpenAI Agents SDK on the same functions."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from agents import function_schema as theirs
from hypothesis import given, strategies as st
from pydantic import AfterValidator, BaseModel, Field, field_validator
from typing_extensions import TypedDict

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import ModelBehaviorError, UserError
from standfast._src.tools.schema import function_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int = Field(description="the x")
    y: str | None = None


@dataclasses.dataclass
class Line:
    start: Point
    others: list[Point] = dataclasses.field(default_factory=list)


class Options(TypedDict):
    fast: bool


class Node(BaseModel):
    value: int
    children: list[Node] = []
    next: Node | None = Field(None, description="the next one")


def plain(a: int, b: str = "x", *, c: Colour, d: Point | None = None, e: Literal["u", "v"] = "u") -> str:
    """Do it.

    Thoroughly.

    Args:
        a: The a.
        b (str): The b.
    """
    return ""


def nested(line: Line, options: Options, node: Node, *points: int) -> None:
    """Draw.

    Parameters
    ----------
    line : Line
        The line.
    *points : int
        More points.
    """


def annotated(
    count: Annotated[int, Field(ge=1, le=9, description="how many")],
    name: Annotated[str, "the name"],
    when: Annotated[datetime.date, Field(description="the day")] = datetime.date(2020, 1, 1),
    size: int = Field(3, gt=0, description="the size"),
    both: Annotated[int, "plain words"] = Field(2, description="field words"),
) -> None:
    pass


def loose(
    anything: Any, untyped, mapping: dict[str, int], unique: set[int], pair: tuple[int, str] = (1, "a"), **more: float
) -> None:  # type: ignore[no-untyped-def]
    """Loose.

    :param anything: whatever
    :param more: the rest
    """


def nothing() -> None:
    pass


def with_context(ctx: RunContextWrapper[Any], a: int) -> None:
    """With context."""


CASES: list[tuple[Callable[..., Any], bool]] = [
    (plain, True),
    (plain, False),
    (nested, True),
    (annotated, True),
    (loose, False),
    (nothing, True),
]


@pytest.mark.parametrize(("function", "strict"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_schema_is_the_one_the_sdk_makes(function: Callable[..., Any], strict: bool):
    ours = function_schema(function, strict_json_schema=strict)
    other = theirs.function_schema(function, strict_json_schema=strict)
    assert ours.params_json_schema == other.params_json_schema
    assert ours.description == other.description
    assert (ours.name, ours.takes_context, ours.strict_json_schema) == (
        other.name,
        other.takes_context,
        other.strict_json_schema,
    )


def test_names_and_descriptions_can_be_given():
    schema = function_schema(plain, name_override="n", description_override="d", use_docstring_info=False)
    assert (schema.name, schema.description) == ("n", "d")
    assert "description" not in schema.params_json_schema["properties"]["a"]


# --- back to a call --------------------------------------------------------------------------------------------------


def call(function: Callable[..., Any], arguments: str, *, strict: bool = True) -> Any:
    args, kwargs = function_schema(function, strict_json_schema=strict).read(arguments)
    return function(*args, **kwargs)


def test_arguments_arrive_as_the_types_of_the_signature():
    def take(a: Colour, b: Point, c: Line, d: datetime.datetime, e: set[int], *f: int, g: float = 1.5) -> Any:
        return a, b, c, d, e, f, g

    arguments = {
        "a": "red",
        "b": {"x": 1},
        "c": {"start": {"x": 2, "y": "z"}, "others": []},
        "d": "2020-01-02T03:04:05Z",
        "e": [1, 1, 2],
        "f": [7, 8],
    }
    assert call(take, json.dumps(arguments), strict=False) == (
        Colour.RED,
        Point(x=1),
        Line(Point(x=2, y="z")),
        datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        {1, 2},
        (7, 8),
        1.5,
    )


def test_positional_only_and_free_keywords_get_there():
    def take(a: int, /, b: int, **rest: float) -> Any:
        return a, b, rest

    assert call(take, '{"a": 1, "b": 2, "rest": {"a": 0.5}}', strict=False) == (1, 2, {"a": 0.5})
    with pytest.raises(ModelBehaviorError, match="b given as a parameter and inside 'rest'"):
        call(take, '{"a": 1, "b": 2, "rest": {"b": 0.5}}', strict=False)
    with pytest.raises(ModelBehaviorError, match="c"):
        call(take, '{"a": 1, "b": 2, "c": 0.5}', strict=False)


def test_any_parameter_name_will_do():
    """Names that the schema library keeps for itself are still a tool's own business."""

    def take(_private: int, json: str, model_config: int, model_dump: str = "m", copy: bool = False) -> Any:
        return _private, json, model_config, model_dump, copy

    schema = function_schema(take)
    assert list(schema.params_json_schema["properties"]) == ["_private", "json", "model_config", "model_dump", "copy"]
    assert call(take, '{"_private": 1, "json": "j", "model_config": 2, "copy": true}') == (1, "j", 2, "m", True)


@pytest.mark.parametrize("kind", [RunContextWrapper, RunContextWrapper[Any], ToolContext, ToolContext[str]])
def test_a_first_parameter_that_is_the_context_is_none_of_the_arguments(kind: Any):
    def take(ctx: Any, a: int) -> Any:
        return ctx, a

    take.__annotations__["ctx"] = kind
    schema = function_schema(take)
    assert schema.takes_context
    assert list(schema.params_json_schema["properties"]) == ["a"]
    assert schema.read('{"a": 1}') == ([1], {})


def test_the_context_must_come_first():
    def take(a: int, ctx: RunContextWrapper[Any]) -> None: ...

    with pytest.raises(UserError, match="first parameter"):
        function_schema(take)


def test_signatures_without_a_schema_are_refused_with_the_way_out():
    def free(**rest: int) -> None: ...

    def fixed(*pair: tuple[int, str]) -> None: ...

    with pytest.raises(UserError, match="strict_mode=False"):
        function_schema(free)
    with pytest.raises(UserError, match="fixed length"):
        function_schema(fixed)


def test_annotations_that_cannot_be_found_are_refused_by_name():
    def take(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(UserError, match="Nowhere"):
        function_schema(take)


# --- what is wrong with arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{", "Invalid JSON input for tool plain"),
        ("[1]", "expected a JSON object"),
        ('"text"', "expected a JSON object"),
        ("null", "expected a JSON object"),
        ('{"a": "secret-value", "c": "red"}', "a: Input should be a valid integer"),
        ('{"a": 1}', "c: Field required"),
        ('{"a": 1, "c": "secret-value"}', "c: Input should be 'red' or 'blue'"),
        ('{"a": 1, "c": "red", "d": {"x": "secret-value"}}', "d.x: Input should be a valid integer"),
        ("", "a: Field required"),
    ],
)
def test_what_is_wrong_is_said_without_the_values(arguments: str, words: str):
    """The model can correct itself (§8 #17), and an error message never holds what was said."""
    with pytest.raises(ModelBehaviorError) as refused:
        function_schema(plain).read(arguments)
    assert words in str(refused.value)
    assert "secret-value" not in str(refused.value)


def test_what_a_validator_of_the_application_says_is_not_repeated():
    class Strict(BaseModel):
        word: str

        @field_validator("word")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"{value} is not allowed")

    def take(a: Strict) -> None: ...

    with pytest.raises(ModelBehaviorError, match=r"a\.word: not accepted \(value_error\)") as refused:
        function_schema(take).read('{"a": {"word": "secret-value"}}')
    assert "secret-value" not in str(refused.value)


def test_an_empty_text_is_a_call_without_arguments():
    assert function_schema(nothing).read("") == ([], {})


# --- properties ------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=8,
)


def target(a: int, b: list[str], c: bool = False, *, d: float | None = None, e: dict[str, int] | None = None) -> Any:
    return {"a": a, "b": b, "c": c, "d": d, "e": e}


SCHEMA = function_schema(target, strict_json_schema=False)


@given(
    st.fixed_dictionaries(
        {"a": st.integers(-(2**40), 2**40), "b": st.lists(st.text(max_size=5), max_size=3)},
        optional={
            "c": st.booleans(),
            "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "e": st.none() | st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
        },
    )
)
def test_what_fits_arrives_unchanged(arguments: dict[str, Any]):
    args, kwargs = SCHEMA.read(json.dumps(arguments))
    assert target(*args, **kwargs) == {"c": False, "d": None, "e": None, **arguments}


@given(json_values)
def test_any_json_is_either_a_call_or_an_error_for_the_model(value: Any):
    try:
        args, kwargs = SCHEMA.read(json.dumps(value))
    except ModelBehaviorError:
        return
    made = target(*args, **kwargs)
    assert isinstance(made["a"], int)
    assert all(isinstance(word, str) for word in made["b"])


@given(st.text(max_size=30))
def test_any_text_is_either_a_call_or_an_error_for_the_model(text: str):
    try:
        SCHEMA.read(text)
    except ModelBehaviorError:
        pass


async def test_a_validator_of_a_parameter_runs_once():
    """Taken from the annotation and from the field made of it, a validator that changes its value changed it twice."""

    def tool(amount: Annotated[int, AfterValidator(lambda value: value * 2)], more: Annotated[int, Field(gt=1)] = 3):
        """Pay."""

    schema = function_schema(tool)
    assert schema.read('{"amount": 5}') == ([10, 3], {})
    with pytest.raises(ModelBehaviorError, match="more"):
        schema.read('{"amount": 5, "more": 1}')
