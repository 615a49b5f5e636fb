"""The voice demo: `./dev voice`, or `./dev voice --phone` for a telephone call that needs no hands.

Starts the loopback realtime server and two workers, prints the address of the page, and starts a worker again when it
dies. With OPENAI_API_KEY and `--live` the workers talk to the service instead, or to the server of the same protocol
at OPENAI_BASE_URL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from desk import SENTENCES, answer
from loopback_phone import LoopbackPhone
from real_speech import spoken

from standfast.testing.realtime import LoopbackRealtimeServer
from standfast.testing.realtime.audio import silence

HERE = Path(__file__).parent
START_TIMEOUT_S = 60.0


class Workers:
    """Two processes that serve calls; one that dies is started again."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.ports = [_free_port() for _ in range(2)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start those that do not run."""
        for port in self.ports:
            if port not in self._running or self._running[port].poll() is not None:
                ports = ",".join(map(str, self.ports))
                command = [sys.executable, str(HERE / "worker.py"), str(port), ports, str(self.state)]
                self._running[port] = subprocess.Popen(command, cwd=HERE)

    def wait(self) -> None:
        """Return when all of them answer."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for port in self.ports:
            while True:
                try:
                    urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                    break
                except (URLError, ConnectionError) as error:
                    if time.monotonic() > deadline or self._running[port].poll() is not None:
                        raise SystemExit(f"a worker did not start: {error}") from error
                    time.sleep(0.05)

    def kill(self, port: int) -> None:
        """End one of them as a crash does."""
        self._running[port].kill()
        self._running[port].wait()

    def stop(self) -> None:
        """End all of them."""
        for worker in self._running.values():
            worker.kill()
            worker.wait()


def prepare(server: LoopbackRealtimeServer | None, state: Path) -> None:
    """Write down what workers need: where the model is, and the sentences as audio."""
    model = live_model() if server is None else {"url": server.url, "api_key": "loopback"}
    (state / "model.json").write_text(json.dumps(model), encoding="utf-8")
    for place, words in enumerate(SENTENCES):
        pcm = spoken(words)
        if server is not None:
            server.ears.learn(words, pcm)
        (state / f"sentence{place}.pcm").write_bytes(silence(200) + pcm + silence(900))


def live_model() -> dict[str, str]:
    """How to reach the service, or what stands in its place."""
    model = {"api_key": os.environ.get("OPENAI_API_KEY", "")}
    base = os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    if base:
        place = base.replace("http", "ws", 1)  # https is wss
        model["url"] = f"{place}/realtime?{urlencode({'model': os.environ.get('OPENAI_MODEL', 'gpt-realtime')})}"
    return model


def talk(server: LoopbackRealtimeServer | None, state: Path) -> int:
    """The page: serve until Ctrl-C."""
    workers = Workers(state)
    prepare(server, state)
    try:
        workers.start()
        workers.wait()
        print(f"Open http://127.0.0.1:{workers.ports[0]}/ (Ctrl-C ends it).", flush=True)
        while True:
            time.sleep(0.2)
            workers.start()
    except KeyboardInterrupt:
        return 0
    finally:
        workers.stop()


async def telephone(state: Path, workers: Workers, server: LoopbackRealtimeServer) -> LoopbackPhone:
    """A call by phone: a question, an interruption, a booking, a worker that is killed, and a key that agrees."""
    sentences = [(state / f"sentence{place}.pcm").read_bytes() for place in range(len(SENTENCES))]
    async with LoopbackPhone(f"ws://127.0.0.1:{workers.ports[0]}/phone", real_time=True) as phone:
        await phone.say(sentences[0])
        await phone.until(lambda: phone.buffered_ms > 0)
        await phone.until(lambda: phone.buffered_ms == 0)
        print(f"heard {len(phone.heard) // 8} ms about the menu", flush=True)
        await phone.say(sentences[2])
        await phone.until(lambda: phone.buffered_ms > 1000)
        await phone.say(sentences[3])
        await phone.until(lambda: phone.cleared_ms > 0)
        print(f"interrupted the story: {phone.cleared_ms} ms of it were never heard", flush=True)
        await phone.say(sentences[1])
        await server.until(
            lambda frame: frame.type == "response.output_item.done" and "book_table" in str(frame.body),
            direction="sent",
        )
        await phone.until(lambda: phone.buffered_ms == 0)
        workers.kill(workers.ports[0])
        phone.url = f"ws://127.0.0.1:{workers.ports[1]}/phone"
        await phone.until(lambda: phone.streams > 1)
        print("killed the worker; the carrier dialled again and the other one goes on", flush=True)
        while not any("table five" in words for _, words in server.said()):
            await phone.press("1")  # nothing happens while nothing waits
            await asyncio.sleep(0.5)
        await phone.until(lambda: phone.buffered_ms == 0)
        print("approved with a key; the table is booked", flush=True)
    return phone


def main() -> int:
    """Run a demo; its exit code."""
    parser = argparse.ArgumentParser(prog="./dev voice", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--phone", action="store_true", help="a telephone call instead of the page")
    parser.add_argument("--live", action="store_true", help="talk to the service (needs OPENAI_API_KEY)")
    asked = parser.parse_args()
    if asked.live and not os.environ.get("OPENAI_API_KEY"):
        raise SystemExit("--live needs OPENAI_API_KEY")
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        if asked.live:
            return talk(None, state)
        with LoopbackRealtimeServer(answer, voice=spoken, pace=0.5) as server:
            if not asked.phone:
                return talk(server, state)
            workers = Workers(state)
            prepare(server, state)
            workers.start()
            workers.wait()
            try:
                asyncio.run(telephone(state, workers, server))
            finally:
                workers.stop()
            for role, words in server.said():
                print(f"  {role}: {words}")
    return 0


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
