"""Run `LitellmModel` and `AnyLLMModel` with the real packages against the loopback provider, and say what came of it.

They are not among our development packages, because they bring some forty others along. So this makes an environment of
its own, installs the pinned versions of `requirements/other.txt`, and runs itself there. Start it with
`python tools/other_providers.py`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

from dev import install

ROOT = Path(__file__).resolve().parent.parent
THERE = "--there"
PACKAGES = {"litellm": "litellm", "any-llm": "any-llm-sdk"}


def prepare() -> int:
    """Make the environment, install everything, and run this file in it."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install(Path(python), ROOT / "requirements" / "other.txt")
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.call([python, __file__, THERE], env=environment)


async def check() -> int:
    """A turn with a tool, whole and streamed, a refusal, and a stream that breaks off, for each package."""
    from standfast import Agent, ModelReplyError, Runner, function_tool
    from standfast.extensions.models.any_llm_model import AnyLLMModel
    from standfast.extensions.models.litellm_model import LitellmModel
    from standfast.testing.loopback import Cut, LoopbackServer, call

    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def run(agent: Any, streamed: bool) -> Any:
        if not streamed:
            return await Runner.run(agent, "What is 1 + 2?")
        result = Runner.run_streamed(agent, "What is 1 + 2?")
        async for _ in result.stream_events():
            pass
        return result

    failed = 0
    for extra, kind in (("litellm", LitellmModel), ("any-llm", AnyLLMModel)):
        for streamed in (False, True):
            with LoopbackServer([call("add", {"a": 1, "b": 2}), "Three."]) as server:
                agent = Agent(name="a", tools=[add], model=kind("openai/some-model", server.base_url, "none"))
                result = await run(agent, streamed)
                said = result.final_output == "Three." and result.context_wrapper.usage.total_tokens > 0
                print(f"{extra} {metadata.version(PACKAGES[extra])}, {'streamed' if streamed else 'whole'}: {said}")
                failed += not said
        with LoopbackServer(["Never whole."]) as server:
            server.fault(Cut(after_events=2))
            try:
                await run(Agent(name="a", model=kind("openai/some-model", server.base_url, "none")), True)
            except ModelReplyError as error:
                print(f"{extra}, a stream that breaks off: {error.status}")
            else:
                print(f"{extra}, a stream that breaks off: NOT NOTICED")
                failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(check()) if sys.argv[1:] == [THERE] else prepare())
