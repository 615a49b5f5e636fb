"""The house itself: `./dev` works for a stranger, pins are hashed, and no file knows the machine it was written on."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import DEADLINE_S, PRELOADED, born, ended, pipe

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"


def dev(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "dev"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def files() -> list[Path]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        # Caches, environments and what was built are not ours; of what begins with a dot only CI's files are.
        folders[:] = [
            name for name in folders if name in (".ci", ".github") or not name.startswith((".", "__pycache__"))
        ]
        if Path(folder) == ROOT:
            folders[:] = [name for name in folders if name not in ("build", "dist")]
        found += [Path(folder) / name for name in names if name != ".git" and not name.startswith(".dev")]
    return found


def pins(name: str) -> dict[str, str]:
    """Each requirement of a compiled file with its pinned version; the hashes are counted apart."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.!+-]+)", text, flags=re.MULTILINE))


def tool(name: str) -> Any:
    """Import a script of tools/, which is no package."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_dev_alone_lists_its_commands():
    ended = dev(PYTHON=sys.executable)
    assert ended.returncode == 0
    assert {"demo", "test", "lint", "bench", "sim"} <= {line.split()[0] for line in ended.stdout.splitlines() if line}


def test_dev_refuses_a_command_it_does_not_know():
    ended = dev("tset", PYTHON=sys.executable)
    assert ended.returncode == 2
    assert "'tset'" in ended.stderr


def test_dev_says_what_is_missing_where_there_is_no_python(tmp_path: Path):
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    ended = dev(PATH=str(tmp_path), PYTHON="")
    assert ended.returncode == 1
    assert "no Python of 3.11 or newer" in ended.stderr


def test_dev_passes_over_a_python_that_is_too_old(tmp_path: Path):
    """The first `python3` on PATH may be an old one, with a newer one beside it."""
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    old, new = tmp_path / "python3", tmp_path / "python3.12"
    old.write_text("#!/bin/sh\nexit 1\n")
    new.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    old.chmod(0o755)
    new.chmod(0o755)
    ended = dev(PATH=str(tmp_path), PYTHON="")
    assert ended.returncode == 0, ended.stderr
    assert "usage: ./dev" in ended.stdout


def test_dev_says_which_python_it_did_not_find_before_it_does_anything():
    ended = dev("test", "--python", "9.9")
    assert ended.returncode == 1
    assert "no working Python 9.9" in ended.stderr


def test_a_python_that_is_on_path_and_does_not_run_is_passed_over(tmp_path: Path):
    """As pyenv's shims: they are there for versions that are not switched on, and complain."""
    commands = tool("dev")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    shim = tmp_path / f"python{version}"
    shim.write_text("#!/bin/sh\necho command not found >&2\nexit 127\n")
    shim.chmod(0o755)
    found = commands.find_python(version, path=str(tmp_path))
    assert found is not None
    assert found != str(shim)
    assert commands.find_python("9.9", path=str(tmp_path)) is None
    assert commands.pythons_named(("-x", "--python", "3.11", "--python=3.13")) == (["3.11", "3.13"], ["-x"])


def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path):
    """The time limit of `pyproject.toml`, in a worker of xdist as everything is run."""
    (tmp_path / "test_hang.py").write_text(
        "import threading\ndef test_hangs(): threading.Event().wait()\ndef test_ends(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", str(ROOT / "pyproject.toml"), "--timeout=1"]
    command += ["--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path / "test_hang.py")]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "Timeout" in ended.stdout
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert any(option.startswith("--timeout=") for option in options["addopts"])


def test_continuous_integration_runs_what_people_run():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "./dev test" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "dev", os.X_OK)


@pytest.mark.parametrize("name", ["run", "voice", "dev", "other", "docs", "dynamodb", "local", "weights"])
def test_every_requirement_is_pinned_and_hashed(name: str):
    entries = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    loose = [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry]
    assert entries
    assert not loose


def test_an_installation_gives_signs_of_life_and_says_which_step_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    commands = tool("dev")
    monkeypatch.setattr(commands, "SIGN_OF_LIFE_S", -1)  # every line is late enough to be reported
    pinned = tmp_path / "few.txt"
    pinned.write_text("one==1 \\\n    --hash=sha256:00\ntwo==2 \\\n    --hash=sha256:00\n")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Collecting one\necho Collecting two\necho Installing collected packages: one\n")
    python.chmod(0o755)
    commands.install(python, pinned)
    said = capsys.readouterr().err
    assert "installing requirements/few.txt, up to 2 packages (once)" in said
    assert "1 of 2 packages after" in said
    assert "unpacking" in said
    python.write_text("#!/bin/sh\necho Collecting one\necho ERROR: no network\nexit 3\n")
    with pytest.raises(SystemExit) as ended:
        commands.install(python, pinned)
    assert ended.value.code == 3
    said = capsys.readouterr().err
    assert "ERROR: no network" in said
    assert "this step failed with exit code 3" in said


def test_every_tool_that_installs_does_it_with_signs_of_life():
    """Hundreds of megabytes in silence look like a program that hangs."""
    silent = [path.name for path in sorted((ROOT / "tools").glob("*.py")) if '"--require-hashes"' in path.read_text()]
    assert silent == ["dev.py"], "call install() of tools/dev.py"


def test_a_demo_installs_nothing_if_a_level_that_contains_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commands = tool("dev")
    monkeypatch.setattr(commands, "VENV", tmp_path)
    (tmp_path / ".standfast-voice").write_text(commands.fingerprint("voice"))
    installed: list[Path] = []

    def refuse(python: Path, pinned: Path, *options: str) -> None:
        installed.append(pinned)
        raise SystemExit(1)

    monkeypatch.setattr(commands, "install", refuse)
    monkeypatch.setattr(commands, "runs", lambda executable: True)
    monkeypatch.setattr(commands, "PYTHON", Path(sys.executable))
    commands.need("run")
    commands.need("voice")
    assert not installed
    with pytest.raises(SystemExit):
        commands.need("dev")
    assert [path.name for path in installed] == ["dev.txt"]


