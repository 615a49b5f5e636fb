"""Agents of a run, by name. A run is data and knows agents by name only; this graph maps the names to agents.

Names are found by walking handoffs and agent tools from the starting agent. Where several reachable agents share a
name, each but the starting one is known by its name and its place: the names of the handoffs and tools leading to it,
as in `Helper@to_test`. The order of a list of handoffs or tools therefore does not change a name.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.handoffs import Handoff
from standfast._src.base.errors import RunStateError


class AgentGraph:
    """Reachable agents of a run, and agents found during the run."""

    def __init__(self, start: Agent[Any]) -> None:
        self.start = start
        self._by_key: dict[str, Agent[Any]] = {start.name: start}
        self._key_of: dict[int, str] = {id(start): start.name}
        self._uncertain: set[str] = set()
        """The keys by which more than one agent may be meant."""
        # Walked only when a name is not known yet: most runs have one agent.
        self._walked = False

    def key(self, agent: Agent[Any]) -> str:
        """The name a run knows this agent by."""
        key = self._key_of.get(id(agent))
        if key is None:
            self._walk()
            key = self._key_of.get(id(agent)) or self._add(agent, agent.name)
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

    def inside(self, key: str, tool_name: str) -> AgentGraph | None:
        """Return the graph of the run inside a tool call of this agent, or None if the named tool is not an agent."""
        for tool in getattr(self.agent(key), "tools", ()):
            described = getattr(tool, "agent_tool", None)
            if described is not None and getattr(tool, "name", None) == tool_name:
                return AgentGraph(described.agent)
        return None

    def refuse_uncertain(self, key: str) -> None:
        """Raise RunStateError if the name is ambiguous: a waiting call of one agent must not become another agent's
        (C16).
        """
        if key == self.start.name:
            return
        self._walk()
        if key in self._uncertain:
            raise RunStateError(
                f"a call of agent {key!r} is open, and more than one agent may be meant by that",
                "Give the agents different names, or resume with the agents the run was started with.",
            )

    def agents(self) -> list[Agent[Any]]:
        """Return every agent reachable from the starting one."""
        self._walk()
        return list({id(agent): agent for agent in self._by_key.values()}.values())

    def _add(self, agent: Agent[Any], key: str) -> str:
        first, number = key, 1
        while key in self._by_key:
            number += 1
            key = f"{first}#{number}"
        if number > 1:
            self._uncertain |= {first, key}  # numbered in the order of the lists, which any release may change
        self._by_key[key] = agent
        self._key_of.setdefault(id(agent), key)
        return key

    def _walk(self) -> None:
        if self._walked:
            return
        self._walked = True
        queue: list[tuple[Agent[Any], str]] = [(self.start, "")]
        known, at = {id(self.start)}, 0
        while at < len(queue):
            (agent, place), at = queue[at], at + 1
            for edge, after in _neighbours(agent):
                if id(after) not in known:
                    known.add(id(after))
                    queue.append((after, f"{place}/{edge}" if place else edge))
        names = Counter(agent.name for agent, _ in queue)
        for agent, place in queue[1:]:
            if id(agent) in self._key_of:
                continue  # it turned up on the way before
            self._add(agent, agent.name if names[agent.name] == 1 else f"{agent.name}@{place}")
        # A run that was saved when a name was the only one of its kind knows it without a place.
        for name in [name for name, count in names.items() if count > 1]:
            first = next(agent for agent, _ in queue if agent.name == name)
            if first is not self.start:
                self._by_key.setdefault(name, first)
                self._uncertain.add(name)


def _neighbours(agent: Agent[Any]) -> list[tuple[str, Agent[Any]]]:
    """Return the agents reachable in one step, each with the name of the handoff or tool leading there."""
    found: list[tuple[str, Agent[Any]]] = []
    for target in getattr(agent, "handoffs", ()):
        if hasattr(target, "handoffs"):
            found.append((Handoff.default_tool_name(target), target))
        elif getattr(target, "agent", None) is not None:
            found.append((str(target.tool_name), target.agent))
    for tool in getattr(agent, "tools", ()):
        nested = getattr(getattr(tool, "agent_tool", None), "agent", None)
        if nested is not None:
            found.append((str(tool.name), nested))
    return found
