"""`import agents` gives standfast: in this process, in a child, for a whole program, and for its tests."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from standfast._src.exports.sdk_alias import SDK_VERSION
from tests.helpers.children import import_path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def child(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": import_path(), **environment},
    )


def printed(code: str, *words: str, **environment: str) -> list[str]:
    ended = child(*words, "-c", textwrap.dedent(code), **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_what_agents_gives_is_what_standfast_gives() -> None:
    """The same module objects: `isinstance` holds, and a module keeps its own name, spec and loader."""
    assert printed(
        """
        import standfast
        standfast.install_as_agents()
        standfast.install_as_agents()
        import agents, agents.run, agents.tracing.span_data as spans, importlib, importlib.util, sys
        from agents.extensions.memory import SQLAlchemySession
        from agents import Agent, Runner, tracing
        assert agents is standfast and agents.run is standfast.run and sys.modules["agents.run"] is standfast.run
        assert spans is importlib.import_module("standfast.tracing.span_data")
        assert isinstance(standfast.Agent(name="a"), Agent) and agents.run.Runner is standfast.Runner
        assert standfast.__spec__.name == standfast.__name__ == "standfast", standfast.__spec__
        assert agents.run.__spec__.loader is agents.run.__loader__
        assert importlib.reload(agents.run) is standfast.run
        print(importlib.util.find_spec("agents.tool").origin == standfast.tool.__file__)
        print(sum(type(finder).__name__ == "_Alias" for finder in sys.meta_path))
        """
    ) == ["True", "1"]


def test_what_is_not_there_says_why_under_the_name_that_was_imported() -> None:
    shown = printed(
        """
        import standfast
        standfast.install_as_agents()
        for line in ("import agents.sandbox", "from agents import ShellTool", "import agents.no_such",
                     "import agents.run_internal.loop", "from agents import no_such"):
            try:
                exec(line)
            except ImportError as error:
                print(type(error).__name__, error.name, str(error).splitlines()[0])
        """
    )
    assert shown[0].startswith("ModuleNotFoundError agents.sandbox standfast has no sandbox, so there is no agents.sa")
    assert shown[1].startswith("ImportError standfast standfast has no shell tools, so there is no ShellTool.")
    assert shown[2] == "ModuleNotFoundError agents.no_such No module named 'agents.no_such'"
    assert shown[3] == "ModuleNotFoundError agents.run_internal No module named 'agents.run_internal'"
    assert shown[4].startswith("ImportError standfast cannot import name 'no_such' from 'standfast'")


def test_it_is_refused_once_the_sdk_is_imported() -> None:
    shown = printed(
        """
        import agents, standfast
        try:
            standfast.install_as_agents()
        except standfast.CallerError as error:
            print(error)
        assert agents.Agent is not standfast.Agent
        """
    )
    assert "already imported, from" in shown[0]
    assert "before anything imports" in shown[0]


def test_the_distribution_is_what_is_installed_unless_it_is_asked_for() -> None:
    code = """
        import importlib.metadata as metadata, standfast
        def seen():
            try:
                return metadata.version("openai_agents")
            except metadata.PackageNotFoundError:
                return None
        installed = seen()
        standfast.install_as_agents()
        assert seen() == installed
        standfast.install_as_agents(distribution=True)
        ours = metadata.distribution("OpenAI-Agents")
        assert ours.metadata["Name"] == "openai-agents" and ours.requires is None and ours.entry_points == ()
        assert "openai-agents" in metadata.packages_distributions()["agents"]
        print(seen())
        """
    assert printed(code) == [SDK_VERSION]


def test_it_works_where_the_sdk_is_not_installed(tmp_path: Path) -> None:
    """An environment like this one without the SDK: links to every other package."""
    for place in site.getsitepackages():
        for entry in Path(place).iterdir():
            if not entry.name.startswith(("agents", "openai_agents", "openai-agents")) and entry.suffix != ".pth":
                (tmp_path / entry.name).symlink_to(entry)
    code = """
        import importlib.metadata as metadata, importlib.util
        assert importlib.util.find_spec("agents") is None
        import standfast
        standfast.install_as_agents(distribution={distribution})
        from agents import Agent, Runner
        from agents.testing import ScriptedModel, assistant_message
        try:
            print(metadata.version("openai-agents"))
        except metadata.PackageNotFoundError:
            print("none")
        print(Runner.run_sync(Agent(name="a", model=ScriptedModel([[assistant_message("hi")]])), "q").final_output)
        """
    path = os.pathsep.join([str(SOURCE), str(tmp_path)])
    assert printed(code.format(distribution=False), "-S", PYTHONPATH=path) == ["none", "hi"]
    assert printed(code.format(distribution=True), "-S", PYTHONPATH=path) == [SDK_VERSION, "hi"]


def test_the_version_is_the_one_whose_names_are_kept() -> None:
    """`tests/compat/test_names.py` asks for every name of the SDK that is installed here."""
    from importlib.metadata import version

    assert version("openai-agents") == SDK_VERSION


# --- whole programs --------------------------------------------------------------------------------------------------

PROGRAM = """
import multiprocessing, sys
import agents

