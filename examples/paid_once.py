"""A payment is made twice on the OpenAI Agents SDK, and once here after one import is changed: `examples/shop/shop.py`.

The shop's worker is killed right after it has paid, before the provider has answered. The web hook that brought the
approval is sent again, as web hooks are. A loopback provider stands in for OpenAI; everything else is real. The SDK's
half needs `pip install openai-agents`, and is left out where that is missing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from standfast.testing.loopback import Asked, Gate, LoopbackServer, call

SHOP = Path(__file__).parent / "shop" / "shop.py"
THEIRS, OURS = "from agents import", "from standfast import"


def provider_says(asked: Asked) -> object:
    """Answer as a model does that wants to pay, and then tells what came of it."""
    if asked.outputs:
        return f"The tool said: {', '.join(asked.outputs.values())}"
    return call("pay", {"amount": 120, "to": "ACME"})


def payments_with(import_line: str) -> tuple[list[str], str]:
    """Return the payments that the shop has made with this import, and what the second web hook was told."""
    program = SHOP.read_text(encoding="utf-8")
    assert program.count(THEIRS) == 1
    with tempfile.TemporaryDirectory() as name, LoopbackServer(provider_says) as provider:
        folder = Path(name)
        (folder / "shop.py").write_text(program.replace(THEIRS, import_line), encoding="utf-8")
        environment = {**os.environ, "OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "none"}
        environment |= {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
        command = [sys.executable, "shop.py"]
        subprocess.run([*command, "ask"], cwd=folder, env=environment, check=True, capture_output=True)

        gate = Gate()  # the provider takes its time, and the worker is killed meanwhile
        provider.fault(gate)
        worker = subprocess.Popen([*command, "approve"], cwd=folder, env=environment)
        while len(provider.requests) < 2:
            time.sleep(0.01)
        worker.kill()  # kill -9
        worker.wait()
        gate.release()

        again = subprocess.run([*command, "approve"], cwd=folder, env=environment, capture_output=True, text=True)
        told = (again.stdout or again.stderr).strip().splitlines()[-1]
        return (folder / "payments.txt").read_text(encoding="utf-8").splitlines(), told


def show(import_line: str) -> int:
    """Do it with this import; return the number of payments."""
    paid, told = payments_with(import_line)
    times = {1: "once", 2: "twice"}.get(len(paid), f"{len(paid)} times")
    print(f"{import_line} …: paid {times}. The second web hook was told: {told}")
    return len(paid)


def main() -> None:
    """Show both halves."""
    if importlib.util.find_spec("agents") is None:
        print(f"{THEIRS} …: not shown, for it is not installed here (pip install openai-agents)")
    else:
        show(THEIRS)
    assert show(OURS) == 1


if __name__ == "__main__":
    main()
