"""Chat with an agent in a terminal, for its development."""

from __future__ import annotations

from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import describe_arguments
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS
from standfast._src.base.safe_text import safe
from standfast._src.items.items import ToolApprovalItem, read
from standfast._src.items.stream_events import StreamEvent
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.api.runner import Runner

# ruff: noqa: T201 — printing is what this module is for


async def run_demo_loop(
    agent: Agent[Any],
    *,
    stream: bool = True,
    context: object = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> None:
    """Ask for input in the terminal and let the agent answer, until `exit`, `quit` or the end of the input.

    The conversation is kept from one answer to the next, and stays with the agent it was handed to. A call that needs
    approval is shown and asked about; whatever is not a clear yes rejects it.
    """
    history: list[Any] = []
    while (line := _ask("> ")) is not None and line.lower() not in ("exit", "quit"):
        if not line:
            continue
        given: Any = [*history, {"role": "user", "content": line}]
        while True:
            result: Any
            if stream:
                result = Runner.run_streamed(agent, given, context=context, max_turns=max_turns)
                speaking = agent.name
                async for event in result.stream_events():
                    speaking = _show(event, speaking)
                print()
            else:
                result = await Runner.run(agent, given, context=context, max_turns=max_turns)
            if not result.interruptions:
                break
            given = result.to_state()
            for call in given.get_interruptions():
                _decide(given, call)
        if not stream:
            print(result.final_output)
        agent, history = result.last_agent, result.to_input_list()


def _ask(question: str) -> str | None:
    """Read a line from the person; None at the end of the input."""
    try:
        return input(question).strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None


def _decide(state: RunState[Any], call: ToolApprovalItem) -> None:
    """Ask the person about a call; the end of the input is a rejection, so that no call runs without consent."""
    what = "may have run before a crash; run it again?" if call.reason == "unknown" else "needs approval; run it?"
    # Written out as in every terminal of ours: an escape sequence could draw another question than this one.
    about = safe(f"{call.tool_name} {'; '.join(describe_arguments(call))}")
    answer = _ask(f"[{about} {what} y/n] ")
    if answer is not None and answer.lower() in ("y", "yes"):
        state.approve(call)
    else:
        state.reject(call)


def _show(event: StreamEvent, speaking: str) -> str:
    """Print an event; return the name of the agent in charge after it."""
    match event.type:
        case "raw_response_event" if read(event.data, "type") == "response.output_text.delta":
            print(read(event.data, "delta"), end="", flush=True)
        case "run_item_stream_event" if event.item.type == "tool_call_item":
            print(f"\n[calls {event.item.tool_name}]", flush=True)
        case "run_item_stream_event" if event.item.type == "tool_call_output_item":
            print(f"\n[it returned {event.item.output}]", flush=True)
        case "agent_updated_stream_event" if event.new_agent.name != speaking:
            speaking = event.new_agent.name
            print(f"\n[{speaking} goes on]", flush=True)
    return speaking
