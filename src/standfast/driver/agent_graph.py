"""The agents of a run, by name. A run is data and knows agents only by name; here the names become agents again.

Names are found by walking handoffs and agent tools from the starting agent, in the order they are listed, so the same
graph gives the same names in any process. A second agent of one name is `name#2`.
"""

from __future__ import annotations

from typing import Any

from standfast.agents.agent import Agent
from standfast.ground.errors import RunStateError


class AgentGraph:
    """Every agent that can be reached, and those that turned up on the way."""

    def __init__(self, start: Agent[Any]) -> None:
        self.start = start
        self._by_key: dict[str, Agent[Any]] = {start.name: start}
        self._key_of: dict[int, str] = {id(start): start.name}
        # Walked only when a name is not known yet: most runs have one agent.
        self._walked = False

    def key(self, agent: Agent[Any]) -> str:
        """The name a run knows this agent by."""
        key = self._key_of.get(id(agent))
        if key is None:
            self._walk()
            key = self._key_of.get(id(agent)) or self._add(agent)
        return key

    def agent(self, key: str) -> Agent[Any]:
        """The agent a run knows by this name."""
        found = self._by_key.get(key)
        if found is None:
            self._walk()
            found = self._by_key.get(key)
        if found is None:
            raise RunStateError(
                f"the run is with agent {key!r}, which cannot be reached from {self.start.name!r}",
                "Resume with the agent graph the run was started with: the same starting agent and handoffs.",
            )
        return found

    def agents(self) -> list[Agent[Any]]:
        """Every agent that can be reached from the starting one."""
        self._walk()
        return list(self._by_key.values())

    def _add(self, agent: Agent[Any]) -> str:
        key, number = agent.name, 1
        # Numbered in the order of the walk, which follows the lists as written: the same in every process.
        while key in self._by_key:
            number += 1
            key = f"{agent.name}#{number}"
        self._by_key[key] = agent
        self._key_of[id(agent)] = key
        return str(key)

    def _walk(self) -> None:
        if self._walked:
            return
        self._walked = True
        queue, at = [self.start], 0
        while at < len(queue):
            agent, at = queue[at], at + 1
            if id(agent) not in self._key_of:
                self._add(agent)
            queue += [after for after in _neighbours(agent) if all(after is not known for known in queue)]


def _neighbours(agent: Agent[Any]) -> list[Agent[Any]]:
    found = []
    for target in getattr(agent, "handoffs", ()):
        inner = target if hasattr(target, "handoffs") else getattr(target, "agent", None)
        if inner is not None:
            found.append(inner)
    for tool in getattr(agent, "tools", ()):
        nested = getattr(getattr(tool, "agent_tool", None), "agent", None)
        if nested is not None:
            found.append(nested)
    return found
