"""The house itself: `./dev` works for a stranger, pins are hashed, and no file knows the machine it was written on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
        # Caches and environments are not ours; of what begins with a dot only the CI script is.
        folders[:] = [name for name in folders if name == ".ci" or not name.startswith((".", "__pycache__"))]
        found += [Path(folder) / name for name in names if name != ".git" and not name.startswith(".dev")]
    return found


def pins(name: str) -> dict[str, str]:
    """Each requirement of a compiled file with its pinned version; the hashes are counted apart."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.!+-]+)", text, flags=re.MULTILINE))


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


def test_continuous_integration_runs_what_people_run():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "./dev test" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "dev", os.X_OK)


@pytest.mark.parametrize("name", ["run", "dev"])
def test_every_requirement_is_pinned_and_hashed(name: str):
    entries = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    loose = [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry]
    assert entries
    assert not loose


def test_the_demo_installs_the_versions_that_the_tests_use():
    assert pins("run.txt").items() <= pins("dev.txt").items()


def test_what_the_package_needs_is_what_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=\[ ]", entry)[0] for entry in project["dependencies"]}
    assert wanted <= pins("run.txt").keys()
    extras = [entry for extra in project["optional-dependencies"].values() for entry in extra]
    assert {re.split(r"[<>=\[ ]", entry)[0] for entry in extras} - {"standfast"} <= pins("dev.txt").keys()


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
