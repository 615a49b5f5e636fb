"""One conversation, its owner, and a server that speaks the real protocol: what the tests of this folder talk with.

A `World` runs an agent against a loopback provider under one strategy, streaming or not. What was received is read on
the server's side, in the words of `stories`: `U(hi)`, `A`, `C1`, `O1`, `R`, and the id that came along.
"""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import (
    Agent,
    InMemorySession,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    ModelSettings,
    OpenAIResponsesModel,
    RetryDecision,
    RunConfig,
    Runner,
    RunState,
    function_tool,
    retry_policies,
)
from standfast._src.models.outcome_query import alike
from standfast.testing.loopback import LoopbackServer
from tests.runs.owners.stories import AUTOMATIC, BOTH, CHAINS, CLIENT_OWNED, CONVERSATION, GIVEN

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])

AT_ONCE = ModelRetryBackoffSettings(initial_delay=0.0, max_delay=0.0, jitter=False)
NO_RETRY = ModelSettings()
RETRY = ModelSettings(
    retry=ModelRetrySettings(
        max_retries=3,
        backoff=AT_ONCE,
        policy=retry_policies.any(retry_policies.provider_suggested(), retry_policies.network_error()),
    )
)
APPROVE = ModelSettings(
    retry=ModelRetrySettings(
        max_retries=3, backoff=AT_ONCE, policy=lambda context: RetryDecision(True, approve_unsafe_replay=True)
    )
)


@function_tool
def look(what: str = "") -> str:
    """Look at something."""
    return f"saw {what}"


@function_tool(needs_approval=True)
def touch(what: str = "") -> str:
    """Touch something."""
    return f"touched {what}"


class World:
    """One conversation under one strategy, against one server."""

    def __init__(
        self,
        server: LoopbackServer,
        client: AsyncOpenAI,
        strategy: str,
        streamed: bool,
        *,
        settings: ModelSettings = RETRY,
        tools: list[Any] | None = None,
        **agent: Any,
    ) -> None:
        self.server, self.client, self.strategy, self.streamed = server, client, strategy, streamed
        self.model = OpenAIResponsesModel("m", client)
        self.other = Agent(name="Other", model=self.model, model_settings=settings)
        self.agent = Agent(
            name="One",
            model=self.model,
            model_settings=settings,
            tools=[look, touch] if tools is None else tools,
            handoffs=[self.other],
            **agent,
        )
        self.session: Any = InMemorySession("s") if strategy == "session" else None
        self.conversation = server.new_conversation() if strategy == CONVERSATION else None
        self.config = RunConfig()
        self.last: Any = None
        self.begun_at: str | None = None
        self.before = 0

    async def begin(self) -> None:
        """A chain that is given begins with a response that was there before."""
        if self.strategy in (GIVEN, BOTH):
            self.begun_at = (await self.client.responses.create(model="m", input="before")).id
            self.before = len(self.server.model_calls)

    def owner(self) -> dict[str, Any]:
        """The arguments that name the owner of the next run."""
        last = {"previous_response_id": self.last.last_response_id} if self.last else {}
        match self.strategy:
            case "session":
                return {"session": self.session}
            case "conversation_id":
                return {"conversation_id": self.conversation}
            case "previous_response_id":
                return last or {"previous_response_id": self.begun_at}
            case "auto_previous_response_id":
                return {"auto_previous_response_id": True, **last}
            case _ if self.strategy == BOTH:
                return {"auto_previous_response_id": True, **(last or {"previous_response_id": self.begun_at})}
        return {}

    async def say(self, words: str, **more: Any) -> Any:
        """A run of its own, which continues where the last one ended."""
        given: Any = words
        if self.strategy == "replay" and self.last is not None:
            given = [*self.last.to_input_list(), {"role": "user", "content": words}]
        return await self.run(given, **self.owner(), **more)

    async def resume(self, state: RunState, **more: Any) -> Any:
        """Go on with a run; the ids are in the state, the session is given again."""
        return await self.run(state, **({"session": self.session} if self.session is not None else {}), **more)

    async def run(self, given: Any, **more: Any) -> Any:
        more = {"run_config": self.config, **more}
        if self.streamed:
            result = Runner.run_streamed(self.agent, given, **more)
            async for _ in result.stream_events():
                pass
            self.last = result
        else:
            self.last = await Runner.run(self.agent, given, **more)
        return self.last

    # --- the server's side -----------------------------------------------------------------------------------------

    def received(self) -> list[str]:
        """Every request for a reply, in the words of the table."""
        names = {self.begun_at: "r0"} if self.begun_at else {}
        first = len(names) == 0
        lines = []
        for received in self.server.model_calls[self.before :]:
            marks = ["[conv]"] if received.conversation_id else []
            if received.previous_response_id:
                marks = [f"[prev={names.get(received.previous_response_id, '?')}]"]
            lines.append(" ".join([*words(received.input), *marks]))
            if received.committed and received.response_id:
                names[received.response_id] = f"r{len(names) + first}"
        return lines

    def history(self) -> list[dict[str, Any]]:
        """What the server has of this conversation, without what came before it."""
        if self.strategy == CONVERSATION:
            return self.server.history(self.conversation or "")
        last = next(one for one in reversed(self.server.model_calls) if one.committed)
        if self.strategy in CHAINS and self.last is not None and self.last.last_response_id:
            theirs = self.server.history(self.last.last_response_id)
        else:
            theirs = self.server.history(last.response_id or "")
        return theirs[2 if self.begun_at else 0 :]

    def assert_agreement(self, story: list[str] | None = None) -> None:
        """The client's and the server's idea of the history are one; `story` is all that was said, in words."""
        theirs = self.history()
        if story is not None:
            assert words(theirs) == story
        mine = self.last.to_input_list()
        tail = theirs[len(theirs) - len(mine) :]
        assert words(mine) == words(tail)
        assert all(alike(one, other) for one, other in zip(mine, tail, strict=True))


def words(items: Any) -> list[str]:
    """Items in the words of the table."""
    return [word_for(item) for item in items]


def word_for(item: dict[str, Any]) -> str:
    match item.get("type", "message"):
        case "message" if item["role"] == "assistant":
            return "A"
        case "message":
            content = item["content"]
            return f"U({content if isinstance(content, str) else content[0]['text']})"
        case "function_call":
            return f"C{item['call_id'][1:]}"
        case "function_call_output":
            return f"O{item['call_id'][1:]}"
        case "reasoning":
            return "R"
    return str(item["type"])


__all__ = ["AUTOMATIC", "BOTH", "CHAINS", "CLIENT_OWNED", "CONVERSATION", "GIVEN", "World", "both_modes", "words"]
