"""A conversation in Redis that expires: made from a URL, with a time to live in seconds."""

from __future__ import annotations

from typing import Any

from agents.extensions.memory.redis_session import RedisSession
from agents.run import Runner


async def talk(agent: Any, url: str) -> Any:
    session = RedisSession.from_url(session_id="guest-7", url=url, ttl=3600)
    result = await Runner.run(agent, "Good morning.", session=session)
    await session.close()
    return result
