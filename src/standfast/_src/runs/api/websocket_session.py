"""`responses_websocket_session`: several runs with one provider, under the SDK's name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import RunConfig, coerce_run_config
from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.json_values import Item
from standfast._src.exports.lazy import edge
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.api.runner import Runner
from standfast._src.runs.loop.result import RunResult
from standfast._src.runs.loop.streamed_result import RunResultStreaming


@dataclass(frozen=True)
class ResponsesWebSocketSession:
    """Session of runs with one provider, with HTTP connections kept open from run to run."""

    provider: Any
    run_config: RunConfig

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_config", coerce_run_config(self.run_config))

    async def run(
        self, starting_agent: Agent[Any], input: str | list[Item] | RunState[Any], **options: Any
    ) -> RunResult:
        """Call `Runner.run` with this session's provider."""
        return await Runner.run(starting_agent, input, **self._with_config(options))

    def run_streamed(
        self, starting_agent: Agent[Any], input: str | list[Item] | RunState[Any], **options: Any
    ) -> RunResultStreaming:
        """Call `Runner.run_streamed` with this session's provider."""
        return Runner.run_streamed(starting_agent, input, **self._with_config(options))

    def _with_config(self, options: dict[str, Any]) -> dict[str, Any]:
        if "run_config" in options:
            raise InvalidSettingError("this session has a run_config already", "Leave it out.")
        return {**options, "run_config": self.run_config}

    async def aclose(self) -> None:
        """Close the provider's connections."""
        provider = self.run_config.model_provider
        if provider is not None:
            await provider.aclose()


@asynccontextmanager
async def responses_websocket_session(
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    websocket_base_url: str | None = None,
    organization: str | None = None,
    project: str | None = None,
    openai_prefix_mode: Literal["alias", "model_id"] = "alias",
    unknown_prefix_mode: Literal["error", "model_id"] = "error",
    responses_websocket_options: object = None,
) -> AsyncIterator[ResponsesWebSocketSession]:
    """Several runs with one provider: `async with responses_websocket_session() as talk: await talk.run(agent, "Hi")`.

    Requests go over HTTP to `base_url`; `websocket_base_url` and `responses_websocket_options` have no effect.
    """
    provider = edge("_src.models.providers.provider").MultiProvider(
        openai_api_key=api_key,
        openai_base_url=base_url,
        openai_organization=organization,
        openai_project=project,
        openai_use_responses=True,
        openai_prefix_mode=openai_prefix_mode,
        unknown_prefix_mode=unknown_prefix_mode,
    )
    session = ResponsesWebSocketSession(provider.openai_provider, RunConfig(model_provider=provider))
    try:
        yield session
    finally:
        await session.aclose()
