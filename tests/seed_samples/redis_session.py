from agents.extensions.memory.redis_session import RedisSession
from agents.run import Runner

# Create from URL with optional TTL

session = RedisSession.from_url(
    session_id="user-456",
    url="redis://localhost:6379/0",
    ttl=86400  # 24 hour expiration

)

await Runner.run(agent, "Explain quantum computing", session=session)
await session.close()
