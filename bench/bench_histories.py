"""How much an engine keeps of a run, by the length of its conversation: the history of a Temporal workflow.

    ./dev bench bench_histories

One agent calls a tool N times; each output has 5 KB. Server: Temporal's development server, as the tests start it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from temporalio.client import Client
from temporalio.worker import Worker

from standfast import Agent, function_tool
from standfast.testing import AnsweringModel, assistant_message, function_call
from standfast.workers.temporal_workflows import TemporalRuns
from tests.helpers import servers, temporal_server

CALLS = (1, 20, 100)
INPUT_KB = (1, 400)


@function_tool
async def look(number: int) -> str:
    """Look."""
    return "x" * 5 * 1024


def agent_of(calls: int) -> Agent[Any]:
    def answer(call: Any) -> Any:
        outputs = sum(1 for item in call.input if item.get("type") == "function_call_output")
        if outputs < calls:
            return [function_call("look", {"number": outputs}, call_id=f"c{outputs}")]
        return [assistant_message("Done.")]

    return Agent(name=f"Looker {calls}", tools=[look], model=AnsweringModel(answer))


async def main() -> None:
    client = await Client.connect(temporal_server.shared().address)
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/runs.db"
        runs = TemporalRuns(client, map(agent_of, CALLS), store, task_queue=uuid.uuid4().hex, max_turns=None)
        print(f"{'calls':>6} {'input KB':>9} {'events':>7} {'history bytes':>14}")
        async with Worker(client, task_queue=runs.task_queue, plugins=[runs.plugin()]):
            for calls in CALLS:
                for kb in INPUT_KB:
                    name = uuid.uuid4().hex
                    handle = await runs.enqueue(name, f"Looker {calls}", "y" * 1024 * kb, session_id=name)
                    await handle.result()
                    info = (await handle.describe()).raw_description.workflow_execution_info
                    print(f"{calls:>6} {kb:>9} {info.history_length:>7} {info.history_size_bytes:>14,}")
        await runs.jobs.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    finally:
        servers.stop_all()
