"""Running again under the same id: what the first run was is what the second one shows."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemorySession, RunConfig, Runner
from standfast.testing import ModelStep, ScriptedModel, assistant_message, reasoning

HOSTED: list[dict[str, Any]] = [
    {"type": "mcp_list_tools", "id": "l1", "server_label": "docs", "tools": []},
    {"type": "tool_search_call", "id": "s1", "call_id": "c1", "arguments": {}, "execution": "server"},
    {"type": "tool_search_output", "id": "s2", "call_id": "c1", "tools": [], "execution": "server"},
    {"type": "web_search_call", "id": "w1", "status": "completed"},
    {"type": "compaction", "id": "k1", "encrypted_content": "x"},
]


@pytest.mark.parametrize("streamed", [False, True])
async def test_items_are_of_the_same_kind_as_when_they_arrived(streamed: bool):
    """Four tables of item kinds had drifted apart: hosted items came back as tool calls."""
    session = InMemorySession("s")

    async def once() -> list[str]:
        reply = [reasoning("hm", item_id="r1"), *HOSTED, assistant_message("done")]
        agent = Agent(name="a", model=ScriptedModel([ModelStep(reply)]))
        result: Any
        if streamed:
            result = Runner.run_streamed(agent, "hi", session=session, run_config=RunConfig(run_id="r"))
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "hi", session=session, run_config=RunConfig(run_id="r"))
        return [item.type for item in result.new_items]

    first, second = await once(), await once()
    assert second == first
    assert {"mcp_list_tools_item", "tool_search_call_item", "tool_search_output_item"} <= set(first)
