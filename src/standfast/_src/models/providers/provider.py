"""Providers of models by name: OpenAI, compatible servers, and other providers behind a prefix.

A provider with a given client uses it and leaves it open. Otherwise clients are made at the first request (no key is
needed to make a provider), one for each event loop, and closed by `aclose`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from standfast._src.base.errors import UserError
from standfast._src.models.interface import Model, ModelProvider
from standfast._src.models.providers.chat_model import OpenAIChatCompletionsModel
from standfast._src.models.providers.client import (
    OwnClients,
    default_client,
    default_key,
    get_default_model,
    make_client,
    uses_responses_by_default,
)
from standfast._src.models.providers.litellm_and_any_llm import AnyLLMProvider, LitellmProvider
from standfast._src.models.providers.registration import (
    OpenAIAgentRegistrationConfig,
    resolve_openai_agent_registration_config,
)
from standfast._src.models.providers.responses_model import OpenAIResponsesModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIProvider(ModelProvider):
    """Models of OpenAI, or of the compatible server at `base_url`.

    Without any client option it uses the client of `set_default_openai_client`, if one is set. `use_responses=None`
    follows `set_default_openai_api`. The options about websockets are refused: requests go over HTTP, where a lost
    answer can be asked for (D5). `strict_feature_validation` and `buffer_streamed_tool_calls` are accepted as the SDK's
    and change nothing.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        openai_client: AsyncOpenAI | None = None,
        organization: str | None = None,
        project: str | None = None,
        use_responses: bool | None = None,
        websocket_base_url: str | None = None,
        use_responses_websocket: bool | None = None,
        responses_websocket_options: Mapping[str, Any] | None = None,
        strict_feature_validation: bool = False,
        buffer_streamed_tool_calls: bool = False,
        agent_registration: OpenAIAgentRegistrationConfig | dict[str, Any] | None = None,
    ) -> None:
        if websocket_base_url or use_responses_websocket or responses_websocket_options:
            raise UserError(
                "OpenAIProvider was given options of the Responses API over a websocket",
                "Leave them out: requests go over HTTP, with connections that stay open from run to run.",
            )
        # Calls are always buffered until they are whole; ModelSettings warn about what an API has no place for.
        self.agent_registration = resolve_openai_agent_registration_config(agent_registration)
        options = {"api_key": api_key, "base_url": base_url, "organization": organization, "project": project}
        given = sorted(name for name, value in options.items() if value is not None)
        if openai_client is not None and given:
            raise UserError(
                f"OpenAIProvider was given a client and also {', '.join(given)}",
                "Set these on the client, or leave the client out.",
            )
        self._given, self._options = openai_client, options
        self._has_options = bool(given)
        self._use_responses = uses_responses_by_default() if use_responses is None else use_responses
        self._own: OwnClients | None = None

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of a name; None means the default model."""
        name = get_default_model() if model_name is None else model_name
        if self._use_responses:
            return OpenAIResponsesModel(name, model_is_explicit=model_name is not None, clients=self._client)
        return OpenAIChatCompletionsModel(name, clients=self._client)

    async def aclose(self) -> None:
        """Close the clients made by this provider for the running loop."""
        if self._own is not None:
            await self._own.aclose()

    def require_key(self) -> None:
        """Raise UserError if no client can be made: without a key no request of a run could leave."""
        key = self._options["api_key"] or default_key() or os.environ.get("OPENAI_API_KEY")
        has_client = self._given is not None or (not self._has_options and default_client() is not None)
        if not key and not has_client:
            make_client({name: value for name, value in self._options.items() if value is not None})

    def _client(self) -> AsyncOpenAI:
        if self._given is not None:
            return self._given
        shared = None if self._has_options else default_client()
        if shared is not None:
            return shared
        if self._own is None:
            key = self._options["api_key"] or default_key()
            self._own = OwnClients(**{**self._options, "api_key": key})
        return self._own()


class MultiProviderMap:
    """Map from prefixes to providers."""

    def __init__(self) -> None:
        self._mapping: dict[str, ModelProvider] = {}

    def has_prefix(self, prefix: str) -> bool:
        """Return whether a prefix has a provider."""
        return prefix in self._mapping

    def get_mapping(self) -> dict[str, ModelProvider]:
        """A copy of the whole map."""
        return dict(self._mapping)

    def set_mapping(self, mapping: Mapping[str, ModelProvider]) -> None:
        """Replace the whole map."""
        self._mapping = dict(mapping)

    def get_provider(self, prefix: str) -> ModelProvider | None:
        """Return the provider of a prefix, or None."""
        return self._mapping.get(prefix)

    def add_provider(self, prefix: str, provider: ModelProvider) -> None:
        """Put a provider behind a prefix."""
        self._mapping[prefix] = provider

    def remove_provider(self, prefix: str) -> None:
        """Take a prefix out of the map."""
        del self._mapping[prefix]


class MultiProvider(ModelProvider):
    """Find models by the prefix of their name: "openai/gpt-4.1" and "gpt-4.1" are OpenAI's, other prefixes are in the
    map.

    "litellm/…" and "any-llm/…" go through these packages, if installed. A prefix of the map wins over the built-in
    ones. `openai_prefix_mode="model_id"` and `unknown_prefix_mode="model_id"` hand names with a slash on whole, for
    servers whose model names have one.
    """

    def __init__(
        self,
        *,
        provider_map: MultiProviderMap | None = None,
        openai_api_key: str | None = None,
        openai_base_url: str | None = None,
        openai_client: AsyncOpenAI | None = None,
        openai_organization: str | None = None,
        openai_project: str | None = None,
        openai_use_responses: bool | None = None,
        openai_websocket_base_url: str | None = None,
        openai_use_responses_websocket: bool | None = None,
        openai_responses_websocket_options: Mapping[str, Any] | None = None,
        openai_agent_registration: OpenAIAgentRegistrationConfig | dict[str, Any] | None = None,
        openai_strict_feature_validation: bool = False,
        openai_buffer_streamed_tool_calls: bool = False,
        openai_prefix_mode: Literal["alias", "model_id"] = "alias",
        unknown_prefix_mode: Literal["error", "model_id"] = "error",
    ) -> None:
        _check_mode("openai_prefix_mode", openai_prefix_mode, ("alias", "model_id"))
        _check_mode("unknown_prefix_mode", unknown_prefix_mode, ("error", "model_id"))
        self.provider_map = provider_map
        self.openai_provider = OpenAIProvider(
            api_key=openai_api_key,
            base_url=openai_base_url,
            openai_client=openai_client,
            organization=openai_organization,
            project=openai_project,
            use_responses=openai_use_responses,
            websocket_base_url=openai_websocket_base_url,
            use_responses_websocket=openai_use_responses_websocket,
            responses_websocket_options=openai_responses_websocket_options,
            agent_registration=openai_agent_registration,
            strict_feature_validation=openai_strict_feature_validation,
            buffer_streamed_tool_calls=openai_buffer_streamed_tool_calls,
        )
        self._openai_prefix_mode, self._unknown_prefix_mode = openai_prefix_mode, unknown_prefix_mode
        self._others: dict[str, ModelProvider] = {}

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of a name, with or without a prefix."""
        provider, name = self._find(model_name)
        return provider.get_model(name)

    def require_key(self, model_name: str | None) -> None:
        """Raise UserError if this is a model of OpenAI and no key is set for it."""
        if model_name is None or "/" not in model_name:
            self.openai_provider.require_key()

    def _find(self, model_name: str | None) -> tuple[ModelProvider, str | None]:
        if model_name is None or "/" not in model_name:
            return self.openai_provider, model_name
        prefix, name = model_name.split("/", 1)
        mapped = self.provider_map.get_provider(prefix) if self.provider_map is not None else None
        if mapped is not None:
            return mapped, name
        if prefix == "openai":
            return self.openai_provider, name if self._openai_prefix_mode == "alias" else model_name
        if prefix in _OTHER_PACKAGES:
            return self._others.setdefault(prefix, _OTHER_PACKAGES[prefix]()), name
        if self._unknown_prefix_mode == "model_id":
            return self.openai_provider, model_name
        raise UserError(
            f"no provider stands behind the prefix {prefix!r} of model {model_name!r}",
            "Add one to the provider_map, or set unknown_prefix_mode='model_id' if the slash belongs to the name.",
        )

    async def aclose(self) -> None:
        """Close every provider of the map and our own; all are tried, the first error is raised."""
        mapped = self.provider_map.get_mapping().values() if self.provider_map is not None else ()
        first: Exception | None = None
        for provider in {id(one): one for one in (self.openai_provider, *mapped) if one is not self}.values():
            try:
                await provider.aclose()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


_OTHER_PACKAGES: dict[str, type[ModelProvider]] = {"litellm": LitellmProvider, "any-llm": AnyLLMProvider}


def _check_mode(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UserError(f"{name}={value!r} is not a mode", f"Use one of: {', '.join(known)}.")
