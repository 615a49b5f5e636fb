"""Run the OpenAI Agents SDK's own tests on standfast, and report which share of its public behaviour is the same.

    python tools/sdk_tests.py                    # every group
    python tools/sdk_tests.py realtime           # one group
    python tools/sdk_tests.py --list sessions    # why tests are left out, and which failed

The tests are those of the source archive named in requirements/sdk-archive.txt. They run as they are, under
`pytest --as-agents`, in an environment without the SDK. A test that uses private names, or patches the SDK's modules,
is not about public behaviour: `sdk_tests_reading.py` decides that from its source. Of the others `sdk_tests.toml` names
those that do not apply, each with a row of the guide to moving, and how many have to pass. Exit code 1: fewer did.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import xml.etree.ElementTree as Xml
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev import ROOT, checked, install, say

PLACE = ROOT / ".venv-sdk-tests"
PYTHON = PLACE / "bin" / "python"
ARCHIVE, COPY = PLACE / "archive", PLACE / "copy"
TABLE = ROOT / "tools" / "sdk_tests.toml"
GUIDE = ROOT / "docs" / "how-to" / "move-from-openai-agents.md"
FILE_TIME_LIMIT_S = 900


def prepare() -> None:
    """Make the environment, unless it is there for these pins, and a new copy of the tests."""
    pins = [ROOT / "requirements" / name for name in ("sdk-tests.txt", "sdk-archive.txt")]
    stamp = PLACE / hashlib.sha256(b"".join([sys.version.encode(), *(one.read_bytes() for one in pins)])).hexdigest()
    if not stamp.exists():
        make_environment(pins)
        stamp.touch()
    checked([str(PYTHON), str(ROOT / "tools" / "sdk_tests_copy.py"), str(ARCHIVE), str(COPY)])


def make_environment(pins: list[Path]) -> None:
    """Install what the tests use, and standfast, and unpack the source archive."""
    shutil.rmtree(PLACE, ignore_errors=True)
    checked([sys.executable, "-m", "venv", str(PLACE)])
    install(PYTHON, pins[0])
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    ours = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    checked([*pip, *ours])
    loading = ["download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    checked([*pip, *loading, "--dest", str(PLACE), "-r", str(pins[1])])
    with tarfile.open(next(PLACE.glob("openai_agents-*.tar.gz"))) as archive:
        archive.extractall(PLACE, filter="data")
    next(PLACE.glob("openai_agents-*/")).rename(ARCHIVE)


def files_of(group: dict[str, list[str]]) -> list[str]:
    """Return the test files of a group, in order."""
    found: set[Path] = set()
    for pattern in group["files"]:
        found.update(COPY.glob(pattern))
    for pattern in group.get("without", []):
        found.difference_update(COPY.glob(pattern))
    return sorted(file.relative_to(COPY).as_posix() for file in found)


def run_file(file: str) -> dict[str, str]:
    """Run a test file in a process of its own; the outcome of each of its tests, by name."""
    report = COPY / "reports" / f"{file.replace('/', '.')}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    options = ["-q", "--as-agents", "--timeout=60", "--tb=line", "-p", "no:cacheprovider", f"--junitxml={report}"]
    try:
        subprocess.run(
            [str(PYTHON), "-m", "pytest", *options, file], cwd=COPY, capture_output=True, timeout=FILE_TIME_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        say(f"{file} did not end within {FILE_TIME_LIMIT_S} s")
    outcomes: dict[str, str] = {}
    module = file.removesuffix(".py").replace("/", ".")
    for case in Xml.parse(report).iter("testcase") if report.exists() else ():
        within = case.get("classname", "").removeprefix(module).strip(".")
        name = "::".join(part for part in (file, *within.split("."), case.get("name", "")) if part)
        kinds = {child.tag for child in case}
        bad = kinds & {"failure", "error"}
        outcomes[name] = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
    return outcomes


def reasons_of(files: list[str]) -> dict[str, list[str]]:
    """Return for each test function why it is not about public behaviour here, as the reader of sources says."""
    reading = "import json, sys; from sdk_tests_reading import read_files; print(json.dumps(read_files(*sys.argv[1:])))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    command = [str(PYTHON), "-c", reading, str(ARCHIVE), *files]
    found: dict[str, list[str]] = json.loads(subprocess.check_output(command, env=environment))
    return found


def report_group(name: str, group: dict[str, object], differences: dict[str, str], listed: bool) -> bool:
    """Run a group and print its figures; False if fewer tests pass than must."""
    files = files_of(group)  # type: ignore[arg-type]  # a table of lists
    reasons = reasons_of(files)
    private = {test for test, why in reasons.items() if any("is about" not in one for one in why)}
    absent = {test for test, why in reasons.items() if why and test not in private}
    with ThreadPoolExecutor(2) as pool:
        outcomes = {test: how for found in pool.map(run_file, files) for test, how in found.items()}
    counts: Counter[str] = Counter()
    for test, how in sorted(outcomes.items()):
        function = test.partition("[")[0]
        if how == "skipped":
            kind = "skipped by the test itself"
        elif function in private:
            kind = "not public"
        elif function in absent or function in differences:
            kind = "does not apply"
        else:
            kind = how
        counts[kind] += 1
        if listed and kind in ("failed", "does not apply"):
            print(f"{kind:<15} {test}  {differences.get(function) or '; '.join(reasons.get(function, []))}")
    public = counts["passed"] + counts["failed"] + counts["does not apply"]
    judged = counts["passed"] + counts["failed"]
    share, away = counts["passed"] / max(judged, 1), counts["does not apply"] / max(public, 1)
    print(
        f"{name}: {counts['passed']} of {judged} pass ({share:.1%}); {counts['does not apply']} of {public} public "
        f"tests do not apply ({away:.1%}); {counts['not public']} others use private names of the SDK"
    )
    wanted = group["passed_min"]
    if counts["passed"] < int(str(wanted)):
        print(f"{name}: {wanted} passed before; see `python tools/sdk_tests.py --list {name}`")
        return False
    return True


def rows_of_guide() -> list[str]:
    """Return the first column of the guide's tables, and the words of its headings."""
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    return [line.split("|")[1].strip() if line.startswith("|") else line for line in lines]


def main() -> int:
    """Run the groups that are named, or all."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("groups", nargs="*", help="groups of tools/sdk_tests.toml; none: all")
    parser.add_argument("--list", action="store_true", help="print each test that failed or does not apply")
    arguments = parser.parse_args()
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = rows_of_guide()
    for one in table["different"]:
        if not any(one["row"] in row for row in rows):
            parser.error(f"the guide to moving has no row {one['row']!r}")
    differences = {test: one["row"] for one in table["different"] for test in one["tests"]}
    prepare()
    groups = {name: table["groups"][name] for name in arguments.groups or table["groups"]}
    enough = [report_group(name, one, differences, arguments.list) for name, one in groups.items()]
    return 0 if all(enough) else 1


if __name__ == "__main__":
    sys.exit(main())
