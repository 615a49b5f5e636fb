"""What the voice demos are about: the agent at the desk of a small restaurant, and who answers in place of a model.

The agent is the same in the browser and on the phone. `answer` is a rule of the loopback server: it remembers nothing
and looks only at the conversation, so that it does not matter which worker asks, or how often.
"""

from __future__ import annotations

from typing import Any

from standfast import function_tool
from standfast.realtime import RealtimeAgent
from standfast.testing.loopback import Answer, Asked, call

SENTENCES = (
    "What is on the menu?",
    "A table for two please.",
    "Tell me about the house.",
    "Stop, thank you.",
)
"""What the page offers to say: the loopback server has no speech recognition, it knows these."""

STORY = (
    "This house was built by a harbour pilot in eighteen hundred and seventy two. He had seen many ships leave and few "
    "come back in time for dinner, so he opened a kitchen that never closes while a ship is out. The anchor over the "
    "door was lifted from the bay by his daughters, who ran the place for fifty years and refused no guest."
)


@function_tool
def menu() -> str:
    """What the kitchen has today."""
    return "mussels, barley soup, and apple cake"


@function_tool(needs_approval=True)
def book_table(seats: int) -> str:
    """Book a table. Somebody of the house has to agree."""
    return f"table five, for {seats}"


def desk() -> RealtimeAgent[Any]:
    """The agent, made anew in every process."""
    return RealtimeAgent(
        name="Desk",
        instructions="You are at the desk of The Anchor, a small restaurant. Be brief and kind.",
        tools=[menu, book_table],
    )


def answer(asked: Asked) -> Answer:
    """What the model behind the loopback server says."""
    if asked.outputs:
        said = " and ".join(str(output) for output in asked.outputs.values())
        return f"Here is what I have: {said}."
    words = asked.last_text.lower()
    if "menu" in words:
        return call("menu")
    if "table" in words:
        return ["I will ask for a table.", call("book_table", {"seats": 2})]
    if "house" in words:
        return STORY
    if "stop" in words:
        return "Of course."
    if words.startswith("(speech"):
        return "I can hear you, but without a key I only understand the sentences on the buttons."
    return f"You said: {asked.last_text}" if asked.last_text else "Good evening, this is The Anchor."
