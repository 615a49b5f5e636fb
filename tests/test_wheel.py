"""What is installed is whole: the wheel that is built holds everything, and the README runs with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inspector.serving import Served

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 300


def run(command: list[str], folder: Path, **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment |= more
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    (wheel,) = folder.glob("standfast-*.whl")
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-index", "--no-deps"]
    run([*pip, "--target", str(target), str(wheel)], folder)
    return target


def test_a_wheel_has_every_module_and_the_inspectors_page(installed: Path) -> None:
    def files(folder: Path) -> set[str]:
        found = (str(path.relative_to(folder)) for path in (folder / "standfast").rglob("*") if path.is_file())
        return {name for name in found if "__pycache__" not in name}

    assert files(installed) == files(ROOT / "src")
    assert (installed / "standfast" / "_kits" / "inspector" / "page" / "index.html").exists()


def test_the_readme_and_the_command_run_with_what_was_installed(installed: Path, tmp_path: Path) -> None:
    beside = {"PYTHONPATH": str(installed)}
    where = run([sys.executable, "-c", "import standfast; print(standfast.__file__)"], tmp_path, **beside)
    assert Path(where.strip()).is_relative_to(installed), "the checkout is imported, not what was installed"
    blocks = ROOT / "tests" / "run_blocks.py"
    for _ in range(2):  # a reader runs it twice
        run([sys.executable, str(blocks), str(ROOT / "README.md")], tmp_path, **beside)
    shown = run([sys.executable, "-m", "standfast", "sessions", "ls", "conversations.db"], tmp_path, **beside)
    assert shown.startswith("guest-42\t8\t")


def test_a_newcomer_chats_is_cut_off_approves_in_the_browsers_way_and_goes_on(installed: Path, tmp_path: Path) -> None:
    """The README's path, with what was installed: a question is left open, decided over HTTP, and paid once."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    kept |= {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "standfast"]

    def chat(said: str, *options: str) -> str:
        ended = subprocess.run(
            [*command, "chat", "--demo", *options], cwd=tmp_path, env=kept, input=said, capture_output=True, text=True,
            timeout=DEADLINE_S, check=True,
        )  # fmt: skip
        return ended.stdout

    assert "needs your approval" in chat("pay 120 to ACME\n")
    serving = subprocess.Popen(
        [*command, "inspect", "chats.db", "--write", "--port", "0"],
        cwd=tmp_path,
        env=kept,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        served = Served(serving.stdout.readline().strip())
        (waiting,) = served.ask("/api/sessions?waiting=1").json()["sessions"]
        (call,) = waiting["waiting"]
        shown = {"run": call["run"], "call": call["call"], "arguments": call["arguments"]}
        assert served.post("/api/decide", {**shown, "approve": True}).json()["status"] == "ready"
    finally:
        serving.kill()
        serving.wait()
        if serving.stdout is not None:
            serving.stdout.close()
    assert "paid 120 to ACME" in chat("", "--continue")
    told = chat("what did I say?\n", "--continue")
    assert 'You said: "pay 120 to ACME".' in told
    assert "paid" not in told, "it was paid again"
