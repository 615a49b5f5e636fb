"""The SDK's names for converters of Chat Completions, for programs that write their own requests.

standfast itself does not use them: the rules are in `_src.models.chat_format`, and this module delegates to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from standfast._src.items.items import to_plain
from standfast._src.models import chat_format
from standfast._src.models.model_settings import ModelSettings, ToolChoice
from standfast._src.models.providers.chat_model import ReplyItem, typed_items
from standfast._src.models.providers.official_url import is_official_openai_client
from standfast._src.models.tool_definitions import OfferedFunction, OfferedHandoff, OutputSchema

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionMessage


class Converter:
    """Converter between items and the Chat Completions API."""

    @classmethod
    def items_to_messages(cls, items: str | Iterable[Any], **options: object) -> list[dict[str, Any]]:
        """Convert the items of a conversation to chat messages. Options for other providers have no effect."""
        return chat_format.messages_from_items(items)

    @classmethod
    def message_to_output_items(
        cls, message: ChatCompletionMessage | Mapping[str, Any], provider_data: dict[str, Any] | None = None
    ) -> list[ReplyItem]:
        """A reply's message as items: text, refusals and calls."""
        return typed_items(chat_format.assistant_items(to_plain(message)))

    @classmethod
    def tool_to_openai(cls, tool: OfferedFunction, **options: object) -> dict[str, Any]:
        """Convert a function tool to this API's form."""
        return chat_format.function_param(tool)

    @classmethod
    def convert_handoff_tool(cls, handoff: OfferedHandoff) -> dict[str, Any]:
        """Convert a handoff to this API's form."""
        return chat_format.handoff_param(handoff)

    @classmethod
    def convert_tool_choice(cls, tool_choice: ToolChoice, **options: object) -> str | dict[str, Any] | None:
        """Convert a tool choice to this API's form."""
        return chat_format.tool_choice_param(tool_choice)

    @classmethod
    def convert_response_format(cls, final_output_schema: OutputSchema | None) -> dict[str, Any] | None:
        """Convert an output type to this API's form; None for text."""
        return chat_format.response_format_param(final_output_schema)


class ChatCmplHelpers:
    """Queries about a Chat Completions client and its settings."""

    @classmethod
    def is_openai(cls, client: AsyncOpenAI) -> bool:
        """Return whether the client's server is OpenAI's own API."""
        return is_official_openai_client(client)

    @classmethod
    def get_store_param(cls, client: AsyncOpenAI, model_settings: ModelSettings) -> bool | None:
        """Return whether to keep the reply: the setting, else True at OpenAI's own API."""
        if model_settings.store is not None:
            return model_settings.store
        return True if cls.is_openai(client) else None

    @classmethod
    def get_stream_options_param(
        cls, client: AsyncOpenAI, model_settings: ModelSettings, stream: bool
    ) -> dict[str, bool] | None:
        """Return the option for usage at the end of a stream: the setting, else True at OpenAI's own API."""
        if not stream:
            return None
        wanted = model_settings.include_usage
        if wanted is None:
            wanted = True if cls.is_openai(client) else None
        return None if wanted is None else {"include_usage": wanted}
