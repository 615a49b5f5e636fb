"""A program that dies in its second turn, for real, on whatever keeps its conversation: `python mortal_program.py ...`.

Arguments: what keeps the conversation (none, plain, adopted, saved), the folder, and "dies" or "lives". The second
turn's tool writes down that it acted and, in a life that dies, kills its own process before it returns.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from standfast import Agent, RunConfig, Runner, SessionABC, SQLiteSession, function_tool
from standfast.testing import AnsweringModel, ModelCall, function_call


class FileSession(SessionABC):
    """Somebody's own session: five methods on a JSON file."""

    def __init__(self, session_id: str, path: Path) -> None:
        self.session_id, self._path = session_id, path

    def _read(self) -> list[Any]:
        items: list[Any] = json.loads(self._path.read_text()) if self._path.exists() else []
        return items

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = self._read()
        return items if limit is None else items[len(items) - limit :]

    async def add_items(self, items: list[Any]) -> None:
        self._path.write_text(json.dumps(self._read() + items))

    async def pop_item(self) -> Any:
        items = self._read()
        last = items.pop() if items else None
        self._path.write_text(json.dumps(items))
        return last

    async def clear_session(self) -> None:
        self._path.unlink(missing_ok=True)


def session_of(kind: str, folder: Path) -> Any:
    if kind == "none":
        return None
    return FileSession("s", folder / "plain.json") if kind == "plain" else SQLiteSession("s", folder / "a.db")


def make_agent(folder: Path, dies: bool) -> Agent[Any]:
    def act(name: str) -> None:
        with (folder / "effects").open("a") as book:
            book.write(f"{name}\n")

    @function_tool
    async def first() -> str:
        """The tool of the first turn."""
        act("first")
        return "first done"

    @function_tool
    async def second() -> str:
        """The tool of the second turn."""
        act("second")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return "second done"

    def answer(call: ModelCall) -> Any:
        done = sum(item.get("type") == "function_call_output" for item in call.input)
        return [function_call(("first", "second")[done], {}, call_id=f"c{done}")] if done < 2 else "finished"

    return Agent(name="A", tools=[first, second], model=AnsweringModel(answer))


async def live(kind: str, folder: Path, dies: bool) -> str:
    session = session_of(kind, folder)
    config = RunConfig(run_id=None if kind in ("none", "plain") else "r", save="auto" if kind == "saved" else "never")
    result = await Runner.run(make_agent(folder, dies), "go", session=session, run_config=config)
    if session is not None:
        await session.close()
    return str(result.final_output)


if __name__ == "__main__":
    _, kind, folder, word = sys.argv
    print(asyncio.run(live(kind, Path(folder), word == "dies")))
