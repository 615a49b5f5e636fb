"""A headless Chromium, found or fetched, and driven through its own debugging protocol: no library but websockets.

Looked for in this order: `$CHROMIUM`, a Chromium on PATH, the npm package `@sparticuz/chromium` (one file that needs no
root; fetched with npm once, checked against the hash below, and kept in the cache of the person who runs the tests).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
SHA512 = (
    "e1929e01041af2ea769adebbe6a4a2b73b4b75b42b95ff0129d0b99da79aa7ee"
    "4cbf5395d4e94974fa14f84242fe9e6c414254426378afeab9f8485a68e507a5"
)
AXE_VERSION = "4.11.0"
AXE_SHA512 = (
    "8a561a9c453cbf1c417b1a4977c716338125490ab841cb422ca8a1d1349f8c87"
    "c24137b21ffeb356b98825f2cfaca4ca2516e21be71f9d96d02230252661758d"
)
NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "headless_shell", "google-chrome", "chrome")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "standfast-tests"
UNPACK = """
const zlib = require("zlib"), fs = require("fs"), [from, to] = process.argv.slice(1);
for (const name of fs.readdirSync(from).filter((name) => name.endsWith(".br")))
  fs.writeFileSync(`${to}/${name.slice(0, -3)}`, zlib.brotliDecompressSync(fs.readFileSync(`${from}/${name}`)));
"""
WAIT_S = 60.0


SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
# Python 3.11.2, which Debian 12 has, does not know it. What is unpacked is pinned by its digest.


def executable() -> Path:
    """The browser's program."""
    if given := os.environ.get("CHROMIUM"):
        return Path(given)
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    return _fetched()


def _fetched() -> Path:
    home = CACHE / f"chromium-{VERSION}"
    program = home / "chromium"
    if program.exists():
        return program
    if shutil.which("npm") is None:
        raise RuntimeError("the browser test needs a Chromium: set CHROMIUM, put one on PATH, or install npm")
    with _package(PACKAGE, VERSION, SHA512) as folder:
        made = folder / "made"
        made.mkdir()
        packed_files = folder / "package" / "bin"
        subprocess.run(["node", "-e", UNPACK, str(packed_files), str(made)], check=True)
        for name in ("al2023.tar", "swiftshader.tar", "fonts.tar"):
            with tarfile.open(made / name) as libraries:
                libraries.extractall(made, **SAFELY)
        (made / "chromium").chmod(0o755)
        if not program.exists():
            made.rename(home)
    return program


def axe() -> str:
    """The program that looks for what keeps people with a screen reader or a keyboard out."""
    kept = CACHE / f"axe-{AXE_VERSION}.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            raise RuntimeError("the accessibility test needs the npm package axe-core: install npm")
        with _package("axe-core", AXE_VERSION, AXE_SHA512) as folder:
            (folder / "package" / "axe.min.js").rename(kept)
    return kept.read_text(encoding="utf-8")


@contextmanager
def _package(name: str, version: str, sha512: str) -> Iterator[Path]:
    """A folder in the cache with an npm package unpacked, if it is the pinned file; it goes when the block ends."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=folder, check=True, capture_output=True)
        (archive,) = Path(folder).glob("*.tgz")
        assert hashlib.sha512(archive.read_bytes()).hexdigest() == sha512, f"{archive.name} is not the pinned file"
        with tarfile.open(archive) as packed:
            packed.extractall(folder, **SAFELY)
        yield Path(folder)


class Page:
    """One page of a browser."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket, self._session = socket, session
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())
        self.problems: list[str] = []
        """What the page complained about."""

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message)
            if told.get("id") in self._waiting:
                self._waiting.pop(told["id"]).set_result(told)
            elif told.get("method") == "Runtime.exceptionThrown":
                self.problems.append(str(told["params"]["exceptionDetails"]))

    async def command(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        message = {"id": number, "sessionId": self._session, "method": method, "params": params}
        await self._socket.send(json.dumps(message))
        told = await asyncio.wait_for(answer, WAIT_S)
        assert "error" not in told, told
        return told["result"]

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        told = await self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true, and give its value."""
        async with asyncio.timeout(WAIT_S):
            while not (found := await self.value(expression)):
                await asyncio.sleep(0.05)
        return found

    async def click(self, selector: str, text: str = "") -> None:
        """Click the first such element with that text, once it is there and enabled."""
        wanted = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find((one) => !one.disabled && one.textContent.includes({json.dumps(text)}))"
        )
        await self.until(f"!!{wanted}")
        await self.value(f"{wanted}.click()")

    async def screenshot(self, file: Path) -> None:
        told = await self.command("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(told["data"]))


@asynccontextmanager
async def page(url: str, *, microphone: Path | None = None) -> AsyncIterator[Page]:
    """A page in a browser of its own; `microphone` is a WAV file that is heard once, and then silence."""
    program = executable()
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        flags += [f"--user-data-dir={profile}", "--autoplay-policy=no-user-gesture-required", "--window-size=900,1100"]
        flags += ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
        # A page that nobody looks at has its timers slowed down; here it is looked at.
        flags += ["--disable-background-timer-throttling", "--disable-renderer-backgrounding"]
        flags += ["--disable-backgrounding-occluded-windows"]
        if microphone is not None:
            flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
        libraries = os.pathsep.join([str(program.parent / "lib"), os.environ.get("LD_LIBRARY_PATH", "")])
        browser = await asyncio.create_subprocess_exec(
            str(program), *flags, stderr=asyncio.subprocess.PIPE, env={**os.environ, "LD_LIBRARY_PATH": libraries}
        )
        try:
            async with connect(await _address(browser), max_size=None) as socket:
                made = await _page_of(socket, url)
                yield made
                await made.close()
        finally:
            browser.kill()
            await browser.wait()


async def _address(browser: asyncio.subprocess.Process) -> str:
    assert browser.stderr is not None
    told = b""
    async with asyncio.timeout(WAIT_S):
        while line := await browser.stderr.readline():
            told += line
            if line.startswith(b"DevTools listening on "):
                return line.decode().removeprefix("DevTools listening on ").strip()
    raise RuntimeError(f"the browser did not start: {told.decode(errors='replace')[-2000:]}")


async def _page_of(socket: ClientConnection, url: str) -> Page:
    async def ask(method: str, **params: Any) -> Any:
        await socket.send(json.dumps({"id": 0, "method": method, "params": params}))
        while (told := json.loads(await socket.recv())).get("id") != 0:
            pass
        return told["result"]

    target = await ask("Target.createTarget", url="about:blank")
    attached = await ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    made = Page(socket, attached["sessionId"])
    await made.command("Runtime.enable")
    await made.command("Page.enable")
    await made.command("Page.navigate", url=url)
    await made.until("document.readyState === 'complete'")
    return made
