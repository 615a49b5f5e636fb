"""Entry points of voice calls: `RealtimeRunner.run` makes a session, `resume` continues the call of another worker."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from standfast._src.agents.hooks import RunHooksBase
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.exports.lazy import edge
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.config import RealtimeRunConfig, check_run_config
from standfast._src.realtime.machine.transport_interface import RealtimeModel, RealtimeModelConfig
from standfast._src.realtime.session.voice_session import RealtimeSession
from standfast._src.runs.api.arguments import default_provider, tracer_for
from standfast._src.sessions.protocol import Session


class RealtimeRunner:
    """Makes voice sessions of one agent.

    Args:
        starting_agent: The `RealtimeAgent` that answers first.
        model: The transport; left out, a websocket to OpenAI for each session.
        config: Settings of the calls, such as the voice, guardrails and tool policies.
    """

    def __init__(
        self,
        starting_agent: RealtimeAgent[Any],
        *,
        model: RealtimeModel | None = None,
        config: RealtimeRunConfig | None = None,
    ) -> None:
        if not isinstance(starting_agent, RealtimeAgent):
            raise SettingTypeError(
                f"{describe_type(starting_agent)} is no voice agent", "Give a RealtimeAgent to RealtimeRunner."
            )
        self._starting_agent, self._model = starting_agent, model
        self._config = check_run_config(config)

    async def run(
        self,
        *,
        context: object = None,
        model_config: RealtimeModelConfig | None = None,
        session: Session | None = None,
        run_id: str | None = None,
        hooks: RunHooksBase[Any, Any] | None = None,
    ) -> RealtimeSession:
        """A session that has not been entered; nothing is read or sent yet.

        With `session`, what is said goes to that session's store while the call goes on, and the call starts from what
        it holds. A `run_id` that a call on this session has already is taken over.

        Args:
            context: An object for tools, hooks and instructions.
            model_config: Settings of the connection, such as the key, the address and headers.
            session: The stored conversation.
            run_id: The name of the call; left out, a new one.
            hooks: Callbacks for the events of the call.

        Returns:
            A session to be used with `async with`.
        """
        return self._session(context, model_config, session, run_id, hooks, resumes=False)

    async def resume(
        self,
        run_id: str,
        *,
        session: Session,
        context: object = None,
        model_config: RealtimeModelConfig | None = None,
        hooks: RunHooksBase[Any, Any] | None = None,
    ) -> RealtimeSession:
        """Make a session that takes the call over when entered; its previous worker is refused from then on.

        Args:
            run_id: The name of the call.
            session: The stored conversation of the call.
            context: An object for tools, hooks and instructions.
            model_config: Settings of the connection, such as the key, the address and headers.
            hooks: Callbacks for the events of the call.

        Returns:
            A session to be used with `async with`.
        """
        return self._session(context, model_config, session, run_id, hooks, resumes=True)

    def _session(
        self,
        context: object,
        model_config: RealtimeModelConfig | None,
        session: Session | None,
        run_id: str | None,
        hooks: RunHooksBase[Any, Any] | None,
        *,
        resumes: bool,
    ) -> RealtimeSession:
        # One model for each session, unless one is handed in: two calls must not share a connection.
        model = self._model
        if model is None:
            model = edge("_src.realtime.transports.websocket").OpenAIRealtimeWebSocketModel()
        traced = None if self._config.get("tracing_disabled") else tracer_for(RunConfig())
        return RealtimeSession(
            model,
            self._starting_agent,
            context,
            model_config,
            self._config,
            session=session,
            run_id=run_id,
            hooks=hooks,
            new_id=lambda: f"call_{uuid4().hex}",
            tracer=traced,
            provider=default_provider,
            resumes=resumes,
        )