def where() -> str:
    import agents
    return agents.Agent.__module__.partition(".")[0]

def tell(queue):
    queue.put(where())

if __name__ == "__main__":
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    process = multiprocessing.get_context("spawn").Process(target=tell, args=(queue,))
    process.start()
    print(where(), queue.get(), *sys.argv[1:], __file__.endswith("app.py"))
    process.join()
    from importlib.metadata import version
    print(version("openai-agents"))
    sys.exit(7)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "app.py"
    file.write_text(PROGRAM)
    return file


def test_an_unchanged_program_runs_on_standfast_with_its_child_processes(app: Path) -> None:
    for words in (["app.py"], ["-m", "app"]):
        ended = child("-m", "standfast", "as-agents", *words, "--json", "-h", "--", "x", cwd=app.parent)
        assert (ended.returncode, ended.stderr) == (7, "")
        assert ended.stdout.splitlines()[0] == "standfast standfast --json -h -- x True"
    ended = child("app.py", cwd=app.parent)
    assert ended.stdout.splitlines()[0] == "agents agents True"


def test_the_program_of_as_agents_fails_as_it_would_alone(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import agents\nagents.no_such\n")
    ended = child("-m", "standfast", "as-agents", "--distribution", "broken.py", cwd=tmp_path)
    assert ended.returncode == 1
    first = next(line for line in ended.stderr.splitlines() if "File" in line)
    assert first.endswith('broken.py", line 2, in <module>')
    assert "_kits" not in ended.stderr
    assert child("-m", "standfast", "as-agents").returncode == 2
    assert "no program to run" in child("-m", "standfast", "as-agents", "-m").stderr


def test_a_sitecustomize_of_the_environment_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['ITS_OWN'] = 'ran'\n")
    path = os.pathsep.join([str(tmp_path), import_path()])
    code = "import os, agents; print(agents.__name__, os.environ['ITS_OWN'])"
    ended = child("-m", "standfast", "as-agents", "-c", code, PYTHONPATH=path)
    assert (ended.stdout, ended.stderr) == ("standfast ran\n", "")


def test_tests_of_a_program_run_on_standfast_with_an_option(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import agents\nHERE = agents.__name__\n")
    (tmp_path / "test_it.py").write_text(
        "import agents, conftest\ndef test_it():\n    assert (agents.__name__, conftest.HERE) == ('standfast',) * 2\n"
    )
    pytest_words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:llmock", "-p", "no:valkey"]
    for more in ([], ["-n", "1"]):
        ended = child(*pytest_words, *more, "--as-agents", cwd=tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert child(*pytest_words, cwd=tmp_path).returncode == 1
    (tmp_path / "early.py").write_text("import agents\n")
    ended = child(*pytest_words, "-p", "early", "--as-agents", cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{import_path()}")
    assert ended.returncode == 4
    assert "--as-agents: the package `agents` is already imported" in ended.stderr
