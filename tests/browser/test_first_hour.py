"""`docs/tutorial/first-hour.md` is walked as it stands: files are saved, commands typed, the page looked at."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.browser.chromium import Page, page
from tests.helpers.children import import_path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-hour.md"
BLOCK = re.compile(r"(^<!-- not walked[^\n]*\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURES = os.environ.get("STANDFAST_PICTURES")
"""The folder of how-to guides, if `./dev pictures` wants the pictures; those of this page go beside the tutorials."""


class Walk:
    """A folder in which the blocks of the page are carried out in order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, ""
        commands = folder / "bin"
        commands.mkdir()
        for name, words in (("python", ""), ("standfast", " -m standfast")):
            (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
            (commands / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        more = {"PYTHONPATH": import_path(), "PATH": f"{commands}{os.pathsep}{kept['PATH']}"}
        self.environment = {**kept, **more, "OPENAI_AGENTS_DISABLE_TRACING": "1"}

    async def type(self, lines: str) -> None:
        """Type commands into a shell, and keep what they print."""
        shell = await asyncio.create_subprocess_exec(
            "bash", "-e", "-c", lines, cwd=self.folder, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        told, _ = await shell.communicate()
        self.output = told.decode()
        assert shell.returncode == 0, f"{lines}\n{self.output}"

    def compare(self, wanted: str) -> None:
        """Look for each line of a block of output among what the last commands printed."""
        missing = [line for line in wanted.splitlines() if line not in self.output.splitlines()]
        assert not missing, f"{missing} in {self.output}"

    def picture(self, name: str) -> Path:
        return (Path(PICTURES).parent / "tutorial" if PICTURES else self.folder) / f"first-hour-{name}.png"


async def test_the_first_hour_can_be_walked(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    served: subprocess.Popen[str] | None = None
    looking = None
    browser: Page | None = None
    try:
        for left_out, language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if left_out:
                continue
            if language == "python":
                (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text, encoding="utf-8")
            elif language == "":
                walk.compare(text)
            elif "standfast inspect" in text:
                command = [*text.split(), "--port", "0", "--by", "ada"]
                served = subprocess.Popen(
                    command, cwd=tmp_path, env=walk.environment, stdout=subprocess.PIPE, text=True,
                    executable=tmp_path / "bin" / "standfast",
                )  # fmt: skip
                assert served.stdout is not None
                looking = page(served.stdout.readline().strip())
                browser = await looking.__aenter__()
                await decide(browser, walk)
            else:
                await walk.type(text)
                if "kill -9" in text:
                    assert browser is not None
                    await browser.until("document.querySelector('#run .worker')?.textContent.includes('DEAD')")
                    await browser.screenshot(walk.picture("dead"))
                elif "runs resume" in text:
                    assert browser is not None
                    await browser.until("document.getElementById('run-facts').textContent.includes('done')")
                    await browser.screenshot(walk.picture("done"))
                    assert not browser.problems
        assert browser is not None
    finally:
        if looking is not None and browser is not None:
            await looking.__aexit__(None, None, None)
        if served is not None:
            served.kill()
            served.communicate()


async def decide(browser: Page, walk: Walk) -> None:
    """Look at the store, open what waits, approve it, and stay on the page of the run."""
    talk = "document.getElementById('talk').textContent"
    await browser.until(f"{talk}.includes('waits for a person')")
    await browser.click("#sessions button", "guest-42")
    await browser.until("!!document.querySelector('.waits .approve')")
    await browser.screenshot(walk.picture("question"))
    await browser.click(".waits .approve", "Approve")
    await browser.until(f"{talk}.includes('Approved: refund.') && {talk}.includes('Runner.recover')")
    await browser.click("#open a", "run")
    await browser.until("!!document.querySelector('#timeline')")
