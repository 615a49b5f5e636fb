"""A workflow of an application, as Temporal's sandbox loads it: two agents, a conversation, and a plain step."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from standfast.workers.temporal_workflows import run_agent, send_message


@workflow.defn
class Office:
    @workflow.run
    async def run(self, order: str) -> dict[str, Any]:
        both = await asyncio.gather(run_agent("Payer", f"{order}a {order}b"), run_agent("Payer", f"{order}c"))
        message_id = await send_message(f"talk-{order}", f"ask{order}", agent="Payer")
        answer = await run_agent("Payer", run_id=message_id, session_id=f"talk-{order}")
        return {"steps": [one["output"] for one in both], "answer": answer["output"]}
