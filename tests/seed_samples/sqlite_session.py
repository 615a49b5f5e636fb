from agents.memory.sqlite_session import SQLiteSession
from agents.run import Runner

# Persistent disk-based session

session = SQLiteSession(
    session_id="conversation-123",
    db_path="chat_history.db"
)

result = await Runner.run(agent, "Hello!", session=session)
await session.close()
