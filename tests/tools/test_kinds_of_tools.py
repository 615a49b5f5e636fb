"""A kind of tool says itself how it is offered, found, judged, run and answered: a new one is one class in one file."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from standfast import (
    Agent,
    InMemorySession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    UserError,
    function_tool,
)
from standfast._src.tools.local_tool import LocalTool, ToolInvoker
from standfast._src.tools.prepared_arguments import Prepared
from standfast.realtime import RealtimeAgent, RealtimeRunner
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, assistant_message
from standfast.testing.loopback import LoopbackServer, call

SOURCE = Path(__file__).resolve().parents[2] / "src" / "standfast" / "_src"
ORDER = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "order", "input": "nails 12; screws 40"}
DONE = [assistant_message("Done.")]


@dataclass
class OrderTool(LocalTool):
    """A tool whose input is a list of goods, one `name count` after the other."""

    name: str
    description: str
    carry_out: Callable[[dict[str, int]], dict[str, int]]
    needs_approval: Any = False

    call_type: ClassVar[str] = "custom_tool_call"
    may_end_run: ClassVar[bool] = True

    def to_wire(self) -> dict[str, Any]:
        grammar = {"type": "grammar", "syntax": "regex", "definition": r"(\w+ \d+; ?)+"}
        return {"type": "custom", "name": self.name, "description": self.description, "format": grammar}

    def judged_input(self, arguments: str) -> object | None:
        return self._read(arguments)

    def prepare(self, arguments: str) -> Prepared:
        return Prepared("exact", arguments)

    def target(self) -> str:
        return "order"

    def runner(self) -> ToolInvoker:
        async def run(ctx: Any, text: str) -> dict[str, int]:
            goods = self._read(text)
            if goods is None:
                raise ValueError(f"{text!r} is not a list of goods")
            return self.carry_out(goods)

        return run

    def item_output(self, value: object) -> str:
        assert isinstance(value, dict)
        return "; ".join(f"{name} {count}" for name, count in value.items())

    @staticmethod
    def _read(text: str) -> dict[str, int] | None:
        try:
            return {name: int(count) for name, count in (line.split() for line in text.split(";"))}
        except ValueError:
            return None


@dataclass
class Warehouse:
    """Keeps what was ordered, and which lists a policy was asked about."""

    orders: list[dict[str, int]] = field(default_factory=list)
    judged: list[object] = field(default_factory=list)

    def deliver(self, goods: dict[str, int]) -> dict[str, int]:
        self.orders.append(goods)
        return {name: count - 1 for name, count in goods.items()}

    def many(self, ctx: Any, goods: dict[str, int], call_id: str) -> bool:
        self.judged.append(goods)
        return sum(goods.values()) > 50

    def tool(self, **settings: Any) -> OrderTool:
        return OrderTool("order", "Order goods.", self.deliver, **settings)


def _agent(tool: Any, *replies: Any, **settings: Any) -> Agent[Any]:
    return Agent(name="Clerk", tools=[tool], model=ScriptedModel(replies), **settings)


async def test_a_new_kind_is_found_run_and_answered():
    warehouse, session = Warehouse(), InMemorySession("s")
    result = await Runner.run(_agent(warehouse.tool(), [ORDER], DONE), "Nails!", session=session)
    assert result.final_output == "Done."
    assert warehouse.orders == [{"nails": 12, "screws": 40}]
    output = (await session.get_items())[2]
    assert output == {"type": "custom_tool_call_output", "call_id": "c1", "output": "nails 11; screws 39"}


async def test_a_model_reads_what_a_new_kind_raises():
    warehouse, wrong = Warehouse(), ORDER | {"input": "nails a dozen"}
    result = await Runner.run(_agent(warehouse.tool(), [wrong], DONE), "Nails!")
    assert warehouse.orders == []
    assert "is not a list of goods" in str(result.new_items[1].output)


async def test_a_policy_judges_what_the_kind_reads_and_asks_a_person_about_the_rest():
    warehouse = Warehouse()
    few, unreadable = ORDER | {"call_id": "c2", "input": "nails 12"}, ORDER | {"call_id": "c3", "input": "many"}
    agent = _agent(warehouse.tool(needs_approval=warehouse.many), [ORDER, few, unreadable])
    paused = await Runner.run(agent, "Nails!")
    assert [item.raw_item["call_id"] for item in paused.interruptions] == ["c1", "c3"]
    assert warehouse.judged == [{"nails": 12, "screws": 40}, {"nails": 12}]
    assert warehouse.orders == [{"nails": 12}]


async def test_an_approved_call_of_a_new_kind_runs_once_in_another_process_of_the_run(tmp_path: Path):
    warehouse = Warehouse()
    agent = _agent(warehouse.tool(needs_approval=True), [ORDER], DONE)
    session = SQLiteSession("s", tmp_path / "h.db")
    paused = await Runner.run(agent, "Nails!", session=session, run_config=RunConfig(run_id="job"))
    text = paused.to_state().to_string()
    await session.close()
    again = SQLiteSession("s", tmp_path / "h.db")
    state = await RunState.from_string(agent, text)
    state.approve(state.get_interruptions()[0])
    done = await Runner.run(agent, state, session=again)
    assert done.final_output == "Done."
    assert warehouse.orders == [{"nails": 12, "screws": 40}]
    await again.close()


async def test_an_output_of_a_new_kind_may_end_the_run():
    warehouse = Warehouse()
    agent = _agent(warehouse.tool(), [ORDER], tool_use_behavior="stop_on_first_tool")
    assert (await Runner.run(agent, "Nails!")).final_output == str({"nails": 11, "screws": 39})


async def test_a_new_kind_has_a_name_of_its_own_beside_a_function():
    warehouse, done = Warehouse(), []  # type: Warehouse, list[str]

    @function_tool
    def order(goods: str) -> str:
        """Order goods."""
        done.append(goods)
        return "ordered"

    function_call = {"type": "function_call", "call_id": "c2", "name": "order", "arguments": '{"goods": "glue"}'}
    model = ScriptedModel([[ORDER, function_call], DONE])
    await Runner.run(Agent(name="Clerk", tools=[warehouse.tool(), order], model=model), "Nails and glue!")
    assert (len(warehouse.orders), done) == (1, ["glue"])


async def test_a_new_kind_is_offered_by_its_own_words():
    warehouse = Warehouse()
    with LoopbackServer(["Done."]) as server:
        async with server.client() as client:
            agent = Agent(name="Clerk", tools=[warehouse.tool()], model=OpenAIResponsesModel("m", client))
            await Runner.run(agent, "Nails!")
        assert server.requests[0].body["tools"] == [warehouse.tool().to_wire()]


class EchoTool(LocalTool):
    """A tool that is called as a function, by class attributes alone."""

    name = "echo"
    description = "Say it again."
    params_json_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def runner(self) -> ToolInvoker:
        async def run(ctx: Any, arguments: str) -> str:
            return str(json.loads(arguments)["text"]).upper()

        return run


async def test_a_voice_call_runs_a_new_kind_that_is_called_as_a_function_and_refuses_others():
    async with LoopbackRealtimeServer([call("echo", {"text": "aye"}), "Aye."]) as server:
        config = {"url": server.url, "api_key": "any"}
        refused = RealtimeRunner(RealtimeAgent(name="Parrot", tools=[Warehouse().tool()]))  # type: ignore[list-item]
        with pytest.raises(UserError, match="voice calls know no other"):
            await (await refused.run(model_config=config)).enter()
        runner = RealtimeRunner(RealtimeAgent(name="Parrot", tools=[EchoTool()]))  # type: ignore[list-item]
        async with await runner.run(model_config=config) as session:
            await session.send_message("Say aye.")
            async for event in session:
                if event.type == "tool_end":
                    assert (event.tool.name, event.output) == ("echo", "AYE")
                    break


def test_the_library_asks_no_tool_for_its_class():
    """The one exception makes copies of function tools, and of nothing else."""
    asked = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                kinds = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                asked += [path.name for _ in kinds & {"FunctionTool", "CustomTool"}]
    assert asked == ["function_tool.py"]
