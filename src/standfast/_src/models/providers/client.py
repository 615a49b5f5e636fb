"""Choice of the `openai` client for a request, and its closing.

A client given by the caller is used as is and never closed. There is a client made here for each event loop, because a
pooled connection belongs to the loop that opened it. It is closed by `aclose`, and else by the end of its loop: later
it could not be closed, and its destructor would raise "Event loop is closed" in whichever loop runs then. `openai` is
imported only when a client has to be made.

The client's own retries are switched off for requests that a server adds to a conversation (a silent second try after a
timeout could double a turn) and for requests under a retry policy of the runner (two layers of retries multiply).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from standfast._src.base.errors import UserError
from standfast._src.base.extras import needed_by
from standfast._src.models.default_models import default_model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ClientSource: TypeAlias = "Callable[[], AsyncOpenAI]"


class OwnClients:
    """Pool with a client for each event loop."""

    def __init__(self, **options: str | None) -> None:
        self._options = {name: value for name, value in options.items() if value is not None}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[None, None]]]
        self._clients = WeakKeyDictionary()

    def __call__(self) -> AsyncOpenAI:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            client = make_client(self._options)
            self._clients[loop] = (client, _close_with_the_loop(client, self._clients))
        return self._clients[loop][0]

    async def aclose(self) -> None:
        """Close the running loop's client."""
        _, closing = self._clients.get(asyncio.get_running_loop(), (None, None))
        if closing is not None:
            await closing.aclose()


def _close_with_the_loop(client: AsyncOpenAI, clients: MutableMapping[Any, Any]) -> AsyncGenerator[None, None]:
    """Return an async generator of the running loop whose end closes the client and takes it out of `clients`.

    `asyncio.run`, and every other program that ends a loop in order, closes the async generators of the loop before the
    loop. No other public hook runs while the connections can still be closed.
    """

    async def until_closed() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            clients.pop(asyncio.get_running_loop(), None)
            await client.close()

    generator = until_closed()
    with contextlib.suppress(StopIteration):
        generator.asend(None).send(None)  # to its `yield`, which needs no loop: only a started generator is closed
    return generator


def make_client(options: dict[str, Any]) -> AsyncOpenAI:
    """Make a new client; without a key, raise an error that lists the sources of a key."""
    with needed_by("a model of OpenAI's, or one with its protocol,"):
        from openai import AsyncOpenAI, OpenAIError
    try:
        return AsyncOpenAI(**options)
    except OpenAIError as error:
        raise UserError(
            f"no OpenAI client can be made: {str(error).rstrip('.')}",
            "Set OPENAI_API_KEY, call set_default_openai_key or set_default_openai_client, or give the provider a key.",
        ) from None  # its text is in this one


def note_address(error: BaseException, client: AsyncOpenAI) -> None:
    """Add the address to an error of the network, which names none."""
    if type(error).__name__ == "APIConnectionError":
        error.add_note(f"No answer came from {client.base_url}. Check base_url or OPENAI_BASE_URL, and the network.")


class ClientHolder:
    """Access of a model to its client, given or made, with the client's own retries on or off."""

    def __init__(self, client: AsyncOpenAI | None = None, source: ClientSource | None = None) -> None:
        self._client, self._source = client, source
        self._own = None if client is not None or source is not None else OwnClients()
        self._without_retries: tuple[AsyncOpenAI, AsyncOpenAI] | None = None

    def get(self, *, retries: bool) -> AsyncOpenAI:
        """The client to send with."""
        client = self._client if self._client is not None else self._make_client()
        if retries or getattr(client, "max_retries", None) == 0:
            return client
        if self._without_retries is None or self._without_retries[0] is not client:
            self._without_retries = (client, client.with_options(max_retries=0))
        return self._without_retries[1]

    def _make_client(self) -> AsyncOpenAI:
        source = self._source if self._source is not None else self._own
        assert source is not None  # the constructor made one if it was given none
        return source()

    async def aclose(self) -> None:
        """Close the client made for this model; a given client stays open."""
        self._without_retries = None
        if self._own is not None:
            await self._own.aclose()


# --- defaults of the process -----------------------------------------------------------------------------------------


class _Defaults:
    key: str | None = None
    client: AsyncOpenAI | None = None
    use_responses: bool = True


def set_default_openai_key(key: str | None, use_for_tracing: bool = True) -> None:
    """The key for clients that standfast makes. `use_for_tracing` is taken for the SDK's sake and has no effect.

    None takes back what was set, for instance at the end of a test.
    """
    _Defaults.key = key


def set_default_openai_client(client: AsyncOpenAI | None, use_for_tracing: bool = True) -> None:
    """Set the client for models without their own. The caller remains responsible for closing it.

    None takes back what was set, for instance at the end of a test. `use_for_tracing` is taken for the SDK's sake and
    has no effect: traces go where OpenTelemetry sends them.
    """
    _Defaults.client = client


def set_default_openai_api(api: Literal["chat_completions", "responses"]) -> None:
    """Set the API used by models found by name."""
    if api not in ("chat_completions", "responses"):
        raise UserError(f"{api!r} is not an API of OpenAI's", "Use 'responses' or 'chat_completions'.")
    _Defaults.use_responses = api == "responses"


def default_client() -> AsyncOpenAI | None:
    """Return the client set for the whole process."""
    return _Defaults.client


def default_key() -> str | None:
    """Return the key set for the whole process."""
    return _Defaults.key


def uses_responses_by_default() -> bool:
    """Return whether models found by name use the Responses API."""
    return _Defaults.use_responses


def get_default_model() -> str:
    """Return the name of the default model."""
    return default_model(os.environ)
