"""A strict type check of a program passes where it passes with the SDK, and finds the mistakes it finds there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1200)
"""Mypy reads all of the SDK, which takes minutes of processor time where its cache is cold."""

PROGRAMS = Path(__file__).with_name("typed")
LIBRARIES = ("agents", "standfast")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> str:
    """What mypy --strict says of the programs with both libraries.

    Asked once, for it reads all of the SDK; what it has read is kept for the next time.
    """
    folder = tmp_path_factory.mktemp("typed")
    files = []
    for library in LIBRARIES:
        for program in sorted(PROGRAMS.glob("*.py")):
            text = re.sub(r"^from agents\b", f"from {library}", program.read_text(encoding="utf-8"), flags=re.M)
            file = folder / f"{library}_{program.name}"
            file.write_text(text, encoding="utf-8")
            files.append(file.name)
    kept = pytestconfig.cache.mkdir("typed") if pytestconfig.cache is not None else folder
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--config-file=", f"--cache-dir={kept}"]
    command = [sys.executable, "-m", "mypy", *options, *files]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder).stdout


def complaints(said: str, program: str, library: str) -> list[int]:
    return sorted({int(line) for line in re.findall(rf"^{library}_{program}\.py:(\d+): error", said, re.M)})


@pytest.mark.parametrize("program", ["program", "parts", "stores", "subclasses"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_strict_program_passes_with_both(said: str, library: str, program: str):
    assert complaints(said, program, library) == [], said


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_mistakes_are_found_with_both(said: str, library: str):
    source = (PROGRAMS / "mistakes.py").read_text(encoding="utf-8").splitlines()
    expected = [number for number, line in enumerate(source, 1) if line.endswith("# mistake")]
    assert complaints(said, "mistakes", library) == expected, said
