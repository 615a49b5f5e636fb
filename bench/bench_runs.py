"""Runs beside openai-agents: CPU time of one process, ratios from one run on one machine.

Both get the same fake model (the same typed objects, made anew for each reply), tracing off, and take turns within each
round; the table shows medians over rounds. CPU time of the process is measured, so waiting for a disk does not count.
Run it with `./dev bench bench_runs`. `--beside NAME` measures a third library in the same rounds: an earlier release
that can be imported under that name (put its folder on PYTHONPATH).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import agents as peer
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

import standfast

peer.set_tracing_disabled(True)


def text(words: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=words, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="msg_1", type="message", role="assistant", status="completed", content=[part])


def call(number: int) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"fc_{number}", call_id=f"call_{number}", type="function_call", name="add", arguments='{"a": 1, "b": 2}'
    )


def replies(tool_turns: int) -> list[Callable[[], Any]]:
    return [*(lambda n=n: call(n) for n in range(tool_turns)), lambda: text("done")]


def stream_events(deltas: int) -> list[Any]:
    pieces: list[Any] = [
        ResponseTextDeltaEvent(
            type="response.output_text.delta",
            delta="word ",
            item_id="msg_1",
            output_index=0,
            content_index=0,
            sequence_number=number,
            logprobs=[],
        )
        for number in range(deltas)
    ]
    response = Response(
        id="resp_1",
        created_at=0,
        model="fake",
        object="response",
        output=[text("word " * deltas)],
        tool_choice="none",
        tools=[],
        parallel_tool_calls=False,
    )
    return [*pieces, ResponseCompletedEvent(type="response.completed", response=response, sequence_number=deltas)]


def fake_model(library: Any, steps: list[Callable[[], Any]], deltas: int = 0, plain: bool = False) -> Any:
    """The same model for either library: answers from `steps`, in turn, for ever. `plain`: as JSON, not as objects."""

    # Made once: what a provider's library spends on its events is not what is compared here.
    events = stream_events(deltas)
    if plain:
        events = [event.model_dump(mode="json") for event in events]
        ready = [step().model_dump(mode="json", exclude_none=True) for step in steps]
        steps = [lambda item=item: item for item in ready]  # type: ignore[misc]  # a default binds the item

    class Fake(library.Model):  # type: ignore[misc,name-defined]  # the base is chosen at run time
        def __init__(self) -> None:
            self.calls = 0

        async def get_response(self, *_: Any, **__: Any) -> Any:
            step = steps[self.calls % len(steps)]
            self.calls += 1
            return library.ModelResponse(output=[step()], usage=library.Usage(requests=1), response_id=None)

        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            for event in events:
                yield event

    return Fake()


def parallel_model(library: Any, count: int) -> Any:
    """A model that asks for `count` calls at once, then answers."""

    class Fake(library.Model):  # type: ignore[misc,name-defined]  # the base is chosen at run time
        def __init__(self) -> None:
            self.calls = 0

        async def get_response(self, *_: Any, **__: Any) -> Any:
            self.calls += 1
            output = [call(number) for number in range(count)] if self.calls % 2 else [text("done")]
            return library.ModelResponse(output=output, usage=library.Usage(requests=1), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return Fake()


class Contestant:
    """One library, with everything the cases need."""

    def __init__(self, library: Any, folder: Path) -> None:
        self.library, self.folder = library, folder
        self.sessions: dict[str, Any] = {}
        self.config = library.RunConfig(tracing_disabled=True)

    def agent(self, tool_turns: int = 0, deltas: int = 0, plain: bool = False, parallel: int = 0) -> Any:
        async def add_async(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        tools = [self.library.function_tool(add_async, name_override="add")] if tool_turns or parallel else []
        model = fake_model(self.library, replies(tool_turns), deltas, plain and self.library is not peer)
        if parallel:
            model = parallel_model(self.library, parallel)
        return self.library.Agent(name="bench", instructions="Be brief.", model=model, tools=tools)

    def session(self, name: str) -> Any:
        """One object for each conversation, opened by the round that warms up."""
        if name not in self.sessions:
            self.sessions[name] = self.library.SQLiteSession(name, self.folder / f"{self.library.__name__}.db")
        return self.sessions[name]

    async def run(self, agent: Any, session: Any = None, max_turns: int = 100) -> None:
        await self.library.Runner.run(agent, "hi", session=session, max_turns=max_turns, run_config=self.config)

    async def stream(self, agent: Any) -> None:
        result = self.library.Runner.run_streamed(agent, "hi", run_config=self.config)
        async for _ in result.stream_events():
            pass


async def cpu_s(work: Callable[[], Awaitable[Any]], times: int) -> float:
    """CPU seconds of one call of `work`."""
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) / times


Case = Callable[[Contestant], Awaitable[float]]


def one_turn(plain: bool) -> Case:
    async def case(who: Contestant) -> float:
        agent = who.agent(plain=plain)
        return await cpu_s(lambda: who.run(agent), 60)

    return case


def on_a_history(items: int) -> Case:
    async def case(who: Contestant) -> float:
        name = f"history-{items}"
        session = who.session(name)
        if not await session.get_items(limit=1):
            pairs = [
                {"role": role, "content": f"message number {n} with a few words in it"}
                for n in range(items // 2)
                for role in ("user", "assistant")
            ]
            if pairs:
                await session.add_items(pairs)
        agent = who.agent()
        return await cpu_s(lambda: who.run(agent, session), 5)

    return case


def tool_turns(count: int) -> Case:
    async def case(who: Contestant) -> float:
        agent = who.agent(tool_turns=count)
        return await cpu_s(lambda: who.run(agent), 3)

    return case


def streamed(plain: bool) -> Case:
    async def case(who: Contestant) -> float:
        agent = who.agent(deltas=200, plain=plain)
        return await cpu_s(lambda: who.stream(agent), 5)

    return case


def parallel_calls(count: int, saved: bool) -> Case:
    """Many calls in one reply on SQLite, with and without saving the run beside its session."""

    async def case(who: Contestant) -> float:
        agent = who.agent(parallel=count)
        session = who.session(f"parallel-{saved}")
        await session.clear_session()
        config = (
            who.config if saved or who.library is peer else who.library.RunConfig(tracing_disabled=True, save="never")
        )
        return await cpu_s(lambda: who.library.Runner.run(agent, "hi", session=session, run_config=config), 1)

    return case


async def thousand_at_once(who: Contestant) -> float:
    agent = who.agent()
    return await cpu_s(lambda: asyncio.gather(*(who.run(agent) for _ in range(1000))), 1)


CASES: dict[str, Case] = {
    "one turn, no session": one_turn(plain=False),
    "one turn, no session, plain replies (openai-agents: typed)": one_turn(plain=True),
    "one turn on 0 items": on_a_history(0),
    "one turn on 5,000 items": on_a_history(5000),
    "10 tool turns in one run": tool_turns(10),
    "40 tool turns in one run": tool_turns(40),
    "a streamed answer of 200 deltas": streamed(plain=False),
    "a streamed answer of 200 deltas, plain (openai-agents: typed)": streamed(plain=True),
    "400 calls in one reply, SQLite": parallel_calls(400, saved=True),
    "400 calls in one reply, SQLite, save=never": parallel_calls(400, saved=False),
    "1,000 runs at once": thousand_at_once,
}


async def measure(libraries: dict[str, Any], rounds: int) -> dict[str, dict[str, list[float]]]:
    """CPU seconds of every case, library and round."""
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        contestants = {label: Contestant(library, Path(name)) for label, library in libraries.items()}
        for case_name, case in CASES.items():
            seen: dict[str, list[float]] = {who: [] for who in contestants}
            for round_number in range(rounds + 1):  # the first round only warms up
                for who, contestant in contestants.items():
                    took = await case(contestant)
                    if round_number:
                        seen[who].append(took)
            found[case_name] = seen
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", default=None, help="the import name of an earlier release to measure too")
    options = parser.parse_args()
    libraries = {"standfast": standfast, "openai-agents": peer}
    if options.beside:
        libraries[options.beside] = importlib.import_module(options.beside)
    found = asyncio.run(measure(libraries, options.rounds))
    medians = {case: {who: statistics.median(times) for who, times in row.items()} for case, row in found.items()}
    print(f"CPU time of one call, medians of {options.rounds} rounds.\n")
    earlier = f" {options.beside} ms | standfast / {options.beside} (spread of rounds) |" if options.beside else ""
    print(f"| case | standfast ms | openai-agents ms | times less |{earlier}")
    print("|---|---:|---:|---:|" + ("---:|---:|" if options.beside else ""))
    for name, row in medians.items():
        ours, theirs = row["standfast"], row["openai-agents"]
        line = f"| {name} | {ours * 1000:.2f} | {theirs * 1000:.2f} | {theirs / ours:.1f} |"
        if options.beside:
            before = found[name][options.beside]
            ratios = [now / then for now, then in zip(found[name]["standfast"], before, strict=True)]
            ratio = ours / row[options.beside]
            line += f" {row[options.beside] * 1000:.2f} | {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        print(line)
    growth = {
        who: (medians["one turn on 5,000 items"][who] - medians["one turn on 0 items"][who]) / 5000
        for who in ("standfast", "openai-agents")
    }
    print(
        f"\nGrowth for each item of history: {growth['standfast'] * 1e6:.2f} µs, openai-agents "
        f"{growth['openai-agents'] * 1e6:.2f} µs ({growth['openai-agents'] / growth['standfast']:.1f} times)."
    )
    ten, forty = medians["10 tool turns in one run"]["standfast"], medians["40 tool turns in one run"]["standfast"]
    print(f"40 tool turns cost {forty / ten:.2f} times what 10 cost (linear would be 4 or a little less).")
    saved = medians["400 calls in one reply, SQLite"]["standfast"]
    unsaved = medians["400 calls in one reply, SQLite, save=never"]["standfast"]
    print(f"400 parallel calls on SQLite cost {saved / unsaved:.1f} times what they cost without saving the run.")


if __name__ == "__main__":
    main()
