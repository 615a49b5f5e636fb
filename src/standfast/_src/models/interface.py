"""What a model is to a run: two methods with the SDK's signatures. A model written for the one serves the other.

A reply's items may be typed provider objects or plain mappings; both are turned into JSON once, where they enter a run.
An implementer promises that every tool call carries a non-empty call id, unique for the lifetime of the run and of
whatever is resumed from it. What a failure of a request means is told by `get_retry_advice`, if the provider knows.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standfast._src.items.items import ModelResponse, TResponseInputItem
    from standfast._src.models.model_settings import ModelSettings
    from standfast._src.models.retry import ModelRetryAdvice, ModelRetryAdviceRequest
    from standfast._src.models.tool_definitions import OutputSchema


class ModelTracing(enum.Enum):
    """Whether a model call is traced, and with what was said or without."""

    DISABLED = 0
    ENABLED = 1
    ENABLED_WITHOUT_DATA = 2

    def is_disabled(self) -> bool:
        """Whether nothing is traced."""
        return self is ModelTracing.DISABLED

    def include_data(self) -> bool:
        """Whether inputs and outputs may be written to the trace."""
        return self is ModelTracing.ENABLED


class Model(ABC):
    """A language model: one request in, one reply out, whole or as a stream of events."""

    async def close(self) -> None:  # noqa: B027 — a model that opened nothing has nothing to release
        """Release what the model opened."""

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """What the provider knows about this failure: whether sending again is useful, and whether it is safe."""
        return None

    @abstractmethod
    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any | None,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any | None,
    ) -> ModelResponse:
        """The whole reply to this request."""

    @abstractmethod
    def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any | None,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any | None,
    ) -> AsyncIterator[Any]:
        """The reply to this request as Responses stream events, ending with `response.completed`."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One request as a value: what the two methods of a `Model` take as eleven arguments, under the same names."""

    system_instructions: str | None
    input: str | list[Any]
    model_settings: ModelSettings
    tools: list[Any]
    output_schema: OutputSchema | None
    handoffs: list[Any]
    tracing: ModelTracing = ModelTracing.DISABLED
    previous_response_id: str | None = None
    conversation_id: str | None = None
    prompt: Any | None = None

    @property
    def stateful(self) -> bool:
        """Whether a server that owns the conversation would be changed by it."""
        return bool(self.previous_response_id or self.conversation_id)


class ModelProvider(ABC):
    """Finds a model by its name."""

    @abstractmethod
    def get_model(self, model_name: str | None) -> Model:
        """The model of this name; None asks for the provider's default."""

    async def aclose(self) -> None:  # noqa: B027 — a provider that opened nothing has nothing to release
        """Release what the provider opened."""
