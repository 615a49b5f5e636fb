"""The voice demo works for a stranger: a telephone call with an interruption, a killed worker and an approval."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packaging.utils import canonicalize_name
from run_blocks import HIDDEN
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from standfast.testing.loopback import call
from standfast.testing.realtime import LoopbackRealtimeServer
from tests.helpers.children import hear_ctrl_c

ROOT = Path(__file__).resolve().parents[3]
SUPERVISE = str(ROOT / "examples" / "voice" / "supervise.py")


def environment(**more: str) -> dict[str, str]:
    """What a stranger has: this library, and no key."""
    made = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    made["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), made.get("PYTHONPATH", "")])
    return {**made, **more}


def as_installed(folder: Path) -> dict[str, str]:
    """Return an environment whose Pythons import what `./dev voice` installs, and nothing else that is here."""
    pinned = (ROOT / "requirements" / "voice.txt").read_text(encoding="utf-8")
    there = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", pinned, flags=re.MULTILINE)}
    hidden = [
        module
        for module, names in metadata.packages_distributions().items()
        if module != "standfast" and not there & {canonicalize_name(name) for name in names}
    ]
    assert "openai" in hidden
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        f"sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from run_blocks import Visible\n"
        "sys.path.pop(0)\n"
        "sys.meta_path[sys.meta_path.index(PathFinder)] = Visible\n"
    )
    made = environment(**{HIDDEN: ",".join(hidden)})
    made["PYTHONPATH"] = os.pathsep.join([str(folder), made["PYTHONPATH"]])
    return made


def test_a_telephone_call_survives_the_death_of_its_worker(tmp_path: Path):
    """The demo with a telephone in place of a browser: `./dev voice --phone`, on a fresh machine, in real time."""
    ended = subprocess.run(
        [sys.executable, SUPERVISE, "--phone"], env=as_installed(tmp_path), capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert "  user: A table for two please." in lines
    assert any(line.startswith("  assistant: Here is what I have: table five") for line in lines)
    assert any(line.startswith("  assistant: This house was built") and "guest" not in line for line in lines)


async def test_with_a_key_the_same_page_talks_to_the_service():
    """`./dev voice --live`, with the loopback server in the place of the service. Other pages cannot call it."""
    answers = [call("menu"), "We have mussels."]
    async with asyncio.timeout(240), LoopbackRealtimeServer(answers) as server:
        base = f"http://{urlsplit(server.url).netloc}/v1"
        demo = await asyncio.create_subprocess_exec(
            sys.executable,
            SUPERVISE,
            "--live",
            env=environment(OPENAI_API_KEY="sk-live", OPENAI_BASE_URL=base),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=hear_ctrl_c,
        )
        try:
            assert demo.stdout is not None
            line = (await demo.stdout.readline()).decode()
            address = line.split()[1]
            place = urlsplit(address)
            own = Origin(f"http://{place.netloc}")
            for path, origin in (("call", "http://evil.example"), ("call", None), ("call", "null"), ("phone", own)):
                with pytest.raises(InvalidStatus, match="403"):
                    await connect(f"ws://{place.netloc}/{path}?run_id=evil", origin=origin and Origin(origin))
            async with connect(f"ws://{place.netloc}/call?run_id=live-1", origin=own) as page:
                await page.send(json.dumps({"type": "text", "text": "What is on the menu?"}))
                shown: list[Any] = []
                while not any("mussels" in one["heard"] for one in shown if one["role"] == "assistant"):
                    told = json.loads(await page.recv())
                    shown = told["items"] if told["type"] == "history" else shown
            assert [one["role"] for one in shown] == ["user", "tool", "assistant"]
        finally:
            demo.send_signal(signal.SIGINT)
            assert await demo.wait() == 0


def test_without_a_key_it_says_what_is_missing():
    ended = subprocess.run(
        [sys.executable, SUPERVISE, "--live"], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "OPENAI_API_KEY" in ended.stderr
