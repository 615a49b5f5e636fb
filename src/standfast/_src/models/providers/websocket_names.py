"""The SDK's names for the Responses API over a websocket. Requests go over HTTP, with the same results.

A websocket saves a handshake for each request of a run; HTTP keeps its connection alive and saves it too. What a
websocket cannot do is answer for a request that was cut off: HTTP gives a status, an id and a retry that is known to be
safe, which is what clause D5 rests on. So one transport is tested, and these names choose it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from standfast._src.base.errors import UserError
from standfast._src.models.providers.responses_model import OpenAIResponsesModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIResponsesWebSocketOptions(TypedDict, total=False):
    """Settings of a websocket, accepted without effect."""

    ping_interval: float | None
    ping_timeout: float | None
    max_size: int | None


class ResponsesWebSocketError(RuntimeError):
    """The SDK's error for an error frame of a websocket; never raised here."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.payload = dict(payload)
        error = payload.get("error")
        said = error if isinstance(error, Mapping) else payload
        self.code, self.error_message = said.get("code"), said.get("message")
        super().__init__(str(self.error_message or "the websocket gave an error"))


class OpenAIResponsesWSModel(OpenAIResponsesModel):
    """A model of the Responses API, asked over HTTP; `websocket_options` have no effect."""

    def __init__(
        self,
        model: str,
        openai_client: AsyncOpenAI | None = None,
        *,
        websocket_options: OpenAIResponsesWebSocketOptions | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, openai_client, **options)

    async def close(self) -> None:
        """Close the client made for this model."""
        with contextlib.suppress(AttributeError):
            await super().close()


def set_default_openai_responses_transport(transport: Literal["http", "websocket"]) -> None:
    """Taken for the SDK's sake: requests go over HTTP either way."""
    if transport not in ("http", "websocket"):
        raise UserError(f"{transport!r} is no transport", "Use 'http' or 'websocket'; both go over HTTP.")
