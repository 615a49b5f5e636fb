"""F1, F2, F3: messages under faults: random lives in one process, and killed processes (`--message-lives N`)."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from standfast import Runner, open_store
from tests.helpers import servers
from tests.helpers.message_actors import CONFIG, Notes, agent_of
from tests.helpers.message_lives import OPEN, Life, faults, said


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("--message-lives")
    return found


async def test_every_message_is_heard_once_and_in_order_whatever_fails(count: int, tmp_path: Path) -> None:
    for seed in range(count):
        life = Life(seed, tmp_path)
        await life.live()
        assert life.wrong == [], seed


async def _drain(url: str, notes: Notes) -> list[str]:
    """Let one worker finish everything; what is said in the history, and its faults."""
    async with open_store(url) as store:
        for _ in range(200):
            await Runner.recover(agent_of(notes, random.Random(0)), sessions=store.session, run_config=CONFIG)
            runs = (await store.runs(session_id="talk")).runs
            if not any(one.status in OPEN for one in runs) and not await store.list_messages("talk"):
                break
            await asyncio.sleep(0.05)
        items = await store.session("talk").get_items()
    return said(items) + [f"fault: {one}" for one in faults(items)]


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_no_message_is_lost_or_heard_twice_whoever_is_killed(kind: str, count: int, tmp_path: Path) -> None:
    """Two workers and two senders on one store, each killed after 0.05 to 0.8 s at work and started again."""
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'store.db'}",
        "redis": lambda: f"{servers.redis_url()}?key_prefix={uuid.uuid4().hex}",
        "postgres": lambda: f"{servers.postgres_url()}?schema=m{uuid.uuid4().hex[:8]}",
    }[kind]()
    rng, notes = random.Random(count), Notes(tmp_path)
    names = [("worker", "w0"), ("worker", "w1"), ("sender", "s0"), ("sender", "s1")]
    alive: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def begin(who: tuple[str, str]) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.helpers.message_actors",
            *who,
            str(rng.getrandbits(32)),
            str(tmp_path),
            url,
        ]
        alive[who] = subprocess.Popen(command, stdout=subprocess.PIPE)

    def end(who: tuple[str, str]) -> None:
        with alive.pop(who) as process:
            process.kill()

    try:
        for who in names:
            begin(who)
        for _ in range(count):
            who = rng.choice(names)
            assert (out := alive[who].stdout) is not None
            assert out.readline() == b"at work\n"
            try:
                alive[who].wait(rng.uniform(0.05, 0.8))
                notes.add("wrong", f"{who} ended by itself")
            except subprocess.TimeoutExpired:
                pass
            end(who)
            begin(who)
    finally:
        for who in tuple(alive):
            end(who)
    texts = asyncio.run(_drain(url, notes))
    assert notes.read("wrong") == []
    assert not [text for text in texts if text.startswith("fault")]
    for name in ("s0", "s1"):
        numbers = [int(text.split("-")[1]) for text in texts if text.startswith(f"{name}-")]
        assert numbers == sorted(numbers)
        assert not {int(one) for one in notes.read(f"acknowledged-{name}")} - set(numbers)
    assert texts