def test_the_demos_install_the_versions_that_the_tests_use_and_fewer_of_them():
    assert pins("run.txt").items() < pins("voice.txt").items() < pins("dev.txt").items()
    assert len(pins("voice.txt")) < len(pins("dev.txt")) / 4


def test_what_the_package_needs_is_what_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=\[ ]", entry)[0] for entry in project["dependencies"]}
    assert wanted <= pins("run.txt").keys()
    extras = [entry for extra in project["optional-dependencies"].values() for entry in extra]
    # What other providers and llama.cpp bring has environments of its own.
    pinned = pins("dev.txt") | pins("other.txt") | pins("local.txt")
    assert {re.split(r"[<>=\[ ]", entry)[0] for entry in extras} - {"standfast"} <= pinned.keys()


def test_no_file_names_a_package_registry_or_a_path_of_a_machine():
    """Where packages come from is the machine's business, and a path of ours is nobody else's."""
    registry = re.compile(r"https?://[a-z.]*(?:py" + r"pi|python" + r"hosted|npm" + r"js)[a-z.]*/")
    machine = re.compile(r"(?:^|[^\w.])/(?:wo" + r"rk|ro" + r"ot|farm)/")
    guilty = []
    for file in files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if registry.search(text) or machine.search(text):
            guilty.append(str(file.relative_to(ROOT)))
    assert not guilty


def test_the_first_name_of_the_package_stands_nowhere():
    """Another project owns that name: a reader who installs it by a page of ours gets something else."""
    assert [str(file) for file in files() if b"hold" + b"fast" in file.read_bytes().lower()] == []


LOOKS_INSIDE = {
    "tests/realtime/session/helpers.py": "a call shows what was said, and not what of it is stored or still open",
    "tests/realtime/session/test_memory.py": "the record refuses only a worker that has not noticed its lost lease",
    "tests/models/providers/test_event_stream.py": "what instrumentations change of OpenAI's client is private there",
    "tests/conformance/mistakes/steps.py": "what an edition of a name is, only the store itself can get wrong",
}
"""The tests that use a private name of ours, and why there is no public way. (Each says so at the place, too.)"""

PRIVATES_OF_OTHERS = {
    "_exit": "the end of a forked child",
    "_src": "the folder of the library",
    "_kits": "the folder of what comes with it",
    "_replace": "named tuples have no public name for it",
    "_log_destroy_pending": "asyncio's tasks",
    "_actions": "argparse",
    "_SubParsersAction": "argparse",
    "_build_prefixed_tool_name_overrides": "the OpenAI Agents SDK, compared with",
    "_HEADERS_OVERRIDE": "the OpenAI Agents SDK, whose name packages import",
    "_event_queue": "the OpenAI Agents SDK, into which test doubles of results put their events",
    "_multi_processor": "the OpenAI Agents SDK, whose name tracers reach for",
    "_processors": "the OpenAI Agents SDK, whose name tracers reach for",
    "_default_openai_key": "the OpenAI Agents SDK, which has no way to take it back",
    "_get_connection": "the OpenAI Agents SDK, broken on purpose",
    "_get_prefix_and_model_name": "the OpenAI Agents SDK, compared with",
    "_openai_shared": "the OpenAI Agents SDK",
    "_sqlite3": "the standard library, whose C library a test calls",
}


def privates_in(source: str) -> set[str]:
    """Every private name that a text uses of something else: reached for, imported, or named to `setattr`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found |= {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].endswith("attr"):
            named = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            found |= {name.rpartition(".")[2] for name in named if isinstance(name, str)}
    return {name for name in found if re.match(r"_(?!_.*__$)", name)} - PRIVATES_OF_OTHERS.keys()


def test_tests_go_through_public_ways():
    """One that reaches into privates breaks on every good change, and may not notice that what it sets is gone."""
    files_of_tests = [*(ROOT / "tests").rglob("*.py")]
    found = {
        file.relative_to(ROOT).as_posix(): privates
        for file in files_of_tests
        if (privates := privates_in(file.read_text(encoding="utf-8")))
    }
    assert found.keys() == LOOKS_INSIDE.keys(), found


def test_a_private_name_would_be_noticed_however_it_is_reached():
    ways = ["session._run", "super()._run()", "from a import _run", "patch.setattr(a, '_run', 1)", "getattr(a, '_run')"]
    assert [privates_in(way) for way in ways] == [{"_run"}] * len(ways)
    assert privates_in("self._run; cls._run; a.__class__; os._exit(0); setattr(a, 'run', '_run')") == set()


def tell_what_is_imported(line: Connection) -> None:
    line.send(sorted(sys.modules))


def test_a_child_is_born_with_everything_imported() -> None:
    """A module that the fork server cannot import is passed over in silence, and then imported by every child."""
    here, there = pipe()
    child = born(tell_what_is_imported, there)
    there.close()
    assert here.poll(DEADLINE_S)
    assert set(PRELOADED) <= set(here.recv())
    here.close()
    assert not ended(child)


def test_every_path_of_tests_that_the_command_names_exists() -> None:
    """A folder that moved would end `./dev websockets` without a test, and CI with it."""
    text = (ROOT / "tools" / "dev.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"(tests/[\w./]+)', text))
    assert "tests/realtime/transports" in named
    assert not [path for path in named if not (ROOT / path).exists()]
