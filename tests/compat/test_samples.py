"""Code written for the OpenAI Agents SDK runs when `agents` becomes `standfast`: sessions, as its documents use them.

The programs in `samples/` are our own and make the calls that the SDK's documents show.
"""

from __future__ import annotations

import inspect
import re
import types
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.testing import ScriptedModel, final
from tests.helpers import servers

SAMPLES = Path(__file__).with_name("samples")


def loaded(sample: str) -> types.ModuleType:
    """The program with `agents` replaced by `standfast`, and nothing else."""
    text = re.sub(r"\bagents\b", "standfast", (SAMPLES / sample).read_text(encoding="utf-8"))
    module = types.ModuleType(sample.removesuffix(".py"))
    exec(compile(text, sample, "exec"), vars(module))
    return module


def greeter() -> standfast.Agent[Any]:
    """The agent that the programs are given."""
    return standfast.Agent(name="greeter", model=ScriptedModel([final("Hello, you.")]))


def test_every_program_is_run():
    assert {file.name for file in SAMPLES.glob("*.py")} == {"own_session.py", "redis_server.py", "sqlite_file.py"}


@pytest.mark.redis
async def test_a_conversation_in_redis_is_there_for_the_next_one():
    result = await loaded("redis_server.py").talk(greeter(), servers.redis_url())
    assert result.final_output == "Hello, you."
    again = standfast.RedisSession.from_url("guest-7", url=servers.redis_url())
    assert [item["role"] for item in await again.get_items()] == ["user", "assistant"]
    await again.clear_session()
    await again.close()


async def test_a_session_of_ones_own_keeps_a_conversation():
    session = loaded("own_session.py").NotebookSession("mine")
    assert isinstance(session, standfast.Session)
    assert isinstance(session, standfast.SessionABC)
    assert inspect.iscoroutinefunction(type(session).get_items)
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
    assert not session.is_shut  # whoever opened it closes it (C14)
    await session.close()


async def test_a_conversation_in_a_sqlite_file_is_there_for_the_next_one(tmp_path: Path):
    path = str(tmp_path / "talks.db")
    result = await loaded("sqlite_file.py").talk(greeter(), path)
    assert result.final_output == "Hello, you."
    again = standfast.SQLiteSession("guest-7", path)
    first, second = await again.get_items()
    assert first == {"role": "user", "content": "Good morning."}
    assert second["role"] == "assistant"
    await again.close()
