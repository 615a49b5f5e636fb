"""Instructions for agents that hand over, under the path that the OpenAI Agents SDK documents."""

from __future__ import annotations

RECOMMENDED_PROMPT_PREFIX = (
    "# How you work with others\n"
    "You are one of several agents that serve the same user. Each agent has its own instructions and tools. When "
    "another agent is better suited for what the user wants, hand the conversation over by calling the function for "
    "it, usually named `transfer_to_<agent name>`. Handing over happens behind the scenes: do not announce it and do "
    "not talk about other agents to the user.\n"
)
"""Put before the instructions of an agent with handoffs, it lets the model know what they are."""


def prompt_with_handoff_instructions(prompt: str) -> str:
    """Put `RECOMMENDED_PROMPT_PREFIX` before instructions."""
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}"
