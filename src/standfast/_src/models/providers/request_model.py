"""Adapter from the SDK's long signature to methods of a single `ModelRequest`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from standfast._src.items.items import ModelResponse, TResponseInputItem
from standfast._src.models.interface import Model, ModelRequest, ModelTracing
from standfast._src.models.model_settings import ModelSettings


class RequestModel(Model):
    """Base of models with two methods of a `ModelRequest`; converts the SDK's long signature once."""

    @abstractmethod
    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Send a request and return the whole reply."""

    @abstractmethod
    def respond_streamed(self, request: ModelRequest) -> AsyncIterator[Any]:
        """The reply to this request as Responses stream events, ending with `response.completed`."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any | None,
        handoffs: list[Any],
        tracing: ModelTracing = ModelTracing.DISABLED,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any | None = None,
    ) -> ModelResponse:
        """The whole reply, or an error."""
        return await self.respond(
            ModelRequest(
                system_instructions=system_instructions,
                input=input,
                model_settings=model_settings,
                tools=tools,
                output_schema=output_schema,
                handoffs=handoffs,
                tracing=tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )
        )

    def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any | None,
        handoffs: list[Any],
        tracing: ModelTracing = ModelTracing.DISABLED,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any | None = None,
    ) -> AsyncIterator[Any]:
        """The events of the reply. Ends after `response.completed`; every other end is an error."""
        return self.respond_streamed(
            ModelRequest(
                system_instructions=system_instructions,
                input=input,
                model_settings=model_settings,
                tools=tools,
                output_schema=output_schema,
                handoffs=handoffs,
                tracing=tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )
        )
