"""A stateless model that answers from the request alone: for programs that are killed and resumed.

A script has a position; a restarted process would start the script over. An answer computed from the conversation is
the same in every process, and for every repetition.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from standfast._kits.testing.script import ModelCall, ModelStep, assistant_message
from standfast._kits.testing.scripted_model import ScriptedModel
from standfast._src.items.items import ModelResponse
from standfast._src.models.interface import ModelRequest
from standfast._src.models.providers.request_model import RequestModel

Answer = Callable[[ModelCall], Any]
"""From a call to its answer: a text, an item, a list of items, or a `ModelStep`; async or not."""


class AnsweringModel(RequestModel):
    """Asks `answer` for every reply, streaming or not."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the whole answer to a request."""
        return await self._once().respond(request)

    def respond_streamed(self, request: ModelRequest) -> AsyncIterator[Any]:
        """Stream the answer to a request."""
        return self._once().respond_streamed(request)

    def _once(self) -> ScriptedModel:
        return ScriptedModel([ModelStep(responder=self._respond)])

    async def _respond(self, call: ModelCall) -> Any:
        answer = self._answer(call)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, str):
            return [assistant_message(answer)]
        return [answer] if isinstance(answer, dict) and "type" in answer else answer
