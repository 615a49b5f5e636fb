"""A client that standfast makes belongs to one event loop, and ends with it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap

from standfast import Agent, OpenAIProvider, RunConfig, Runner
from standfast.testing.loopback import LoopbackServer
from tests.helpers.children import import_path

PROGRAM = """
    import asyncio, gc
    from concurrent.futures import ThreadPoolExecutor
    from standfast import Agent, OpenAIProvider, RunConfig, Runner
    from standfast.testing.loopback import LoopbackServer

    agent = Agent(name="Clerk", model="gpt-5.4")
    with LoopbackServer([f"answer {number}" for number in range(8)]) as server:
        config = RunConfig(model_provider=OpenAIProvider(base_url=server.base_url, api_key="none"))

        async def ask():
            return (await Runner.run(agent, "Hello.", run_config=config)).final_output

        def ask_sync(_):
            return Runner.run_sync(agent, "Hello.", run_config=config).final_output

        for _ in range(3):
            asyncio.run(ask())
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(ask_sync, range(4)))

        async def collect():
            global config
            config = None
            for _ in range(3):  # what destructors begin in the loop that runs now
                gc.collect()
                await asyncio.sleep(0.01)

        asyncio.run(collect())
    print("done")
"""


def test_no_client_of_a_closed_loop_is_left_to_its_destructor() -> None:
    """It would say "Event loop is closed", in a task that the next loop knows nothing of."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", textwrap.dedent(PROGRAM)]
    ended = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": import_path()}, timeout=120)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def test_connections_are_closed_with_their_loop_and_not_kept() -> None:
    agent = Agent(name="Clerk", model="gpt-5.4")
    with LoopbackServer(["One.", "Two.", "Three."]) as server:
        provider = OpenAIProvider(base_url=server.base_url, api_key="none")
        config = RunConfig(model_provider=provider)

        async def ask() -> str:
            return str((await Runner.run(agent, "Hello.", run_config=config)).final_output)

        async def ask_and_close() -> str:
            said = await ask()
            await provider.aclose()
            await provider.aclose()  # again is allowed
            return said

        def loops() -> int:
            return sum(isinstance(one, asyncio.AbstractEventLoop) for one in gc.get_objects())

        before = loops()
        assert [asyncio.run(one()) for one in (ask, ask, ask_and_close)] == ["One.", "Two.", "Three."]
        gc.collect()
        assert loops() <= before, "a client keeps its closed loop"


def test_a_server_at_an_address_of_azure_is_played_too() -> None:
    with LoopbackServer(["Good day."]) as server:
        provider = OpenAIProvider(base_url=server.base_url.replace("/v1", "/openai/v1"), api_key="none")
        config = RunConfig(model_provider=provider)
        result = asyncio.run(Runner.run(Agent(name="Clerk", model="my-deployment"), "Hello.", run_config=config))
    assert (result.final_output, server.requests[0].path) == ("Good day.", "/openai/v1/responses")
