"""Workers of two services that answer alike: `examples/service`, and the same addresses on openai-agents.

Run as a module it is a nursery (tests/web_service/nursery.py). Both have the same model and the same tool: a message of
two words is two calls, each of which writes one line into a book, and then an answer that says what came of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agents as peer
import fastapi
import psycopg_pool  # noqa: F401 — imported here, so that no worker has to
import uvicorn.loops.auto
import uvicorn.protocols.http.auto  # noqa: F401
from agents.extensions.memory import SQLAlchemySession
from fastapi.responses import JSONResponse, StreamingResponse
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from service.app import Message, make_app
from service.settings import Settings
from sqlalchemy.ext.asyncio import create_async_engine

import standfast
import standfast._src.runs.recovery.watch
import standfast._src.sessions.backends.postgres.postgres_session
import standfast._src.sessions.backends.sqlite.sqlite_session
from tests.helpers.ledger_oracle import done, write
from tests.web_service.nursery import bring_up

MODEL_S, TOOL_S = 0.03, 0.02
"""How long they take, on average: enough for a worker to die in the middle of either."""

# --- the same agent for either library -------------------------------------------------------------------------------


def reply(items: list[Any]) -> Any:
    """What the model says to a history: one call for each word of the newest message, then what came of them."""
    asked = max(place for place, item in enumerate(items) if item.get("role") == "user")
    words = str(items[asked]["content"]).split()
    outputs = [str(item["output"]) for item in items[asked:] if item.get("type") == "function_call_output"]
    if len(outputs) < len(words):
        call_id = words[len(outputs)]
        return ResponseFunctionToolCall(type="function_call", name="pay", arguments="{}", call_id=call_id, id=call_id)
    part = ResponseOutputText(type="output_text", text=f"{words[0]}: {'; '.join(outputs)}", annotations=[])
    message_id = f"msg_{uuid.uuid4().hex}"
    return ResponseOutputMessage(id=message_id, type="message", role="assistant", status="completed", content=[part])


def agent_of(library: Any, book: Path) -> Any:
    class Model(library.Model):  # type: ignore[misc,name-defined]  # the base is chosen at run time
        async def get_response(self, *given: Any, **named: Any) -> Any:
            items = given[1] if given else named["input"]
            usage = library.Usage(requests=1)
            return library.ModelResponse(output=[await self.answer(items)], usage=usage, response_id=None)

        async def answer(self, items: Any) -> Any:
            await asyncio.sleep(random.uniform(0, 2 * MODEL_S))
            return reply([{"role": "user", "content": items}] if isinstance(items, str) else items)

        async def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
            items = given[1] if given else named["input"]
            response = Response(
                id="resp_1", created_at=0, model="fake", object="response", output=[await self.answer(items)],
                tool_choice="none", tools=[], parallel_tool_calls=False,
            )  # fmt: skip
            yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    async def pay(context: Any) -> str:
        """Pay."""
        write(book, context.tool_call_id)
        await asyncio.sleep(random.uniform(0, 2 * TOOL_S))
        return done(context.tool_call_id)

    pay.__annotations__["context"] = library.tool_context.ToolContext[Any]
    return library.Agent(name="Payer", tools=[library.function_tool(pay)], model=Model())


# --- the service on openai-agents ------------------------------------------------------------------------------------


@dataclass
class Run:
    """A run of the peer's: it is known to this process alone."""

    status: str = "running"
    events: list[str] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, kind: str, data: Any) -> None:
        self.events.append(f"id: {len(self.events)}\nevent: {kind}\ndata: {json.dumps(data)}\n\n")
        self.more.set()
        self.more = asyncio.Event()


def peer_app(store: str, book: Path) -> fastapi.FastAPI:
    """What one writes with the SDK: a session of its own, a task for each run, the runs in memory."""
    peer.set_tracing_disabled(True)
    agent, runs, tasks = agent_of(peer, book), dict[str, Run](), set[asyncio.Task[None]]()
    engine = None
    if store.startswith("postgresql"):
        url, _, schema = store.partition("?schema=")
        settings = {"server_settings": {"search_path": schema}}
        engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), connect_args=settings)

    def session_of(conversation: str) -> Any:
        if engine is not None:
            return SQLAlchemySession(conversation, engine=engine)
        return peer.SQLiteSession(conversation, store.removeprefix("sqlite:///"))

    async def carry(run: Run, conversation: str, text: str) -> None:
        session = session_of(conversation)
        try:
            result = peer.Runner.run_streamed(agent, text, session=session)
            async for event in result.stream_events():
                if event.type == "run_item_stream_event":
                    run.tell("item_saved", {"item": event.item.to_input_item()})
            run.status = "done"
            run.tell("run_ended", {"status": "done", "output": result.final_output})
        except Exception as error:
            run.status = "failed"
            run.tell("run_ended", {"status": "failed", "output": f"{type(error).__name__}: {error}"})
        finally:
            if engine is None:
                session.close()

    @asynccontextmanager
    async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
        if engine is not None:
            await SQLAlchemySession("-", engine=engine, create_tables=True).get_items()
        yield
        if tasks:
            await asyncio.wait(tasks, timeout=8)

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.post("/conversations/{conversation}/messages", status_code=202)
    async def say(conversation: str, message: Message) -> Any:
        if message.id not in runs or runs[message.id].status == "failed":
            run = runs[message.id] = Run()
            task = asyncio.create_task(carry(run, conversation, message.text))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return {"run": message.id, "status": runs[message.id].status}

    @app.get("/runs/{run_id}/events")
    async def watch(run_id: str, last_event_id: str | None = fastapi.Header(None)) -> Any:
        if run_id not in runs:
            return JSONResponse({"error": {"what": "no such run", "remedy": "Send the message again."}}, 404)
        run = runs[run_id]

        async def stream() -> AsyncIterator[str]:
            for place in itertools.count(0 if last_event_id is None else int(last_event_id) + 1):
                while place >= len(run.events):
                    if run.status != "running":
                        return
                    await run.more.wait()
                yield run.events[place]

        return StreamingResponse(stream(), media_type="text/event-stream")

    return app


def app_of(folder: Path, settings: dict[str, Any]) -> fastapi.FastAPI:
    random.seed(os.getpid())
    if settings.pop("kind") == "openai-agents":
        return peer_app(settings["store"], folder / "book")
    return make_app(Settings(**settings, open=True), agent_of(standfast, folder / "book"))


if __name__ == "__main__":
    bring_up(app_of)
