"""Models of other providers, through the packages LiteLLM and any-llm.

Both offer OpenAI's Chat Completions call as a Python function, for a hundred providers. So a model here is the adapter
for that API with the function in the place of the client: requests, replies, streams and failures are read by the same
code. Extensions beyond Chat Completions (thinking blocks, signatures) are not kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any, Literal, NoReturn

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import UserError
from standfast._src.base.extras import needed_by
from standfast._src.models.interface import Model, ModelProvider, ModelRequest
from standfast._src.models.providers.chat_model import OpenAIChatCompletionsModel
from standfast._src.models.providers.client import get_default_model

CompletionFunction = Callable[..., Awaitable[Any]]


class CompletionModel(OpenAIChatCompletionsModel):
    """A model behind a function with the arguments and results of `chat.completions.create`."""

    def __init__(self, model: str, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, clients=_no_client)
        self.base_url, self.api_key = base_url, api_key

    def completion_function(self, *, retries: bool) -> CompletionFunction:
        """Return the function; `retries` is False if only the run may repeat a request."""
        raise NotImplementedError(f"{type(self).__name__} has no completion_function: override it.")

    def wants_prompt_cache_key(self) -> bool:
        """Return False: the key is OpenAI's, and another provider may refuse it."""
        return False

    async def close(self) -> None:
        """Do nothing: the model opens no resources."""

    def _client_for(self, request: ModelRequest) -> Any:
        self._warn_of_settings_without_effect(request)
        retries = request.model_settings.retry is None and not request.stateful
        return _FunctionClient(self.completion_function(retries=retries))


class _FunctionClient:
    """The part of an `openai` client used by the adapter."""

    base_url = ""

    def __init__(self, function: CompletionFunction) -> None:
        self._function = function
        self.chat = self.completions = self

    async def create(self, **arguments: Any) -> Any:
        answer = await self._function(**arguments)
        return _Stream(answer) if arguments.get("stream") else answer


class _Stream:
    """A closable stream, whatever the package calls its closing method."""

    def __init__(self, chunks: AsyncIterable[object]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[object]:
        return aiter(self._chunks)

    async def close(self) -> None:
        for name in ("aclose", "close"):
            close = getattr(self._chunks, name, None)
            if close is not None:
                await maybe_await(close())
                return


def _no_client() -> NoReturn:
    raise AssertionError("a model over a function has no client")


# --- LiteLLM ---------------------------------------------------------------------------------------------------------


class LitellmModel(CompletionModel):
    """A model by its LiteLLM name, such as `anthropic/claude-sonnet-4`; needs `standfast[litellm]`.

    Keys come from the environment variables that LiteLLM reads, unless `api_key` is given.
    """

    provider_name = "litellm"

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        should_replay_reasoning_content: object = None,
    ) -> None:
        super().__init__(model, base_url, api_key)
        if should_replay_reasoning_content is not None:
            raise UserError(
                "LitellmModel keeps no reasoning content, so it cannot decide whether to send it again",
                "Leave should_replay_reasoning_content out.",
            )

    def completion_function(self, *, retries: bool) -> CompletionFunction:
        """Return `litellm.acompletion`, bound to this model's address and key."""
        litellm = _package("litellm", "LitellmModel")
        fixed: dict[str, Any] = {"base_url": self.base_url, "api_key": self.api_key}
        if not retries:
            fixed |= {"num_retries": 0, "max_retries": 0}

        async def complete(**arguments: Any) -> Any:
            given = {name: value for name, value in fixed.items() if value is not None}
            answer = await litellm.acompletion(**{**given, **arguments})
            return _LitellmStream(answer) if arguments.get("stream") else answer

        return complete


class _LitellmStream:
    """LiteLLM's stream without its made-up end, with which a cut reply would look whole and be kept."""

    def __init__(self, chunks: AsyncIterable[object]) -> None:
        self._chunks = chunks
        self.aclose = getattr(chunks, "aclose", None)

    async def __aiter__(self) -> AsyncIterator[object]:
        async for chunk in self._chunks:
            choices: Any = getattr(chunk, "choices", None) or ()
            says_end = bool(choices) and choices[0].finish_reason is not None
            if says_end and getattr(self._chunks, "received_finish_reason", "unknown") is None:
                return  # the provider never said so
            yield chunk


class LitellmProvider(ModelProvider):
    """Finds every model through LiteLLM: `RunConfig(model_provider=LitellmProvider())`."""

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of a name; None means the default model."""
        return LitellmModel(model_name or get_default_model())


# --- any-llm ---------------------------------------------------------------------------------------------------------


class AnyLLMModel(CompletionModel):
    """A model by its any-llm name, such as `mistral/mistral-small`; needs `standfast[any-llm]`.

    The part before the first slash (or colon) is the provider, `openai` if there is none. Keys come from the
    environment variables that any-llm reads, unless `api_key` is given.
    """

    provider_name = "any-llm"

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        api: Literal["responses", "chat_completions"] | None = None,
    ) -> None:
        super().__init__(model, base_url, api_key)
        if api not in (None, "chat_completions"):
            raise UserError(
                f"AnyLLMModel does not ask through {api!r}",
                "Leave api out, or use OpenAIResponsesModel for a server that speaks the Responses API.",
            )
        self.api = api

    def completion_function(self, *, retries: bool) -> CompletionFunction:
        """Return any-llm's completion function of this model's provider. any-llm has no retries to switch off."""
        any_llm = _package("any_llm", "AnyLLMModel")
        place = min((found for found in map(self.model.find, "/:") if found > 0), default=-1)
        provider, name = ("openai", self.model) if place < 0 else (self.model[:place], self.model[place + 1 :])
        made = any_llm.AnyLLM.create(provider, api_key=self.api_key, api_base=self.base_url)

        async def complete(**arguments: Any) -> Any:
            return await made.acompletion(**{**arguments, "model": name})

        return complete


class AnyLLMProvider(ModelProvider):
    """Finds every model through any-llm: `RunConfig(model_provider=AnyLLMProvider())`."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        api: Literal["responses", "chat_completions"] | None = None,
    ) -> None:
        self.api_key, self.base_url, self.api = api_key, base_url, api

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of a name; None means OpenAI's default model."""
        return AnyLLMModel(model_name or f"openai/{get_default_model()}", self.base_url, self.api_key, self.api)


def _package(name: str, what: str) -> Any:
    """Import a package, or raise an error with the install command."""
    with needed_by(what):
        return import_module(name)
