"""What the OpenAI Agents SDK documents as `agents.models.chatcmpl_helpers`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.models.providers.chat_converter import ChatCmplHelpers as ChatCmplHelpers
    from standfast._src.models.providers.headers import HEADERS as HEADERS, HEADERS_OVERRIDE as HEADERS_OVERRIDE

__getattr__, __dir__ = lazy(__name__)
