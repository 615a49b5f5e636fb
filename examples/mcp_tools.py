"""An agent with the tools of an MCP server, a server that dies in the middle of a call, and a person who is asked.

Runs offline: the server is a child process, the model is a script. `python examples/mcp_tools.py`
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from standfast import Agent, Runner
from standfast.mcp import MCPServerStdio
from standfast.testing import ScriptedModel, assistant_message, function_call

# The server: a till that takes orders, and breaks down at one of them, after it was taken and before anybody is told.
SERVER = """
import os
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("till", log_level="ERROR")

@server.tool()
def order(dish: str) -> str:
    "Order a dish."
    with Path(os.environ["ORDERS"]).open("a", encoding="utf-8") as orders:
        orders.write(dish + chr(10))
    if dish == "soup":
        os._exit(1)
    return f"One {dish} is on its way."

server.run("stdio")
"""


async def main() -> None:
    """Order three dishes: one goes well, one is lost on the way, one a person does not want."""
    orders = Path(tempfile.mkdtemp()) / "orders.txt"
    till = MCPServerStdio(
        {"command": sys.executable, "args": ["-c", SERVER], "env": {"ORDERS": str(orders)}},
        name="till",
        client_session_timeout_seconds=60,
        max_retry_attempts=3,
        require_approval=lambda context, agent, tool: context.context == "ask first",
    )
    model = ScriptedModel(
        [
            [function_call("order", {"dish": "salad"}, call_id="call_1")],
            [function_call("order", {"dish": "soup"}, call_id="call_2")],
            [assistant_message("The salad is coming. I do not know about the soup; please ask the kitchen.")],
            [function_call("order", {"dish": "lobster"}, call_id="call_3")],
            [assistant_message("No lobster, then.")],
        ]
    )
    async with till:
        agent = Agent(name="Waiter", model=model, mcp_servers=[till])
        result = await Runner.run(agent, "A salad and a soup, please.")
        for item in result.to_input_list():
            if item.get("type") == "function_call_output":
                print("the model reads:", item["output"])
        print("the agent says: ", result.final_output)

        paused = await Runner.run(agent, "And a lobster!", context="ask first")
        state = paused.to_state()
        state.reject(paused.interruptions[0], rejection_message="Too expensive.")
        print("the agent says: ", (await Runner.run(agent, state)).final_output)

    taken = orders.read_text(encoding="utf-8").split()
    print("orders taken:   ", taken)
    assert taken == ["salad", "soup"]  # the soup once, although three retries were allowed


if __name__ == "__main__":
    asyncio.run(main())
