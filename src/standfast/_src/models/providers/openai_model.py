"""Base of the two models over the `openai` client: client, retry advice, and errors about replies.

A reply is complete or an error; both APIs use the same wording, here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from standfast._src.base.errors import ModelReplyError
from standfast._src.base.logs import logger
from standfast._src.models.interface import ModelRequest
from standfast._src.models.providers.client import ClientHolder, ClientSource
from standfast._src.models.providers.official_url import is_official_openai_client
from standfast._src.models.providers.request_model import RequestModel
from standfast._src.models.providers.retry_advice import retry_advice
from standfast._src.models.retry import ModelRetryAdvice, ModelRetryAdviceRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI


RUN_AGAIN = "Nothing of it was accepted. Run again, or set a retry policy."

_warned: set[tuple[str, str]] = set()


class OpenAIModel(RequestModel):
    """A model behind one of OpenAI's APIs. The client stays the caller's."""

    provider_name = "openai"  # what traces call it
    api_name: ClassVar[str]
    settings_without_effect: ClassVar[tuple[str, ...]] = ()
    """Model settings that the API has no place for: they are not sent, and a warning says so, once."""

    def __init__(
        self, model: str, openai_client: AsyncOpenAI | None = None, *, clients: ClientSource | None = None
    ) -> None:
        self.model = model
        self._clients = ClientHolder(openai_client, clients)

    async def close(self) -> None:
        """Close the client made for this model; a given client stays open."""
        await self._clients.aclose()

    def server_address(self) -> str:
        """Return the address of the server, for traces."""
        return str(self._clients.get(retries=True).base_url)

    def wants_prompt_cache_key(self) -> bool:
        """Return whether requests carry a `prompt_cache_key`: known to OpenAI's own API, perhaps refused elsewhere."""
        return is_official_openai_client(self._clients.get(retries=True))

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return advice from the service's headers, and whether the server may have taken the request."""
        return retry_advice(request)

    def _client_for(self, request: ModelRequest) -> AsyncOpenAI:
        """Return the client for a request. Its own retries are on only without a retry policy and if no turn can
        double.
        """
        self._warn_of_settings_without_effect(request)
        return self._clients.get(retries=request.model_settings.retry is None and not request.stateful)

    def _warn_of_settings_without_effect(self, request: ModelRequest) -> None:
        for name in self.settings_without_effect:
            if getattr(request.model_settings, name) is not None and (self.api_name, name) not in _warned:
                _warned.add((self.api_name, name))
                logger.warning("ModelSettings.%s has no effect: %s has no such setting", name, self.api_name)

    def _build_malformed_error(self, reason: object) -> ModelReplyError:
        """Build the error for an answer outside this API's format."""
        return ModelReplyError(
            f"the service's reply does not parse: {reason}",
            f"Check base_url: the server must speak {self.api_name}. With one that does, run again.",
            status="malformed",
        )


def how_it_broke(error: Exception) -> tuple[str, str, str | None]:
    """Classify the failure of a stream before its last event: status, message, and the service's code."""
    code = getattr(error, "code", None)
    if isinstance(getattr(error, "body", None), Mapping):  # the library raised an error that the stream carried
        said = code if isinstance(code, str) else None
        return "failed", f"the service ended the reply with an error: {error}", said
    if isinstance(error, ValueError):  # not JSON, or not UTF-8
        return "malformed", f"the reply's stream does not parse: {error}", None
    return "cut", f"the reply's stream broke off: {error}", None
