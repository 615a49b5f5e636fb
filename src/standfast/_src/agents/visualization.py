"""Picture of an agent, its tools and its handoffs, in Graphviz's language.

`get_main_graph` needs nothing; `draw_graph` needs the package `graphviz` and the program of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.handoffs import Handoff

_START_AND_END = "shape=ellipse, style=filled, fillcolor=lightblue, width=0.5, height=0.3"
_AGENT = 'shape=box, style="filled,rounded", fillcolor=lightyellow, width=1.5, height=0.8'
_TOOL = "shape=ellipse, style=filled, fillcolor=lightgreen, width=0.5, height=0.3"
_SERVER = "shape=box, style=filled, fillcolor=lightgrey, width=1, height=0.5"


def get_main_graph(agent: Agent[Any]) -> str:
    """The whole picture as DOT text."""
    head = 'digraph G {\n    graph [splines=true];\n    node [fontname="Arial"];\n    edge [penwidth=1.5];\n'
    return f"{head}{get_all_nodes(agent)}{get_all_edges(agent)}}}\n"


def get_all_nodes(agent: Agent[Any], parent: Agent[Any] | None = None, visited: set[str] | None = None) -> str:
    """Return the nodes as DOT text: this agent and all agents reachable by handoffs.

    With a `parent` they are part of a larger picture. Agents named in `visited` are left out, and new ones are added to
    it.
    """
    drawing = _Drawing(agent, visited)
    lines = []
    if parent is None:
        lines += [f'    "{end}" [label="{end}", {_START_AND_END}];' for end in ("__start__", "__end__")]
    for one in drawing.agents:
        lines.append(drawing.node(one, one.name, _AGENT))
        lines += [drawing.node(tool, tool.name, _TOOL) for tool in one.tools]
        lines += [drawing.node(server, server.name, _SERVER) for server in one.mcp_servers]
    lines += [drawing.node(other, other.agent_name, _AGENT) for other in drawing.strangers]
    return "".join(f"{line}\n" for line in lines)


def get_all_edges(agent: Agent[Any], parent: Agent[Any] | None = None, visited: set[str] | None = None) -> str:
    """The edges as DOT text, as `get_all_nodes` gives the nodes."""
    drawing = _Drawing(agent, visited)
    lines = []
    if parent is None and drawing.agents:
        lines.append(f'    "__start__" -> {drawing.name(agent)};')
    for one in drawing.agents:
        here = drawing.name(one)
        for others, style in ((one.tools, "dotted"), (one.mcp_servers, "dashed")):
            for other in map(drawing.name, others):
                lines += [f"    {a} -> {b} [style={style}, penwidth=1.5];" for a, b in ((here, other), (other, here))]
        lines += [f"    {here} -> {drawing.name(_target(other) or other)};" for other in one.handoffs]
        if not one.handoffs:
            lines.append(f'    {here} -> "__end__";')
    return "".join(f"{line}\n" for line in lines)


def draw_graph(agent: Agent[Any], filename: str | None = None) -> Any:
    """Build the picture as a `graphviz.Source`, shown by notebooks; with a `filename` also write a PNG file."""
    try:
        source = import_module("graphviz").Source  # not one of our extras, so not one of our imports
    except ModuleNotFoundError as error:
        raise ImportError(
            "draw_graph needs the package 'graphviz' and the program of that name. Install it with: pip install"
            " graphviz. get_main_graph(agent) gives the text of the picture without it.",
            name=error.name,
        ) from error
    graph = source(get_main_graph(agent))
    if filename:
        graph.render(filename, format="png", cleanup=True)
    return graph


class _Drawing:
    """All reachable agents, and a unique node name for each thing, even for two of the same name."""

    def __init__(self, agent: Agent[Any], visited: set[str] | None) -> None:
        left_out = frozenset(visited or ())
        self.agents: list[Agent[Any]] = []
        self.strangers: list[Handoff[Any, Any]] = []
        self._ids: dict[int, str] = {}
        for one in _find_reachable(agent, lambda other: other.name in left_out):
            if isinstance(one, Handoff):
                self.strangers.append(one)
                continue
            self.agents.append(one)
            if visited is not None:
                visited.add(one.name)

    def name(self, thing: object) -> str:
        """Return the quoted node id of a thing: its own name, made unique if taken."""
        if id(thing) not in self._ids:
            own = str(getattr(thing, "name", None) or getattr(thing, "agent_name", ""))
            taken = {*self._ids.values(), "__start__", "__end__"}
            self._ids[id(thing)] = own if own not in taken else f"{own}#{len(self._ids)}"
        return f'"{_escape(self._ids[id(thing)])}"'

    def node(self, thing: object, label: str, style: str) -> str:
        """Return the line that draws a thing."""
        return f'    {self.name(thing)} [label="{_escape(label)}", {style}];'


def _find_reachable(agent: Agent[Any], is_left_out: Callable[[Agent[Any]], bool]) -> Iterator[Any]:
    """Yield an agent and every agent reachable by handoffs, each once; a handoff to an unknown agent is
    yielded itself.
    """
    seen: set[int] = set()
    waiting: list[Any] = [agent]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen or (not isinstance(one, Handoff) and is_left_out(one)):
            continue
        seen.add(id(one))
        yield one
        if not isinstance(one, Handoff):
            waiting += [_target(other) or other for other in one.handoffs]


def _target(other: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | None:
    """Return the target agent of a handoff, or None if unknown."""
    if not isinstance(other, Handoff):
        found: Agent[Any] = other
        return found
    target: Agent[Any] | None = other.agent
    return target


def _escape(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return plain.replace("\r\n", "\\n").replace("\r", "\\n").replace("\n", "\\n")
