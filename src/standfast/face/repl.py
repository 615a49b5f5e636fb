"""Talking to an agent in a terminal, while writing it."""

from __future__ import annotations

from typing import Any

from standfast.agents.agent import Agent
from standfast.agents.run_config import DEFAULT_MAX_TURNS
from standfast.face.runner import Runner
from standfast.words.items import read
from standfast.words.stream_events import StreamEvent

# ruff: noqa: T201 — printing is what this module is for


async def run_demo_loop(
    agent: Agent[Any],
    *,
    stream: bool = True,
    context: Any = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> None:
    """Ask for input in the terminal and let the agent answer, until `exit`, `quit` or the end of the input.

    The conversation is kept from one answer to the next, and stays with the agent it was handed to.
    """
    history: list[Any] = []
    while (line := _ask()) is not None:
        if not line:
            continue
        history.append({"role": "user", "content": line})
        if stream:
            result: Any = Runner.run_streamed(agent, history, context=context, max_turns=max_turns)
            async for event in result.stream_events():
                _show(event)
            print()
        else:
            result = await Runner.run(agent, history, context=context, max_turns=max_turns)
            print(result.final_output)
        agent, history = result.last_agent, result.to_input_list()


def _ask() -> str | None:
    """One line from the person; None when there will be no more."""
    try:
        line = input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    return None if line.lower() in ("exit", "quit") else line


def _show(event: StreamEvent) -> None:
    match event.type:
        case "raw_response_event" if read(event.data, "type") == "response.output_text.delta":
            print(read(event.data, "delta"), end="", flush=True)
        case "run_item_stream_event" if event.item.type == "tool_call_item":
            print(f"\n[calls {event.item.tool_name}]", flush=True)
        case "run_item_stream_event" if event.item.type == "tool_call_output_item":
            print(f"\n[it returned {event.item.output}]", flush=True)
        case "agent_updated_stream_event":
            print(f"\n[{event.new_agent.name} goes on]", flush=True)
