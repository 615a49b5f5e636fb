"""Pages that are files, cells of a notebook or tasks of a queue: run as their readers run them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import paid_once
from jupyter_client.manager import start_new_kernel

from standfast import open_store
from tests.helpers.children import import_path
from tests.helpers.processes import wait_until
from tests.helpers.servers import RedisServer

HOW_TO = Path(__file__).resolve().parent.parent / "docs" / "how-to"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
ENVIRONMENT["PYTHONPATH"] = import_path()


def fenced(page: str, language: str) -> list[str]:
    """The blocks of a page in one language."""
    return [text for name, text in FENCED.findall((HOW_TO / page).read_text(encoding="utf-8")) if name == language]


# --- files: tests of an agent in CI ----------------------------------------------------------------------------------


def run_workflow(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands of the page's workflow, but for the installation."""
    (workflow,) = fenced("test-agents-in-ci.md", "yaml")
    commands = re.findall(r"- run: python (.*)", workflow)
    assert commands == ["-m pip install standfast pytest", "-m pytest"]
    environment = {**ENVIRONMENT, "OPENAI_API_KEY": ""}
    command = [sys.executable, *commands[1].split(), "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_tests_of_the_page_about_ci_pass_and_notice_an_unsafe_change(tmp_path: Path) -> None:
    for text in fenced("test-agents-in-ci.md", "python"):
        name = text.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert {file.name for file in tmp_path.iterdir()} == {"clerk.py", "test_clerk.py"}
    ended = run_workflow(tmp_path)
    assert (ended.returncode, "5 passed" in ended.stdout) == (0, True), ended.stdout + ended.stderr
    clerk = tmp_path / "clerk.py"
    clerk.write_text(clerk.read_text().replace("@function_tool(needs_approval=True)", "@function_tool"))
    ended = run_workflow(tmp_path)
    assert (ended.returncode, "test_nothing_is_paid_without_a_person" in ended.stdout) == (1, True), ended.stdout


# --- the shop of the README ------------------------------------------------------------------------------------------


def test_the_shop_pays_twice_on_the_sdk_and_once_here() -> None:
    twice, told = paid_once.payments_with(paid_once.THEIRS)
    assert (twice, told) == (["120 to ACME"] * 2, "The tool said: paid 120 to ACME")
    once, told = paid_once.payments_with(paid_once.OURS)
    assert (once, told.partition(":")[0]) == (["120 to ACME"], "standfast.RunClaimedError")


# --- cells of a notebook ---------------------------------------------------------------------------------------------


def test_the_cells_of_the_page_about_notebooks_run_in_a_kernel(tmp_path: Path) -> None:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path), env=ENVIRONMENT)
    shown: list[str] = []

    def keep(message: dict[str, object]) -> None:
        content = message["content"]
        assert isinstance(content, dict)
        shown.append(str(content.get("data", {}).get("text/plain") or content.get("text") or ""))

    try:
        for cell in fenced("use-in-jupyter.md", "python"):
            reply = client.execute_interactive(cell, timeout=120, output_hook=keep)
            assert reply["content"]["status"] == "ok", f"{cell}\n{reply['content']}"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    told = "\n".join(shown)
    (page,) = (text for text in fenced("use-in-jupyter.md", "") if text.startswith("<RunResult"))
    wanted = re.escape(page.strip()).replace("40d2…", ".+")
    assert re.search(wanted, told), f"{told}\n{wanted}"
    assert "You have a table." in told
    assert "For two." in told.replace("\n", "")  # in deltas


# --- tasks of a queue ------------------------------------------------------------------------------------------------

CLERK = """
import os, time
from pathlib import Path
from standfast import Agent, RunConfig, function_tool
from standfast.testing import AnsweringModel, assistant_message, function_call

HERE = Path(__file__).parent

@function_tool
def note(words: str) -> str:
    "Write a note."
    with open(HERE / "notes", "a") as notes:
        notes.write(words)
    return "written"

def answer(call):
    outputs = [item for item in call.input if item.get("type") == "function_call_output"]
    if not outputs:
        return [function_call("note", {"words": "N"}, call_id="call-1")]
    (HERE / "asked").touch()
    while (HERE / "hang").exists():
        time.sleep(0.05)
    return [assistant_message("Noted.")]

clerk = Agent(name="Clerk", tools=[note], model=AnsweringModel(answer))
"""


class Celery:
    """The recipe of the page as `tasks.py`, with the URLs of a test, and processes of its worker."""

    def __init__(self, folder: Path, broker: str) -> None:
        (recipe,) = (text for text in fenced("run-agents-from-a-queue.md", "python") if "import Celery" in text)
        store = folder / "talks.db"
        for there, here in (("redis://localhost/0", broker), ("postgresql://app@db.example/app", str(store))):
            assert recipe.count(there) == 1
            recipe = recipe.replace(there, here)
        (folder / "tasks.py").write_text(CLERK + recipe, encoding="utf-8")
        self.folder, self.store = folder, store
        self._environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(folder), import_path()])}

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "celery",
            "--app",
            "tasks",
            "worker",
            "--concurrency",
            "1",
            "--loglevel",
            "INFO",
        ]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def call(self, line: str) -> str:
        program = f"import asyncio, json, tasks\n{line}"
        ended = subprocess.run(
            [sys.executable, "-c", program], cwd=self.folder, env=self._environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    async def status(self, run_id: str) -> str:
        async with open_store(self.store, read_only=True) as store:
            return (await store.run(run_id)).status


def killed(worker: subprocess.Popen[bytes]) -> None:
    """Kill the worker with the processes that it has forked."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


async def test_the_celery_recipe_survives_a_killed_worker_and_a_forgetful_broker(tmp_path: Path) -> None:
    server = RedisServer()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        celery = Celery(tmp_path, server.url)
        (tmp_path / "hang").touch()
        celery.call("asyncio.run(tasks.put('message-1', 'Note N.', 'guest'))")
        workers.append(celery.start())
        wait_until((tmp_path / "asked").exists)
        killed(workers[-1])  # in the second request, after the tool has run
        (tmp_path / "hang").unlink()
        assert await celery.status("message-1") == "running"
        workers.append(celery.start())
        # the broker still counts the message as the dead worker's; the periodic task goes on with the run
        celery.call("tasks.tend.delay()")
        deadline = time.monotonic() + 60
        while await celery.status("message-1") != "done":
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
            celery.call("tasks.tend.delay()")
        assert (tmp_path / "notes").read_text() == "N"
        # delivered once more: its result, once more
        celery.call("asyncio.run(tasks.put('message-1', 'Note N.', 'guest'))")
        celery.call("asyncio.run(tasks.put('message-2', 'Note N.', 'guest'))")
        end = (
            "print(json.dumps(asyncio.run(tasks.jobs.perform(tasks.RunJob('message-1', 'Clerk', 'guest'))).as_json()))"
        )
        assert json.loads(celery.call(end))["status"] == "done"
        assert (tmp_path / "notes").read_text() == "N"
    finally:
        for worker in workers:
            killed(worker)
        server.stop()
