"""The inspector's page in a real browser: look, search, page back, watch, decide by keyboard, undo and fork."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standfast import RunConfig, Runner, SQLiteSession, function_tool, open_store
from standfast._kits.cli.entry import main
from standfast.testing import ModelStep, final, function_call, handoff_call
from tests.browser.chromium import Page, axe, page
from tests.inspector.serving import clerk, fill, inspector_here
from tests.inspector.voice_call import UNHEARD, fill_with_a_call

TALK = "document.getElementById('talk').textContent"


async def violations(browser: Page) -> list[str]:
    """What axe finds wrong with the page as it is now."""
    await browser.value(f"{axe()}; 0")
    found = await browser.value("axe.run().then((found) => found.violations.map((one) => one.id + ': ' + one.help))")
    assert isinstance(found, list)
    return found


async def shows(browser: Page, words: str) -> None:
    await browser.until(f"{TALK}.includes({words!r})")


async def press(browser: Page, *keys: str) -> None:
    """Press keys as a keyboard does."""
    codes = {"Tab": 9, "Enter": 13, " ": 32}
    for key in keys:
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        facts = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        await browser.command("Input.dispatchKeyEvent", type="keyDown", text=text, **facts)
        await browser.command("Input.dispatchKeyEvent", type="keyUp", **facts)


async def test_a_conversation_is_found_watched_decided_and_continued(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    await fill(store)
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            # hostile words are text
            await browser.click("#sessions button", "evil")
            await shows(browser, "onerror=window.pwned=1")
            assert await browser.value("window.pwned === undefined")
            assert "token" not in await browser.value("location.href")

            # a long session, from the end
            await browser.click("#sessions button", "long")
            await shows(browser, "Question 299")
            while not await browser.value("document.getElementById('earlier').hidden"):
                before = await browser.value("document.querySelectorAll('[data-cursor]').length")
                await browser.click("#earlier")
                await browser.until(f"document.querySelectorAll('[data-cursor]').length > {before}")
            texts = await browser.value("[...document.querySelectorAll('.said')].map((one) => one.textContent)")
            assert [text.split()[-1] for text in texts] == [str(number) for number in range(300)]

            # by keyboard alone: find the one that waits, and approve
            await press(browser, "/")
            await browser.until("document.activeElement.id === 'words'")
            await press(browser, *"invoice")
            await browser.until("document.querySelectorAll('#sessions button').length === 1")
            await press(browser, "Enter")
            await shows(browser, "pay waits for a decision")
            await shows(browser, "The train goes at nine.")
            await shows(browser, "asked 1 time more")
            assert await violations(browser) == []
            short = f"one.textContent = one.textContent.replace({json.dumps(str(store))}, 'talks.db')"
            await browser.value(f"document.querySelectorAll('header :not(:has(*))').forEach((one) => {{ {short} }})")
            await browser.value("document.querySelector('details[data-call]').open = true; scrollTo(0, 0)")
            await browser.screenshot(Path(PICTURES or tmp_path) / "inspect-a-store.png")
            for _ in range(40):
                await press(browser, "Tab")
                if await browser.value("document.activeElement.textContent === 'Approve'"):
                    break
            await press(browser, "Enter")
            await shows(browser, "approved by ada")

            # a worker elsewhere takes it: the page sees the rest arrive
            session = SQLiteSession("invoice-7", store)
            await Runner.resume(clerk(final("Paid it.")), "run-7", session=session)
            await session.close()
            await shows(browser, "Paid it.")
            await browser.until("!document.getElementById('open').textContent.includes('run-7')")
            assert (await browser.value(TALK)).count("Paid it.") == 1

            # what a compaction replaced, and its undo
            await browser.value("document.getElementById('words').value = ''; list()")
            await browser.click("#sessions button", "compacted")
            await shows(browser, "They spoke of old words.")
            await browser.click("summary", "Compacted")
            await shows(browser, "Old words 4")
            await browser.value("window.confirm = () => true")
            await browser.click("button", "Undo this compaction")
            await browser.until(f"!{TALK}.includes('They spoke of old words.') && {TALK}.includes('Old words 0')")

            # a fork
            await browser.click("#sessions button", "invoice-7")
            await shows(browser, "Paid it.")
            await browser.value("window.prompt = () => 'another way'")
            await browser.click("button", "Fork from here")
            await browser.until("document.getElementById('title').textContent === 'another way'")
            await shows(browser, "a fork of invoice-7")
            assert not browser.problems
            await browser.value("document.body.append(document.createElement('input')); 0")
            assert await violations(browser), "axe sees nothing"


PICTURES = os.environ.get("STANDFAST_PICTURES")
"""Folder in which `./dev pictures` wants the pictures of the documentation."""


async def test_a_voice_call_shows_what_was_heard_and_what_was_not(tmp_path: Path) -> None:
    store = tmp_path / "calls.db"
    await fill_with_a_call(store)
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            await browser.click("#sessions button", "table-12")
            await browser.until("document.querySelectorAll('#turns .heard').length === 2")
            told = "[...document.querySelectorAll('#turns .said.assistant')].map((one) => one.innerText)"
            cut, whole = await browser.value(told)
            assert cut.split("\n\n")[1] == "Once upon a time"
            assert f"s heard. Not heard: {UNHEARD}" in cut
            assert "Not heard" not in whole
            assert await browser.value("document.querySelector('#turns .unheard s').innerText") == UNHEARD
            assert await violations(browser) == []
            await browser.click("#turns a", "run")
            await browser.until(f"document.querySelector('#timeline .unheard s')?.innerText === {UNHEARD!r}")
            assert "voice call of Desk" in await browser.value("document.getElementById('run-facts').innerText")
            assert await violations(browser) == []
            short = f"one.textContent = one.textContent.replace({json.dumps(str(store))}, 'calls.db')"
            await browser.value(f"document.querySelectorAll('header :not(:has(*))').forEach((one) => {{ {short} }})")
            await browser.screenshot(Path(PICTURES or tmp_path) / "inspect-a-call.png")
            assert not browser.problems


@function_tool
async def fetch(page: str) -> str:
    """Fetch a page."""
    raise ConnectionError(f"no way to {page}")


TALK_NODE = "document.getElementById('talk')"
AT_END = f"{TALK_NODE}.scrollHeight - {TALK_NODE}.scrollTop - {TALK_NODE}.clientHeight < 3"
SAID = """## Trains
Take **the first** of:
- `IC 7`
- [the night train](https://trains.example/night)

<img src=x onerror=window.pwned=1>"""


async def store_with_failures(store: Path) -> None:
    """Fill a store with 60 sessions, of which one has a failed call and Markdown, and one asks about Markdown."""
    for number in range(58):
        session = SQLiteSession(f"session-{number:02}", store)
        await session.add_items([{"role": "user", "content": f"Line {line}"} for line in range(40)])
        await session.close()
    session = SQLiteSession("failing", store)
    agent = clerk([function_call("fetch", {"page": "a"}, call_id="call-1")], final(SAID))
    agent.tools = [fetch]
    await Runner.run(agent, "Fetch it.", session=session, run_config=RunConfig(run_id="run-of-many-characters-0000001"))
    await session.close()
    session = SQLiteSession("asking", store)
    asking = clerk([function_call("pay", {"amount": 1, "to": "**bold** bob"}, call_id="call-2")])
    await Runner.run(asking, "Pay.", session=session, run_config=RunConfig(run_id="run-asking"))
    await session.close()


async def test_failures_markdown_and_places_of_a_page_that_is_kept_and_sent(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    await store_with_failures(store)
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            # the store as a whole, and from there to the run that waits
            await shows(browser, "waits for a person")
            figures = await browser.value("document.querySelector('.figures').innerText.replace(/\\s+/g, ' ')")
            assert figures.startswith("60 sessions 1 waits for a person"), figures
            await browser.click("#overview a", "run-asking")
            await browser.until("document.querySelector('#run .waits')?.textContent.includes('**bold** bob')")
            assert await browser.value("document.querySelectorAll('.waits strong').length") == 0
            assert await violations(browser) == []
            await browser.click("#run .approve", "Approve")
            await shows(browser, "pay was approved by ada")
            await shows(browser, "standfast runs resume")

            # the fiftieth session opens in sight, at its end; the address names it, and a reload comes back to it
            await browser.click("#sessions button", "session-10")
            await shows(browser, "Line 39")
            await browser.until(AT_END)
            assert await browser.value("document.getElementById('title').getBoundingClientRect().left") > 0
            assert await browser.value("location.hash") == "#session=session-10"
            assert await browser.value("scrollY") == 0
            await browser.command("Page.reload")
            await browser.until(f"{TALK_NODE}?.textContent.includes('Line 39')")
            await browser.until("document.getElementById('title').textContent === 'session-10'")

            # a call that failed, and what was said in Markdown
            await browser.value("location.hash = '#session=failing'")
            await browser.until("document.querySelector('summary .failed')?.textContent.includes('✗ failed')")
            assert "✓" not in await browser.value("document.getElementById('turns').textContent")
            await shows(browser, "no way to a")
            tags = "[...document.querySelector('.said.assistant').querySelectorAll('*')].map((one) => one.tagName)"
            assert await browser.value(tags) == ["STRONG", "P", "P", "STRONG", "UL", "LI", "CODE", "LI", "A", "P"]
            assert await browser.value("window.pwned === undefined")
            run_id = "[...document.querySelectorAll('.id')].map((one) => [one.textContent, one.title])[0]"
            assert await browser.value(run_id) == ["run-of-m…000001", "run-of-many-characters-0000001: click to copy"]
            await browser.click("#turns a", "run")
            await browser.until(
                "document.querySelector('#timeline .is-failed')?.textContent.includes('Output (failed)')"
            )
            address = await browser.value("location.href")
            assert not browser.problems

        # somebody who is sent the address needs a token
        async with page(address) as browser:
            await browser.until("!document.getElementById('enter').hidden")
            assert await browser.value("document.getElementById('timeline') === null")
            await browser.value(f"document.getElementById('token').value = {served.address!r}")
            await browser.click("#enter button", "Open")
            await browser.until("document.querySelector('#timeline')?.textContent.includes('Output (failed)')")


async def test_ten_thousand_sessions_with_100_000_items_are_looked_through(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    long = SQLiteSession("long", store)
    for start in range(0, 80_002, 10_000):
        numbers = range(start, min(start + 10_000, 80_002))
        await long.add_items([{"role": "user", "content": f"Question {number}"} for number in numbers])
    many = [SQLiteSession(f"session-{number:05}", store) for number in range(9_999)]
    for start in range(0, len(many), 100):
        two = [
            [{"role": "user", "content": f"One of {one.session_id}"}, {"role": "user", "content": "Two"}]
            for one in many[start : start + 100]
        ]
        await asyncio.gather(*(one.add_items(items) for one, items in zip(many[start : start + 100], two, strict=True)))
    for one in [long, *many]:
        await one.close()
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            await browser.until("document.querySelector('.figures')?.innerText.replace(/\\D+/, ' ').startsWith('10')")
            await shows(browser, "standfast sessions stats")
            await browser.click("#more")
            await browser.until("document.querySelectorAll('#sessions button').length === 100")
            await press(browser, "/")
            await press(browser, *"session-04321")
            await browser.until("document.querySelectorAll('#sessions button').length === 1")
            await press(browser, "Enter")
            await shows(browser, "One of session-04321")
            await browser.value("location.hash = '#session=long'")
            await shows(browser, "Question 80001")
            await browser.until(AT_END)
            await browser.click("#earlier")
            await shows(browser, "Question 79903")
            assert not browser.problems


async def test_a_run_shows_its_hand_over_its_worker_and_its_hold_and_is_let_go(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    billing = clerk([function_call("trains", {"to": "Rome"}, call_id="call-2")], final("Billed."))
    billing.name = "Billing"
    desk = clerk([handoff_call(billing, call_id="call-1")])
    desk.handoffs = [billing]
    session = SQLiteSession("handed", store)
    await Runner.run(desk, "Bill me.", session=session, run_config=RunConfig(run_id="run-handed"))
    await session.close()
    # a run that its worker has left in a request: another one is asked in its place, under a lease that lives
    session = SQLiteSession("left", store)
    hangs = asyncio.create_task(
        Runner.run(clerk(ModelStep.hang()), "Hello.", session=session, run_config=RunConfig(run_id="run-left"))
    )
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            await browser.value("location.hash = '#run=run-handed'")
            rows = "[...document.querySelectorAll('#timeline strong')].map((one) => one.textContent)"
            await browser.until(f"({rows}).includes('done')")
            titles = await browser.value(rows)
            at = titles.index("Handed over to Billing")
            assert titles[at - 2].startswith("Turn 1: transfer_to_billing")
            assert titles[at + 1].startswith("Turn 2: trains")
            ages = "[...document.querySelectorAll('#timeline time')].map((one) => one.textContent).join()"
            before = await browser.value(ages)
            await browser.until(f"{ages} !== {json.dumps(before)}")  # a page that stays open counts on
            assert " · took " in await browser.value("document.getElementById('run-facts').textContent")

            await browser.value("location.hash = '#run=run-left'")
            await browser.until("document.querySelector('#run .worker.live')?.textContent.includes('is at it')")
            assert "standfast runs unlock" in await browser.value("document.querySelector('#run .next').textContent")
            await asyncio.to_thread(hold_all, store)
            held = "document.querySelector('#run .waits')?.textContent.includes('was restored from a backup')"
            await browser.until(held)
            await browser.until("!document.querySelector('#run .worker')")
            assert "standfast runs cancel" in await browser.value("document.querySelector('#run .next').textContent")
            assert await violations(browser) == []
            await browser.value("document.querySelector('#run .waits .approve').focus()")
            await press(browser, "Enter")
            await shows(browser, "The run may continue.")
            await shows(browser, "A worker that calls Runner.recover continues it; by hand: standfast runs resume")
            assert not browser.problems
    hangs.cancel()
    await asyncio.gather(hangs, return_exceptions=True)
    result = await Runner.resume(clerk(final("Here again.")), "run-left", session=session)
    assert result.final_output == "Here again."
    await session.close()


def hold_all(store: Path) -> None:
    """As after restoring a backup: `standfast runs hold STORE --all`."""
    assert main(["runs", "hold", str(store), "run-left", "--yes"]) == 0


async def test_what_is_approved_is_shown_exactly_and_no_other_server_learns_the_token(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    await fill(store)
    for name, arguments in (
        ("exact", '{"amount": 9007199254740993, "to": "two\u202e bob"}'),
        ("coerced", '{"amount": "9007199254740993", "to": "ACME"}'),
        ("long", json.dumps({"amount": 1, "to": "x" * 40_000})),
    ):
        session = SQLiteSession(f"{name} one", store)
        agent = clerk([function_call("pay", arguments, call_id="call-1")])
        await Runner.run(agent, "Pay.", session=session, run_config=RunConfig(run_id=f"run-{name}"))
        await session.close()
    odd = SQLiteSession("odd", store)
    await odd.add_items([{"type": 5}, {"role": "user", "content": [None]}, {"role": "user", "content": "still here"}])
    await odd.close()
    heard: list[dict[str, str]] = []

    class Listener(BaseHTTPRequestHandler):
        """Another server of this computer, which writes down what browsers bring."""

        def do_GET(self) -> None:
            heard.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<p>hello</p>")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as other, inspector_here(store, "ada") as served:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            async with page(served.address) as browser:
                waits = "document.querySelector('.waits')?.textContent"
                await browser.click("#sessions button", "exact one")
                await browser.until(f"{waits}?.includes('9007199254740993')")
                assert '"two\\u202e bob"' in await browser.value(waits)
                assert "will get" not in await browser.value(waits)

                await browser.click("#sessions button", "long one")
                await browser.until(f"{waits}?.includes('cannot be approved here')")
                buttons = "[...document.querySelectorAll('.waits button')].map((one) => one.textContent)"
                assert await browser.value(buttons) == ["Reject"]

                await browser.click("#sessions button", "odd")
                await shows(browser, "still here")
                await shows(browser, '"type": 5')

                # elsewhere on this computer, and back: a cookie would have gone along
                await browser.command("Page.navigate", url=f"http://127.0.0.1:{other.server_port}/")
                await browser.until("document.body?.textContent === 'hello'")
                assert await browser.value("sessionStorage.length + document.cookie.length") == 0
                await browser.command("Page.navigate", url=served.address.partition("#")[0])
                await browser.click("#sessions button", "coerced one")
                await browser.until(f"{waits}?.includes('will get')")
                assert '"amount": 9007199254740993,' in await browser.value(
                    "document.querySelector('.values').textContent"
                )
                await browser.click(".waits button", "Approve")
                await shows(browser, "approved by ada")
                assert not browser.problems
        finally:
            other.shutdown()
            thread.join()
    assert heard
    assert served.token not in json.dumps(heard)
    assert not [one for one in heard if "cookie" in one or "authorization" in one or "token" in one.get("referer", "")]


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
BRIGHTNESS = f"{BACKGROUND}.match(/[0-9.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3"


async def test_the_page_fits_a_phone_and_is_dark_where_people_want_it_so(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    await fill(store)
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            for width in (390, 375):
                phone = {"width": width, "height": 667, "deviceScaleFactor": 2, "mobile": True}
                await browser.command("Emulation.setDeviceMetricsOverride", **phone)
                for name, words in (("invoice-7", "pay waits for a decision"), ("evil", "onerror=window.pwned=1")):
                    await browser.value("location.hash = ''")
                    await browser.click("#sessions button", name)
                    await shows(browser, words)
                    wide = "document.documentElement.scrollWidth"
                    assert await browser.value(wide) <= width, f"{name}: one has to scroll sideways"
            for scheme, is_dark in (("dark", True), ("light", False)):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                await browser.command("Emulation.setEmulatedMedia", features=features)
                await browser.until(f"({BRIGHTNESS} < 128) === {str(is_dark).lower()}")
                assert await violations(browser) == [], scheme  # its contrasts, too


async def test_a_server_that_goes_away_is_told_on_the_page(tmp_path: Path) -> None:
    store = tmp_path / "talks.db"
    await fill(store)
    gone = asyncio.Event()

    async def look(address: str) -> None:
        async with page(address) as browser:
            await browser.click("#sessions button", "long")
            await shows(browser, "Question 299")
            await asyncio.to_thread(stop.__exit__, None, None, None)
            gone.set()
            await browser.click("#sessions button", "invoice-7")
            await browser.until("document.getElementById('problem').textContent.includes('does not answer')")

    stop = inspector_here(store, "ada")
    served = stop.__enter__()
    try:
        await look(served.address)
    finally:
        if not gone.is_set():
            stop.__exit__(None, None, None)


async def test_a_budget_is_shown_and_changed(tmp_path: Path) -> None:
    """F10."""
    store = tmp_path / "talks.db"
    await fill(store)
    async with open_store(store) as opened:
        await opened.set_budget("day/usd/acme", 20)
    section = "(document.querySelector('#overview section[aria-label=Budgets]')?.innerText ?? '')"
    with inspector_here(store, "ada") as served:
        async with page(served.address) as browser:
            await browser.until(f"{section}.includes('$0.00 used of $20.00, $20.00 left')")
            assert await violations(browser) == []
            await browser.value("window.prompt = () => '7.5'")
            await browser.click("#overview section button", "Change")
            await browser.until(f"{section}.includes('used of $7.50')")
            await browser.value("window.prompt = () => 'much'")
            await browser.click("#overview section button", "Change")
            await browser.until("document.body.innerText.includes('Give an amount in US dollars')")
