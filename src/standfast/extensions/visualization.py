"""What the OpenAI Agents SDK documents as `agents.extensions.visualization`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.visualization import (
        draw_graph as draw_graph,
        get_all_edges as get_all_edges,
        get_all_nodes as get_all_nodes,
        get_main_graph as get_main_graph,
    )

__getattr__, __dir__ = lazy(__name__)
