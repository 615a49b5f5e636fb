"""Function tools: their shape, what they are made from, and what they refuse."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import Any

import agents
import pytest
from typing_extensions import TypedDict

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import ModelBehaviorError, UserError
from standfast._src.tools.function_tool import FunctionTool, default_tool_error_function, function_tool, tool_namespace

CTX: ToolContext[Any] = ToolContext("app", tool_name="t", tool_call_id="c", tool_arguments="{}")


class Counted(TypedDict):
    a: int


@function_tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


async def raw(ctx: ToolContext[Any], arguments: str) -> str:
    return arguments


# --- the shape -------------------------------------------------------------------------------------------------------


def test_positional_construction_means_what_it_means_in_the_sdk():
    def public(kind: Any) -> list[tuple[str, bool]]:
        return [(field.name, field.kw_only) for field in dataclasses.fields(kind) if not field.name.startswith("_")]

    theirs = public(agents.FunctionTool)
    assert public(FunctionTool)[: len(theirs)] == theirs
    assert all(kw_only for _, kw_only in public(FunctionTool)[len(theirs) :])


def test_function_tool_takes_what_the_sdks_takes():
    theirs = inspect.signature(agents.function_tool).parameters
    ours = inspect.signature(function_tool).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert ours[name].kind == parameter.kind
        if name != "failure_error_function":  # the SDK's default is a private marker for the same function
            assert ours[name].default == parameter.default


def test_a_decorated_function_becomes_a_tool():
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.params_json_schema["properties"]["a"]["description"] == "The first."
    assert add.params_json_schema["required"] == ["a", "b"]
    assert inspect.iscoroutinefunction(add.__wrapped__)


def test_options_of_the_decorator_reach_the_tool():
    @function_tool(
        name_override="plus",
        description_override="Plus.",
        strict_mode=False,
        is_enabled=False,
        needs_approval=True,
        timeout=3,
        timeout_behavior="raise_exception",
        defer_loading=True,
        allowed_callers=["direct"],
        output_type=Counted,
        idempotent=True,
    )
    async def anything(a: int) -> Counted:
        return {"a": a}

    assert (anything.name, anything.description, anything.strict_json_schema) == ("plus", "Plus.", False)
    assert (anything.is_enabled, anything.needs_approval, anything.timeout_seconds) == (False, True, 3)
    assert (anything.timeout_behavior, anything.defer_loading) == ("raise_exception", True)
    assert anything.allowed_callers == ["direct"]
    assert anything.output_json_schema is not None
    assert anything.output_json_schema["properties"]["a"]["type"] == "integer"
    assert anything.output_json_schema["additionalProperties"] is False


def test_the_schema_of_a_strict_tool_is_made_strict_and_the_callers_is_left_alone():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = FunctionTool("t", "d", schema, raw)
    assert tool.params_json_schema == {**schema, "additionalProperties": False, "required": ["a"]}
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert FunctionTool("t", "d", schema, raw, strict_json_schema=False).params_json_schema is schema


# --- policies for a call in doubt ------------------------------------------------------------------------------------


def test_a_call_in_doubt_is_reported_unless_the_tool_says_otherwise():
    """Nothing is run twice unless its author said that this does no harm."""
    assert FunctionTool("t", "", {}, raw).on_unknown == "report"
    assert FunctionTool("t", "", {}, raw, idempotent=True).on_unknown == "rerun"
    assert FunctionTool("t", "", {}, raw, on_unknown="ask").on_unknown == "ask"
    assert FunctionTool("t", "", {}, raw, idempotent=True, on_unknown="ask").on_unknown == "ask"


def test_a_policy_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="not idempotent"):
        FunctionTool("t", "", {}, raw, idempotent=False, on_unknown="rerun")
    with pytest.raises(ValueError, match="is not a policy"):
        FunctionTool("t", "", {}, raw, on_unknown="again")  # type: ignore[arg-type]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_timeout_for_a_sync_function_is_refused():
    with pytest.raises(ValueError, match="cannot be stopped"):

        @function_tool(timeout=1)
        def slow() -> None: ...


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (True, TypeError), (0, ValueError), (-1, ValueError)])
def test_a_timeout_that_is_no_time_is_refused(timeout: Any, error: type[Exception]):
    with pytest.raises(error):
        FunctionTool("t", "", {}, raw, timeout_seconds=timeout)


@pytest.mark.parametrize("timeout", [float("nan"), float("inf")])
def test_a_timeout_without_end_is_refused(timeout: float):
    with pytest.raises(ValueError):
        FunctionTool("t", "", {}, raw, timeout_seconds=timeout)


def test_other_settings_that_mean_nothing_are_refused():
    with pytest.raises(ValueError):
        FunctionTool("t", "", {}, raw, timeout_behavior="shrug")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        FunctionTool("t", "", {}, raw, timeout_error_function="text")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="names an unknown caller"):
        FunctionTool("t", "", {}, raw, allowed_callers=["everyone"])  # type: ignore[list-item]
    with pytest.raises(UserError, match="one: they say the same"):
        function_tool(output_type=int, output_json_schema={})


def test_the_wrapped_function_is_read_only_and_absent_where_there_is_none():
    with pytest.raises(AttributeError, match="read-only"):
        add.__wrapped__ = print
    with pytest.raises(AttributeError):
        _ = FunctionTool("t", "", {}, raw).__wrapped__


# --- calling it directly ---------------------------------------------------------------------------------------------


async def test_called_directly_a_tool_follows_its_own_failure_policy():
    assert await add.on_invoke_tool(CTX, '{"a": 1}') == 3
    said = await add.on_invoke_tool(CTX, '{"a": "x"}')
    assert said.startswith("The tool failed: Invalid input for tool add: a:")
    silent = function_tool(add.__wrapped__, failure_error_function=None)
    with pytest.raises(ModelBehaviorError):
        await silent.on_invoke_tool(CTX, '{"a": "x"}')


async def test_without_a_failure_function_a_failure_keeps_its_cause():
    @function_tool(failure_error_function=None)
    async def broken() -> None:
        raise ZeroDivisionError("oops")

    with pytest.raises(UserError, match="ZeroDivisionError: oops") as failed:
        await broken.on_invoke_tool(CTX, "")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


async def test_the_context_is_given_to_functions_that_ask_for_it():
    @function_tool
    async def who(ctx: RunContextWrapper[str], greeting: str) -> str:
        return f"{greeting} {ctx.context}"

    @function_tool
    def who_sync(ctx: ToolContext[str]) -> str:
        return f"{ctx.tool_call_id} {ctx.context}"

    assert await who.on_invoke_tool(CTX, '{"greeting": "hi"}') == "hi app"
    assert await who_sync.on_invoke_tool(CTX, "") == "c app"


async def test_methods_and_callable_objects_are_functions_too():
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def more(self, by: int) -> int:
            """Count."""
            self.count += by
            return self.count

        async def __call__(self, by: int) -> int:
            """Count, called."""
            return self.more(by)

    counter = Counter()
    method, called = function_tool(counter.more), function_tool(counter)
    assert await method.on_invoke_tool(CTX, '{"by": 2}') == 2
    assert await called.on_invoke_tool(CTX, '{"by": 3}') == 5
    assert called.name == "Counter"


# --- copies ----------------------------------------------------------------------------------------------------------


async def test_a_copy_has_a_failure_policy_of_its_own():
    @function_tool
    async def broken() -> None:
        raise ValueError("oops")

    copied = copy.copy(broken)
    copied.failure_error_function = lambda ctx, error: "copied"
    assert await copied.on_invoke_tool(CTX, "") == "copied"
    assert await broken.on_invoke_tool(CTX, "") == "The tool failed: oops"
    replaced = dataclasses.replace(broken, failure_error_function=lambda ctx, error: "replaced")
    assert await replaced.on_invoke_tool(CTX, "") == "replaced"
    assert replaced.__wrapped__ is broken.__wrapped__


async def test_a_copy_of_a_subclass_runs_on_its_own_state():
    class Remembering(FunctionTool):
        def __init__(self, word: str) -> None:
            self.word = word
            super().__init__("r", "", {}, self.say)

        async def say(self, ctx: Any, arguments: str) -> str:
            return self.word

    original = Remembering("one")
    copied = copy.copy(original)
    copied.word = "two"
    assert [await tool.on_invoke_tool(CTX, "") for tool in (original, copied)] == ["one", "two"]


def test_a_namespace_is_put_on_copies():
    grouped = tool_namespace(name=" maths ", description=" Numbers. ", tools=[add])
    assert [tool.qualified_name for tool in grouped] == ["maths.add"]
    assert (grouped[0].namespace, grouped[0].namespace_description) == ("maths", "Numbers.")
    assert add.qualified_name == "add"
    for wrong in ({"name": " "}, {"description": ""}, {"tools": ["x"]}):
        with pytest.raises(UserError):
            tool_namespace(**{"name": "n", "description": "d", "tools": [add], **wrong})


def test_a_failure_without_words_is_told_by_its_name():
    assert default_tool_error_function(CTX, TimeoutError()) == "The tool failed: TimeoutError"
