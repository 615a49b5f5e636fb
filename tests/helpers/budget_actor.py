"""A process that spends from a shared budget until nothing is left, and a provider double that keeps its own books.

python -m tests.helpers.budget_actor NAME SEED FOLDER URL LIMIT
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

from standfast import (
    Agent,
    Budget,
    BudgetExceeded,
    ModelSettings,
    RunConfig,
    Runner,
    StandfastError,
    Usage,
    function_tool,
    open_store,
)
from standfast.testing import AnsweringModel, ModelStep, assistant_message, function_call

MAX_TOKENS, EXCESS = 50, 5
NANO_OF_TOKEN = 1_000_000
BUDGET = "total/usd/acme"


def cost(usage: Usage, model: str) -> float:
    """A thousandth of a dollar for each token of output."""
    return usage.output_tokens / 1000


def pay(folder: Path, tokens: int) -> None:
    """Write one reply into the provider's books, as it leaves the provider."""
    line = os.open(folder / "books", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(line, f"{tokens}\n".encode())
    os.close(line)


def paid(folder: Path) -> list[int]:
    """Read the provider's books: the tokens of each reply."""
    path = folder / "books"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def agent_of(folder: Path, rng: random.Random) -> Agent[Any]:
    """An agent whose replies cost up to EXCESS tokens more than `max_tokens` allows."""

    def answer(call: Any) -> ModelStep:
        tokens = rng.randint(10, MAX_TOKENS + EXCESS)
        pay(folder, tokens)
        usage = Usage(requests=1, input_tokens=7, output_tokens=tokens, total_tokens=7 + tokens)
        if rng.random() < 0.6:
            return ModelStep([function_call("look", {}, call_id=f"c{rng.getrandbits(40)}")], usage=usage)
        return ModelStep([assistant_message("done")], usage=usage)

    @function_tool
    async def look() -> str:
        """Look."""
        return "seen"

    return Agent(
        name="A", model=AnsweringModel(answer), tools=[look], model_settings=ModelSettings(max_tokens=MAX_TOKENS)
    )


async def spend(name: str, seed: int, folder: Path, url: str, limit: str) -> None:
    """Run conversations until the budget has no room; first those that an earlier life left."""
    rng = random.Random(seed)
    agent = agent_of(folder, rng)
    config = RunConfig(budgets=[Budget("acme", usd=limit)], price=cost, lease_ttl_s=1, unfinished="settle")
    async with open_store(url, create=True) as store:
        print("at work", flush=True)
        number = 0
        while True:
            number += 1
            session = store.session(f"{name}-{rng.randrange(3)}")
            try:
                await Runner.run(agent, f"go {number}", session=session, run_config=config, max_turns=None)
            except BudgetExceeded:
                print("nothing left", flush=True)
                return
            except StandfastError as error:
                print(f"error {error!r}", flush=True)
                return
            finally:
                await session.close()


if __name__ == "__main__":
    who, seed, folder, url, limit = sys.argv[1:]
    asyncio.run(spend(who, int(seed), Path(folder), url, limit))
