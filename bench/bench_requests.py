"""A turn as a web service makes it: a session object for each request, and a model behind the real client.

CPU time of this process, beside openai-agents in the same rounds; the sides take turns. `kept` is a session object that
stays, `closed` and `dropped` are a new one for each turn. The model of these rows is a function. The rows of the client
speak HTTP with a provider in a process of its own; `client` is the client alone, which both sides contain.

    ./dev bench bench_requests --rounds 5 --dir /some/disk
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import agents
import agents.extensions.memory.redis_session as sdk_redis
from openai import AsyncOpenAI
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import standfast
import standfast.extensions.memory as our_memory
from tests.helpers import servers

Turn = Callable[[], Awaitable[object]]
DELTAS = 200
TURNS = 20
LIBRARIES: dict[str, Any] = {"standfast": standfast, "openai-agents": agents}
WORDS = "Your order was shipped on Tuesday and should arrive within three business days. " * 4


def model_of(library: Any) -> Any:
    """A model that answers at once with a typed message."""
    part = ResponseOutputText(text=WORDS, type="output_text", annotations=[], logprobs=[])

    class Answering(library.Model):  # type: ignore[misc]
        async def get_response(self, *_: Any, **__: Any) -> Any:
            said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])
            return library.ModelResponse(output=[said], usage=library.Usage(requests=1), response_id=None)

        async def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError
            yield

    return Answering()


def session_of(name: str, store: str, folder: Path, session_id: str) -> Any:
    if store == "SQLite":
        return LIBRARIES[name].SQLiteSession(session_id, folder / f"{name}.db")
    if store == "Redis":
        kind = our_memory.RedisSession if name == "standfast" else sdk_redis.RedisSession
        return kind.from_url(session_id, url=servers.redis_url(), key_prefix=name)
    return standfast.PostgresSession(session_id, url=servers.postgres_url())


async def cpu_of(turn: Turn, count: int) -> float:
    """Milliseconds of CPU of one turn."""
    gc.collect()
    before = time.process_time()
    for _ in range(count):
        await turn()
    return (time.process_time() - before) / count * 1e3


async def of_sessions(store: str, folder: Path, rounds: int) -> dict[tuple[str, str], list[float]]:
    """CPU of each library for a session object that is kept, closed or dropped."""
    found: dict[tuple[str, str], list[float]] = {}
    names = ["standfast"] if store == "PostgreSQL" else list(LIBRARIES)
    for number in range(-1, rounds):
        for name in names if number % 2 else reversed(names):
            library = LIBRARIES[name]
            agent = library.Agent(name="a", instructions="Be brief.", model=model_of(library))
            for use in ("kept", "closed", "dropped"):
                session_id = f"{use} {number}"
                kept = session_of(name, store, folder, session_id)

                async def turn(
                    name: str = name, use: str = use, session_id: str = session_id, agent: Any = agent, kept: Any = kept
                ) -> None:
                    session = kept if use == "kept" else session_of(name, store, folder, session_id)
                    await LIBRARIES[name].Runner.run(agent, "Where is my order?", session=session)
                    if use == "closed":
                        await end(session)

                await turn()
                if use != "kept":
                    await end(kept)
                spent = await cpu_of(turn, TURNS)
                if use == "kept":
                    await end(kept)
                if number >= 0:
                    found.setdefault((name, use), []).append(spent)
    return found


async def end(session: Any) -> None:
    closed = session.close()
    if closed is not None:
        await closed


# --- the real client -------------------------------------------------------------------------------------------------


def answers() -> tuple[bytes, bytes]:
    """A reply of the service, as one body and as a stream of deltas."""
    part = {"type": "output_text", "text": "word " * DELTAS, "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": DELTAS}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 10 + DELTAS}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True}
    response |= {"tool_choice": "auto", "tools": [], "metadata": {}, "status": "completed", "output": [message]}
    response |= {"usage": usage}
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    events += [{"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}}]
    delta = {"type": "response.output_text.delta", "delta": "word ", "logprobs": [], "obfuscation": "Qw3eRt", **place}
    events += [delta] * DELTAS
    events += [{"type": "response.output_item.done", "output_index": 0, "item": message}]
    events += [{"type": "response.completed", "response": response}]
    texts = [json.dumps({**event, "sequence_number": number}) for number, event in enumerate(events)]
    stream = "".join(f"event: {event['type']}\ndata: {text}\n\n" for event, text in zip(events, texts, strict=True))
    return json.dumps(response).encode(), stream.encode()


async def serve() -> None:
    """Be the provider, on a port that is printed."""
    whole, stream = answers()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
                if json.loads(body).get("stream"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
                    writer.write(b"transfer-encoding: chunked\r\n\r\n")
                    for start in range(0, len(stream), 1_000):
                        part = stream[start : start + 1_000]
                        writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                    writer.write(b"0\r\n\r\n")
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                    writer.write(b"content-length: %d\r\n\r\n%b" % (len(whole), whole))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def of_client(rounds: int) -> dict[tuple[str, str], list[float]]:
    """CPU of a whole turn and of a streamed one through the client, and of the client alone."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        url = f"http://127.0.0.1:{provider.stdout.readline().strip()}/v1"
        try:
            async with AsyncOpenAI(api_key="none", base_url=url) as client:
                return await _of_client(client, rounds)
        finally:
            provider.terminate()


