"""A program of the OpenAI Agents SDK: an agent asks before it pays, and a web hook brings the answer.

`ask` runs the agent until it wants to pay, and keeps the state of the run in a file. `approve` is what the web hook
calls: it resumes the run. Web hooks are sent again when nobody answers, and so is this one.
"""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, SQLiteSession, function_tool

STATE = Path("state.json")


@function_tool(needs_approval=True)
def pay(amount: int, to: str) -> str:
    """Pay an invoice."""
    with Path("payments.txt").open("a", encoding="utf-8") as payments:
        payments.write(f"{amount} to {to}\n")
    return f"paid {amount} to {to}"


agent = Agent(name="Shop", instructions="Pay invoices.", tools=[pay])


async def ask() -> None:
    """Run the agent until it needs a person."""
    result = await Runner.run(agent, "Pay 120 to ACME.", session=SQLiteSession("invoice-7", "shop.db"))
    STATE.write_text(result.to_state().to_string(), encoding="utf-8")


async def approve() -> None:
    """Approve what waits, and continue."""
    state = await RunState.from_string(agent, STATE.read_text(encoding="utf-8"))
    for call in state.get_interruptions():
        state.approve(call)
    result = await Runner.run(agent, state, session=SQLiteSession("invoice-7", "shop.db"))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run({"ask": ask, "approve": approve}[sys.argv[1]]())
