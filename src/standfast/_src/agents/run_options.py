"""Keyword arguments of `Runner.run` as a type, for functions that pass them on."""

from __future__ import annotations

from typing import Any, Generic, TypedDict

from standfast._src.agents.context import TContext
from standfast._src.agents.error_handlers import RunErrorHandlers
from standfast._src.agents.hooks import RunHooksBase
from standfast._src.agents.run_config import RunConfig
from standfast._src.sessions.protocol import Session


class RunOptions(TypedDict, Generic[TContext], total=False):
    """Options of a run besides its agent and its input: `def ask(**options: Unpack[RunOptions[Customer]])`."""

    context: TContext | None
    max_turns: int | None
    hooks: RunHooksBase[TContext, Any] | None
    run_config: RunConfig | dict[str, Any] | None
    previous_response_id: str | None
    auto_previous_response_id: bool
    conversation_id: str | None
    session: Session | None
    error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None