async def _of_client(client: AsyncOpenAI, rounds: int) -> dict[tuple[str, str], list[float]]:
    asked: dict[str, Any] = {"model": "m", "input": "Where is my order?", "instructions": "Be brief."}

    def sides(streamed: bool) -> dict[str, Turn]:
        async def alone() -> None:
            reply: Any = await client.responses.create(**asked, stream=streamed)
            if streamed:
                async for _ in reply:
                    pass

        def of(library: Any) -> Turn:
            model = library.OpenAIResponsesModel("m", client)
            agent = library.Agent(name="a", instructions="Be brief.", model=model)

            async def turn() -> None:
                if not streamed:
                    await library.Runner.run(agent, "Where is my order?")
                    return
                async for _ in library.Runner.run_streamed(agent, "Where is my order?").stream_events():
                    pass

            return turn

        return {**{name: of(library) for name, library in LIBRARIES.items()}, "client": alone}

    found: dict[tuple[str, str], list[float]] = {}
    for case, streamed in (("one turn", False), (f"one turn of {DELTAS} deltas", True)):
        made = list(sides(streamed).items())
        for number in range(-1, rounds):
            for name, turn in made if number % 2 else reversed(made):
                spent = await cpu_of(turn, 6)
                if number >= 0:
                    found.setdefault((name, case), []).append(spent)
    return found


# --- the tables ------------------------------------------------------------------------------------------------------


def cell(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def print_sessions(found: dict[str, dict[tuple[str, str], list[float]]]) -> None:
    print("CPU ms of a turn: median, and (least-most) of the rounds. `x kept`: beside a session object that stays.\n")
    print("| store | session objects | standfast | x kept | openai-agents | times less |\n|---|---|---|---|---|---|")
    for store, rows in found.items():
        for use in ("kept", "closed", "dropped"):
            ours, theirs = rows["standfast", use], rows.get(("openai-agents", use))
            ratio = min(ours) / min(rows["standfast", "kept"])
            more = f"{cell(theirs)} | {min(theirs) / min(ours):.1f}" if theirs else " | "
            print(f"| {store} | {use} | {cell(ours)} | {ratio:.2f} | {more} |")


def print_client(rows: dict[tuple[str, str], list[float]]) -> None:
    print("\n| through OpenAI's client | standfast | openai-agents | the client | times less |\n|---|---|---|---|---|")
    for case in ("one turn", f"one turn of {DELTAS} deltas"):
        ours, theirs, alone = (rows[name, case] for name in (*LIBRARIES, "client"))
        print(f"| {case} | {cell(ours)} | {cell(theirs)} | {cell(alone)} | {min(theirs) / min(ours):.1f} |")


async def main(rounds: int, where: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=where) as folder:
        found = {store: await of_sessions(store, Path(folder), rounds) for store in ("SQLite", "Redis", "PostgreSQL")}
    clients = await of_client(rounds)
    day, load = datetime.now(UTC).date(), os.getloadavg()[0]
    print(
        f"Measured on {day}: {os.cpu_count()} cores at a load of {load:.0f}, Python {platform.python_version()}, ",
        end="",
    )
    print(
        f"{rounds} rounds of {TURNS} turns, openai-agents 0.24.0. `times less` and `x kept` compare the least values.\n"
    )
    print_sessions(found)
    print_client(clients)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="the folder of the SQLite files; else the temporary one")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    agents.set_tracing_disabled(True)
    try:
        asyncio.run(serve() if given.serve else main(given.rounds, given.dir))
    finally:
        servers.stop_all()
