"""Code written for the OpenAI Agents SDK runs when `agents` becomes `standfast`.

The samples in `seed_samples/` are those of the documents this project started from, word for word. A sample that
imports something standfast does not have yet must say so; the day it has it, the sample runs here.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.testing import ScriptedModel, final

SAMPLES = Path(__file__).with_name("seed_samples")
# The server backends are a later piece of work. Each entry names what is missing; the test below fails when it is not.
NOT_YET = {"redis_session.py": "RedisSession"}


def translated(sample: str) -> str:
    """The sample with `agents` replaced by `standfast`, and nothing else."""
    return re.sub(r"\bagents\b", "standfast", (SAMPLES / sample).read_text(encoding="utf-8"))


async def run(sample: str, **given: Any) -> dict[str, Any]:
    """Execute a sample, which may use `await` at the top level, with these variables; the variables it leaves."""
    code = compile(translated(sample), sample, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    namespace: dict[str, Any] = {"__name__": "sample", **given}
    outcome = types.FunctionType(code, namespace)()
    if inspect.iscoroutine(outcome):
        await outcome
    return namespace


def imported(sample: str) -> set[str]:
    """The names a sample imports."""
    tree = ast.parse(translated(sample))
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def greeter() -> standfast.Agent:
    """The `agent` that the samples take for granted."""
    return standfast.Agent(name="greeter", model=ScriptedModel([final("Hello, you.")]))


def test_every_sample_is_run_or_listed_as_not_yet():
    run_below = {"custom_session.py", "sqlite_session.py"}
    assert {file.name for file in SAMPLES.glob("*.py")} == run_below | NOT_YET.keys()


@pytest.mark.parametrize(("sample", "missing"), NOT_YET.items())
async def test_a_sample_that_cannot_run_yet_says_what_is_missing(sample: str, missing: str):
    assert missing in imported(sample)
    with pytest.raises(ImportError, match=f"{missing} is not in standfast yet"):
        await run(sample)


async def test_the_sample_of_custom_session_runs():
    namespace = await run("custom_session.py")
    session = namespace["InMemorySession"]("mine")
    assert isinstance(session, standfast.Session)
    assert isinstance(session, standfast.SessionABC)
    items = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi."}]
    await session.add_items(items)
    assert await session.get_items() == items
    assert await session.get_items(limit=1) == items[1:]
    assert await session.pop_item() == items[1]
    await session.clear_session()
    assert await session.get_items() == []

    result = await standfast.Runner.run(greeter(), "Hello!", session=session)
    assert result.final_output == "Hello, you."
    assert [item["role"] for item in await session.get_items()] == ["user", "assistant"]
    await session.close()


async def test_the_sample_of_sqlite_session_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    namespace = await run("sqlite_session.py", agent=greeter())
    assert namespace["result"].final_output == "Hello, you."
    again = standfast.SQLiteSession("conversation-123", "chat_history.db")
    first, second = await again.get_items()
    assert first == {"role": "user", "content": "Hello!"}
    assert second["role"] == "assistant"
    await again.close()
