"""Journal of the loopback provider: exact requests and their answers.

The proof of any claim about sent data is on this side of the wire: a test asserts on `server.requests`, not on the
client's belief.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from standfast._src.base.json_values import Item

MODEL_PATH = re.compile(r"(?:(?:/openai)?/v1|/openai/deployments/[^/]+)/(?:responses|chat/completions)")
"""Paths of requests to a model: those of OpenAI, and those of Azure with and without a deployment in the path."""


@dataclass(slots=True)
class Received:
    """A request and, once answered, its result."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any
    """The parsed JSON body; None if there was none."""
    status: int | None = None
    """HTTP status of the answer; None if the connection was cut before."""
    error_code: str | None = None
    error_message: str | None = None
    committed: bool = False
    """True if the service took the request: it is part of the history from now on."""
    response_id: str | None = None
    faults: tuple[str, ...] = field(default=())

    @property
    def is_model_call(self) -> bool:
        """True for a request to the model (instead of one about stored objects)."""
        return self.method == "POST" and MODEL_PATH.fullmatch(self.path) is not None

    @property
    def input(self) -> list[Item]:
        """The items of a Responses request, or the messages of a Chat request; a str input as one user message."""
        value = self.body.get("input", self.body.get("messages", [])) if isinstance(self.body, dict) else []
        return [{"role": "user", "content": value}] if isinstance(value, str) else list(value or [])

    @property
    def previous_response_id(self) -> str | None:
        """Response that this request continues."""
        return self.body.get("previous_response_id") if isinstance(self.body, dict) else None

    @property
    def conversation_id(self) -> str | None:
        """Conversation of this request."""
        value = self.body.get("conversation") if isinstance(self.body, dict) else None
        return value.get("id") if isinstance(value, dict) else value

    @property
    def streamed(self) -> bool:
        """True if the client asked for a stream."""
        return bool(isinstance(self.body, dict) and self.body.get("stream"))
