"""A worker process: pays once, by a tool, in a run under one id. Told to die, it does so inside the tool.

python paying_worker.py redis|cluster|postgres|sealed|sqlalchemy URL NAME LEDGER [die]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from standfast import (
    Agent,
    EncryptedSession,
    PostgresSession,
    RedisSession,
    RunConfig,
    Runner,
    SQLAlchemySession,
    function_tool,
)
from standfast.testing import ScriptedModel, assistant_message, function_call


def opened(kind: str, url: str, name: str) -> Any:
    if kind == "sealed":
        return EncryptedSession("conversation", opened("redis", url, name), "a key that all workers have")
    if kind in ("redis", "cluster"):
        return RedisSession.from_url("conversation", url=url, cluster=kind == "cluster", key_prefix=name)
    if kind == "sqlalchemy":
        names = {"sessions_table": f"{name}_s", "messages_table": f"{name}_m", "create_tables": True}
        return SQLAlchemySession.from_url(
            "conversation", url=url.replace("postgresql://", "postgresql+asyncpg://", 1), **names
        )
    return PostgresSession("conversation", url=url, schema=name)


async def main(kind: str, url: str, name: str, ledger: str, *rest: str) -> None:
    @function_tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        with Path(ledger).open("a") as file:
            file.write(f"{amount}\n")
        if rest == ("die",):
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    replies = [[function_call("pay", {"amount": 7}, call_id="c1")], [assistant_message("finished")]]
    if not rest and Path(ledger).exists():
        replies = replies[1:]  # the call was made in the first life; what is left to say is the end
    agent: Any = Agent(name="clerk", tools=[pay], model=ScriptedModel(replies))
    session = opened(kind, url, name)
    # Short for the one that dies, so that nobody waits long for it; the others must not lose theirs on a busy machine.
    config = RunConfig(run_id="job", lease_ttl_s=2 if rest else 60, lease_wait_s=30)
    result = await Runner.run(agent, "pay 7", session=session, run_config=config)
    print(result.final_output, len(await session.get_items()), flush=True)
    session.close()


asyncio.run(main(*sys.argv[1:]))
