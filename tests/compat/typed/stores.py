"""Sessions around sessions, a server of tools and a trace, as a program that is type-checked strictly has them."""

from __future__ import annotations

from typing import Any

import redis.asyncio
from agents import AgentBase, OpenAIResponsesCompactionSession, RunContextWrapper, SessionABC, SQLiteSession, trace
from agents.extensions.memory import EncryptedSession, RedisSession
from agents.mcp import MCPServer
from mcp.types import CallToolResult, GetPromptResult, ListPromptsResult, Tool


def sealed(around: SessionABC) -> EncryptedSession:
    return EncryptedSession(session_id="talk", underlying_session=around, encryption_key="a key")


def compacted(around: SessionABC) -> OpenAIResponsesCompactionSession:
    return OpenAIResponsesCompactionSession("talk", around)


async def worked(client: redis.asyncio.Redis) -> None:
    await RedisSession("talk", redis_client=client, ttl=60).clear_session()
    await compacted(SQLiteSession("talk")).run_compaction({"force": True})
    with trace("Support desk", metadata={"shop": "north"}):
        await sealed(SQLiteSession("talk")).clear_session()


class Tools(MCPServer):
    @property
    def name(self) -> str:
        return "tools"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase[Any] | None = None
    ) -> list[Tool]:
        return []

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        raise NotImplementedError

    async def list_prompts(self) -> ListPromptsResult:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        raise NotImplementedError
