"""The inspector's page in a real browser: opening a long conversation, going back in it, and seeing what is written.

    ./dev bench bench_inspector [--items 100000]

Prints each time for a short and for a long conversation, and their ratio: it should not grow with the history.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from standfast import SQLiteSession  # noqa: E402
from tests.browser.chromium import Page, page  # noqa: E402
from tests.inspector.serving import inspector_here  # noqa: E402

ROUNDS = 5


async def fill(path: Path, name: str, count: int) -> None:
    session = SQLiteSession(name, path)
    for start in range(0, count, 1000):
        await session.add_items(
            [{"role": "user", "content": f"Question {n}"} for n in range(start, min(count, start + 1000))]
        )
    await session.close()


async def until(browser: Page, expression: str) -> None:
    while not await browser.value(expression):
        await asyncio.sleep(0.002)


async def opened(browser: Page, name: str, count: int) -> float:
    """Seconds from the click until the newest item is on the page."""
    await browser.value("document.getElementById('turns').replaceChildren(); 0")
    started = time.perf_counter()
    await browser.click("#sessions button", name)
    await until(browser, f"document.getElementById('talk').textContent.includes('Question {count - 1}')")
    return time.perf_counter() - started


async def earlier(browser: Page) -> float:
    """Seconds from the click until the page before is there."""
    before = await browser.value("document.querySelectorAll('[data-cursor]').length")
    started = time.perf_counter()
    await browser.click("#earlier")
    await until(browser, f"document.querySelectorAll('[data-cursor]').length > {before}")
    return time.perf_counter() - started


async def seen(browser: Page, path: Path, name: str, number: int) -> float:
    """Seconds from the commit of an item in this process until it is on the page."""
    session = SQLiteSession(name, path)
    await session.add_items([{"role": "user", "content": f"Fresh {name} {number}"}])
    started = time.perf_counter()
    await until(browser, f"document.getElementById('talk').textContent.includes('Fresh {name} {number}')")
    await session.close()
    return time.perf_counter() - started


async def measure(items: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "talks.db"
        sizes = {"short": 1000, "long": items}
        for name, count in sizes.items():
            await fill(path, name, count)
        found: dict[str, dict[str, float]] = {}
        with inspector_here(path, "bench") as served:
            async with page(served.address) as browser:
                for name, count in sizes.items():
                    times = [await opened(browser, name, count) for _ in range(ROUNDS)]
                    back = [await earlier(browser) for _ in range(ROUNDS)]
                    fresh = [await seen(browser, path, name, number) for number in range(ROUNDS)]
                    found[name] = {
                        "open the conversation": statistics.median(times),
                        "an earlier page": statistics.median(back),
                        "a new item is seen": statistics.median(fresh),
                    }
    print(f"\nthe inspector's page, medians of {ROUNDS}, browser and driver included")
    print(f"{'':24}{'1,000 items':>14}{f'{items:,} items':>18}{'ratio':>8}")
    for what in found["short"]:
        short, long = found["short"][what], found["long"][what]
        print(f"{what:24}{short * 1000:>11.0f} ms{long * 1000:>15.0f} ms{long / short:>8.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--items", type=int, default=100_000)
    asyncio.run(measure(parser.parse_args().items))
