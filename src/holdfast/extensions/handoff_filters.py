"""Filters for handoffs, under the path the OpenAI Agents SDK documents."""

from __future__ import annotations

from holdfast.handoffs import default_handoff_history_mapper, nest_handoff_history, remove_all_tools

__all__ = ["default_handoff_history_mapper", "nest_handoff_history", "remove_all_tools"]
