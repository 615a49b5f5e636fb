"""What once was sent otherwise by programs that only changed their import: requests as OpenAI's own API would get them.

The client has OpenAI's address and a transport that answers in its place; nothing leaves the process.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession
from openai import AsyncOpenAI

REPLY = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "model": "gpt-5",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "ok", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 1,
        "output_tokens": 1,
        "total_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}


class Wire:
    """A model of OpenAI's own API that keeps what it is sent."""

    def __init__(self, address: str = "https://api.openai.com/v1", name: str = "gpt-5") -> None:
        self.bodies: list[dict[str, Any]] = []
        transport = httpx2.MockTransport(self._answer)
        client = AsyncOpenAI(api_key="k", base_url=address, http_client=httpx2.AsyncClient(transport=transport))
        self.model = OpenAIResponsesModel(name, client)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        return httpx2.Response(200, json=REPLY)

    def keys(self) -> list[Any]:
        return [body.get("prompt_cache_key") for body in self.bodies]


async def example_a_cache_key_for_each_session(folder):
    wire = Wire()
    agent = Agent(name="A", model=wire.model)
    for name in ("ada@example.org", "ada@example.org", "bob@example.org"):
        await Runner.run(agent, "Hi", session=SQLiteSession(name, str(folder / "talks.db")))
    first, second, third = wire.keys()
    return bool(first), first == second, first == third, "ada" in str(first)


async def example_a_cache_key_for_a_conversation_a_group_and_a_run(folder):
    wire = Wire()
    agent = Agent(name="A", model=wire.model)
    for options in ({"conversation_id": "conv_1"}, {"run_config": RunConfig(group_id="g")}, {}, {}):
        await Runner.run(agent, "Hi", **options)
    keys = wire.keys()
    return [bool(key) for key in keys], len(set(keys))


async def example_a_cache_key_of_ones_own_is_kept_and_other_servers_get_none(folder):
    own, other = Wire(), Wire("https://example.org/v1")
    settings = ModelSettings(extra_args={"prompt_cache_key": "mine"})
    await Runner.run(Agent(name="A", model=own.model, model_settings=settings), "Hi")
    await Runner.run(Agent(name="A", model=other.model), "Hi")
    return own.keys(), other.keys()
