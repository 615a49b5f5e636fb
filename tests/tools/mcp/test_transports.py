"""The same server, made with the official package, over all three transports: it does what the SDK's clients do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tools.mcp.helpers import children, first_line, http_office, lines, office

from standfast import Agent, MCPServerError
from standfast._kits.testing.leaks import no_leaks
from standfast.testing import ScriptedModel, function_call
from tests.runs.whole_runs import go, outputs, said

TRANSPORTS = pytest.mark.parametrize("kind", ["stdio", "http", "sse"])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@asynccontextmanager
async def connected(kind: str, notes: Path, **settings: Any) -> AsyncIterator[Any]:
    if kind == "stdio":
        async with no_leaks(), office(notes, **settings) as server:
            yield server
        return
    async with http_office(kind, notes) as served, no_leaks(), served.client(**settings) as server:
        yield server


@TRANSPORTS
async def test_an_agent_uses_its_tools_prompts_and_resources(kind: str, notes: Path):
    async with connected(kind, notes, use_structured_content=True) as server:
        calls = [
            function_call("add", {"a": 1, "b": 2}, call_id="c1"),
            function_call("what_meta", {}, call_id="c2"),
            function_call("fail", {"why": "no ink"}, call_id="c3"),
            function_call("picture", {}, call_id="c4"),
        ]
        model = ScriptedModel([calls, said("done")])
        result = await go(Agent(name="clerk", model=model, mcp_servers=[server]), "work")
        shown = {tool.name: tool for tool in model.calls[0].tools}
        added, meta, failed, picture = outputs(result.to_input_list())
        prompts, prompt = await server.list_prompts(), await server.get_prompt("greet", {"who": "Bo"})
        resources, templates = await server.list_resources(), await server.list_resource_templates()
        hours, desk = await server.read_resource("office://hours"), await server.read_resource("office://desk/7")
        together = await asyncio.gather(*(server.call_tool("add", {"a": n, "b": 1}) for n in range(5)))
        cancelled = asyncio.create_task(server.call_tool("hang_after_effect", {}))
        while "hung" not in lines(notes):
            await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    assert shown["add"].params_json_schema["required"] == ["a", "b"]
    assert shown["add"].description == "Add two numbers."
    assert added == '{"sum": 3}'
    key = lines(notes)[0].split()[1]
    assert key.endswith(":c2")  # the key of this call of this run, which a server can know a repeated call by
    assert key in meta
    assert "no ink" in str(failed)
    assert picture == [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
    assert [one.name for one in prompts.prompts] == ["greet"]
    assert prompt.messages[0].content.text == "Greet Bo."
    assert [str(one.uri) for one in resources.resources] == ["office://hours"]
    assert [one.uri_template for one in templates.resource_templates] == ["office://desk/{number}"]
    assert (hours.contents[0].text, desk.contents[0].text) == ("9 to 5", "desk 7")
    assert [result.structured_content for result in together] == [{"sum": n + 1} for n in range(5)]
    assert kind != "stdio" or not children()


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_killed_in_a_call_is_told_and_found_again(kind: str, notes: Path):
    async with http_office(kind, notes) as served:
        async with no_leaks(), served.client(max_retry_attempts=2, retry_backoff_seconds_base=0.0) as server:
            hanging = asyncio.create_task(server.call_tool("hang_after_effect", {}))
            await first_line(notes)
            served.kill()
            with pytest.raises(MCPServerError, match="not known; it was not repeated") as told:
                await hanging
            assert told.value.outcome_unknown
            with pytest.raises(MCPServerError, match="could not") as told:
                await server.call_tool("note", {"text": "while it is away"})
            assert not told.value.outcome_unknown
            await served.start()
            await server.call_tool("note", {"text": "again"})
    assert lines(notes) == ["hung", "note again"]


async def test_a_tool_that_may_be_repeated_is(notes: Path):
    async with office(notes) as server:
        await server.list_tools()
        result = await server.call_tool("look_after_death", {})
    assert result.content[0].text == "seen"
    assert lines(notes) == ["looked", "looked"]
