"""The page of the voice demo in a real browser, with a microphone that plays a file: speak, interrupt, approve, kill.

It is in real time, as talking is; it waits for what happens and not for the clock.
"""

from __future__ import annotations

import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast.testing.realtime import LoopbackRealtimeServer
from standfast.testing.realtime.audio import RATE_HZ, silence
from tests.browser.chromium import Page, page

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "voice"


@pytest.fixture
def demo_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The demo is a folder of scripts; it is imported as they import each other."""
    monkeypatch.syspath_prepend(str(DEMO))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=":")
    names = ("desk", "loopback_phone", "phone_line", "real_speech", "supervise", "worker")
    for name in names:  # a page of the documentation makes a `desk.py` of its own
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in names:
        sys.modules.pop(name, None)


async def shows(browser: Page, words: str) -> None:
    await browser.until(f"document.getElementById('transcript').textContent.includes({words!r})")


async def quiet(browser: Page) -> None:
    await browser.until("!document.body.classList.contains('playing')")


async def test_a_call_in_the_browser_is_interrupted_approved_and_survives_its_worker(
    demo_on_path: None, tmp_path: Path
):
    from desk import SENTENCES, answer  # type: ignore[import-not-found]
    from real_speech import spoken  # type: ignore[import-not-found]
    from supervise import Workers, prepare  # type: ignore[import-not-found]

    microphone = tmp_path / "microphone.wav"
    with wave.open(str(microphone), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(silence(3_000) + spoken(SENTENCES[0]) + silence(2_000))
    with LoopbackRealtimeServer(answer, voice=spoken, pace=0.3) as server:
        workers = Workers(tmp_path)
        prepare(server, tmp_path)
        # The browser resamples what the microphone hears: it is speech to the detector, and no known words.
        server.hear_as(SENTENCES[0])
        try:
            workers.start()
            workers.wait()
            async with page(f"http://127.0.0.1:{workers.ports[0]}/", microphone=microphone) as browser:
                await browser.click("#call")
                await shows(browser, "Here is what I have: mussels")
                await quiet(browser)
                await browser.click("#sentences button", "house")
                await shows(browser, "harbour pilot")
                await browser.click("#sentences button", "Stop")
                struck = await browser.until("document.querySelector('#transcript s')?.textContent")
                assert "refused no guest" in struck
                await shows(browser, "Of course.")
                await quiet(browser)
                await browser.click("#sentences button", "table")
                await browser.until("!document.getElementById('approvals').hidden")
                first = await browser.value("document.getElementById('state').textContent")
                await browser.click("#kill")
                await browser.until(
                    f"(document.getElementById('state').textContent.startsWith('Worker')"
                    f" && document.getElementById('state').textContent !== {first!r})"
                )
                # What nobody heard is in the call's record, so the second worker can strike it through as well.
                await browser.until("document.querySelector('#transcript s')?.textContent.includes('refused no guest')")
                await browser.click("#waiting button", "Approve")
                await shows(browser, "Here is what I have: table five, for 2.")
                await browser.click("#hangup")
                await browser.until("document.getElementById('state').textContent.includes('has ended')")
                assert not browser.problems
        finally:
            workers.stop()
        said = server.said()
    assert ("user", "A table for two please.") in said
    assert len(server.conversations) == 2, "the second worker made a connection of its own"
