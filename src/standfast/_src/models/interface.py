"""Interface of a model: two methods with the SDK's signatures. A model written for the SDK works here, and vice versa.

A reply's items may be typed provider objects or plain mappings; both are turned into JSON once, where they enter a run.
An implementer promises that every tool call carries a non-empty call id, unique for the lifetime of the run and of
every run resumed from it. `get_retry_advice` explains a failed request, if the provider knows more.
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
    """Tracing of a model call: off, with data, or without data."""

    DISABLED = 0
    ENABLED = 1
    ENABLED_WITHOUT_DATA = 2

    def is_disabled(self) -> bool:
        """Return whether tracing is off."""
        return self is ModelTracing.DISABLED

    def include_data(self) -> bool:
        """Return whether a trace may contain inputs and outputs."""
        return self is ModelTracing.ENABLED


class Model(ABC):
    """A language model: answers a request by a reply, whole or as a stream of events."""

    async def close(self) -> None:  # noqa: B027 — a model that opened nothing has nothing to release
        """Release all resources opened by the model."""

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the provider's knowledge of a failure: is a retry useful, and is it safe?"""
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
        """Send a request and return the whole reply."""

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
    """A request as a value: the eleven arguments of a `Model`'s methods, under the same names."""

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
        """True if the request changes a conversation owned by a server."""
        return bool(self.previous_response_id or self.conversation_id)


class ModelProvider(ABC):
    """Factory of models by name."""

    @abstractmethod
    def get_model(self, model_name: str | None) -> Model:
        """Return the model of a name; None means the provider's default."""

    async def aclose(self) -> None:  # noqa: B027 — a provider that opened nothing has nothing to release
        """Release all resources opened by the provider."""
