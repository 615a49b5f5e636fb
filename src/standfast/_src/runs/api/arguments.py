"""Checks of a call's arguments, and the attempt made from them: every refusal comes before any effect."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import wrapper_of
from standfast._src.agents.error_handlers import RunErrorHandlers, check_error_handlers
from standfast._src.agents.hooks import RunHooksBase, check_hooks
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig, check_max_turns, coerce_run_config
from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.exports.lazy import edge
from standfast._src.items.usage import Usage
from standfast._src.models.interface import ModelProvider
from standfast._src.runs.api.run_state import RunState, with_context
from standfast._src.runs.loop.conversation_owner import owner_of, owner_on_resume, refuse_early
from standfast._src.runs.loop.event_queue import EventQueue
from standfast._src.runs.loop.run_attempt import RunAttempt
from standfast._src.runs.loop.run_scope import Beside, ResumedRun, RunArguments, Tracer
from standfast._src.sessions.protocol import Session


def check_agent(agent: object) -> None:
    """Raise SettingTypeError, a TypeError, if this cannot be run."""
    if not hasattr(agent, "handoffs") or not hasattr(agent, "instructions"):
        raise SettingTypeError(f"{describe_type(agent)} is not an agent", "Pass an Agent, or what has its attributes.")


def named_agents(agents: Agent[Any] | Iterable[Agent[Any]]) -> dict[str, Agent[Any]]:
    """Return starting agents by name; raise if there is none, or if two have one name."""
    given = [agents] if isinstance(agents, Agent) else list(agents)
    found: dict[str, Agent[Any]] = {}
    for agent in given:
        check_agent(agent)
        if found.setdefault(agent.name, agent) is not agent:
            raise InvalidSettingError(
                f"two agents are named {agent.name!r}, and a run knows the one it was started with by its name",
                "Give each starting agent a name of its own.",
            )
    return found


def check_key(agent: Agent[Any], given: object, run_config: RunConfig | dict[str, Any] | None) -> None:
    """Raise UserError if the first request of a new run could not leave for lack of a key.

    Asked before the loop, so that the error is a line and not a page. Models of a provider that was given are its own.
    """
    config = coerce_run_config(run_config)
    model = config.model if config.model is not None else getattr(agent, "model", None)
    is_named = model is None or isinstance(model, str)
    # A run that has ended under its id is read again without a request.
    if is_named and config.model_provider is None and config.run_id is None and not isinstance(given, RunState):
        require = getattr(default_provider(), "require_key", None)
        if require is not None:
            require(model)


def check_session(session: object) -> None:
    """Raise SettingTypeError, a TypeError, if this is not a session."""
    if session is not None and not hasattr(session, "get_items"):
        shown = repr(session) if isinstance(session, str) else "'guest-42'"
        raise SettingTypeError(
            f"session is {describe_type(session)} and not a session",
            f"Make one of the id: SQLiteSession({shown}, 'conversations.db').",
        )


class StartOptions(NamedTuple):
    """Options common to the three ways of running an agent, besides the agent and its input."""

    context: object = None
    max_turns: int | None = DEFAULT_MAX_TURNS
    hooks: RunHooksBase[Any, Any] | None = None
    run_config: RunConfig | dict[str, Any] | None = None
    error_handlers: RunErrorHandlers[Any] | dict[str, Any] | None = None
    previous_response_id: str | None = None
    auto_previous_response_id: bool = False
    conversation_id: str | None = None
    session: Session | None = None
    beside: Beside | None = None
    """What other runs of the conversation are resumed with, where they are to finish first (C15)."""


def start(
    agent: Agent[Any],
    given: str | list[Item] | RunState[Any],
    options: StartOptions,
    *,
    events: EventQueue | None = None,
    resumed: ResumedRun | None = None,
) -> RunAttempt:
    """Return an attempt at a run with checked arguments; raise for a wrong argument before any effect."""
    hooks, max_turns, session = options.hooks, options.max_turns, options.session
    check_agent(agent)
    check_hooks(hooks)
    check_max_turns(max_turns)
    check_session(session)
    if resumed is None:
        check_key(agent, given, options.run_config)
    config = coerce_run_config(options.run_config)
    check_error_handlers(options.error_handlers)
    owner = owner_of(session, options.conversation_id, options.previous_response_id, options.auto_previous_response_id)
    context = options.context
    if isinstance(given, RunState):
        owner = owner_on_resume(given._run, owner)
        # One that is being resumed is refused later; until then its decisions belong to whoever resumes it.
        if not given._is_busy:
            given._take_decisions()
        wrapper = with_context(given._wrapper, context)
        max_turns = given._run.spec.max_turns
        resumed, given = resumed or given._saved, ""
    else:
        wrapper = wrapper_of(context)
    attempt = RunAttempt(
        RunArguments(
            agent=agent,
            given_input=given,
            wrapper=wrapper,
            config=config,
            provider=partial(_provider_of, config),
            owner=owner,
            session=session,
            hooks=hooks,
            max_turns=max_turns,
            error_handlers=options.error_handlers,  # type: ignore[arg-type]  # a dict with these keys, as was checked
            events=events,
            tracer=tracer_for(config),
            resumed=resumed,
            beside=options.beside,
            price=_price_of,
        )
    )
    refuse_early(attempt.scope.graph, owner, config)
    return attempt


# --- what is looked up late ------------------------------------------------------------------------------------------


def _provider_of(config: RunConfig) -> ModelProvider:
    return config.model_provider if config.model_provider is not None else default_provider()


def default_provider() -> ModelProvider:
    """Return this process's provider for runs without a provider of their own."""
    global _provider
    if _provider is None:
        made: ModelProvider = edge("_src.models.providers.provider").MultiProvider()
        _provider = made
    return _provider


_provider: ModelProvider | None = None


def _price_of(usage: Usage, model: str) -> Decimal | None:
    """Return the cost of a usage by the table of `genai-prices`; None for an unknown model."""
    found = edge("_src.models.prices").price_of(usage, model) if model else None
    return None if found is None else found.usd


def tracer_for(config: RunConfig) -> Tracer | None:
    """Return the tracer of runs; None without tracing by the program, and then OpenTelemetry is not even loaded."""
    if config.tracing_disabled or (config.tracing is None and "opentelemetry.trace" not in sys.modules):
        return None
    tracer: Tracer | None = edge("_src.tracing.opentelemetry_spans").tracer_for(config)
    return tracer
