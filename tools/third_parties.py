"""Run packages that import `agents` on the SDK and on standfast, and write docs/reference/third-parties.md.

    python tools/third_parties.py                  # all of tools/third_parties.toml
    python tools/third_parties.py langsmith        # some, without writing the page

Each package is installed in an environment of its own, beside openai-agents, and used twice by third_parties_probe.py:
as it is, and under `python -m standfast as-agents`. Exit code 1: one does not run as the table says. uv installs them
where it is on PATH.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from dev import ROOT, checked, say

PLACE = ROOT / ".venv-third-parties"
PAGE = ROOT / "docs" / "reference" / "third-parties.md"
PROBE = ROOT / "tools" / "third_parties_probe.py"
TIME_LIMIT_S = 120
HEAD = """# Packages that use the SDK

Written by `python tools/third_parties.py`, a part of `./dev test --deep`: each package is installed, and used with the
OpenAI Agents SDK 0.24.0 and with standfast under [the alias](../how-to/run-programs-that-import-agents.md). Tracers are
given a run with a handoff and a tool call; the number is that of the spans, or of what the package sends instead. The
others are imported, and a run goes on beside them: this says that they load, and not that all they do was tried.

| package | version | it uses | on the SDK | on standfast | what differs |
|---|---|---|---|---|---|
"""


def environment_of(package: dict[str, Any]) -> Path:
    """Return the Python of the package's environment, made if it is not there for this version."""
    wanted = [f"{package['name']}=={package['version']}", *package.get("with", [])]
    wanted += ["openai-agents==0.24.0", "msgspec", "opentelemetry-sdk"]
    place = PLACE / str(package["probe"])
    stamp = place / hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()
    python = place / "bin" / "python"
    if not stamp.exists():
        say(f"installing {package['name']}")
        shutil.rmtree(place, ignore_errors=True)
        checked([sys.executable, "-m", "venv", str(place)])
        uv = shutil.which("uv")
        tool = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
        checked([*tool, "--quiet", *wanted])
        stamp.touch()
    return python


def look(python: Path, probe: str, *, on_standfast: bool) -> dict[str, Any]:
    """Use the package once; what was seen, or the error."""
    alias = ["-m", "standfast", "as-agents", "--distribution"] if on_standfast else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [str(python), *alias, str(PROBE), probe]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("SEEN ")]
    if not lines:
        return {"error": f"ended with {ended.returncode}: {ended.stderr.strip()[-200:]}"}
    found: dict[str, Any] = json.loads(lines[-1][5:])
    return found


def lacks(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return the names of what the package recorded on the SDK and not on standfast."""
    if "error" in theirs or "error" in ours:
        return []
    left = Counter(name for name, _ in theirs["seen"]) - Counter(name for name, _ in ours["seen"])
    return sorted(left.elements())


def shown(found: dict[str, Any]) -> str:
    """Return a cell of the table."""
    if "error" in found:
        return str(found["error"]).splitlines()[0].replace("|", "/")[:120]
    names = [name for name, _ in found["seen"]]
    return "loads" if names == ["imported and ran"] else f"runs, {len(names)}"


def main() -> int:
    """Look at the packages that are named, or at all of them."""
    packages = tomllib.loads((ROOT / "tools" / "third_parties.toml").read_text(encoding="utf-8"))["package"]
    named = sys.argv[1:]
    wanted = [one for one in packages if not named or one["name"] in named or one["probe"] in named]
    rows, wrong = [], []
    for package in wanted:
        python = environment_of(package)
        theirs = look(python, package["probe"], on_standfast=False)
        ours = look(python, package["probe"], on_standfast=True)
        expected = package.get("on_standfast", "runs")
        is_expected = ours.get("error", "").startswith(expected) if expected != "runs" else "error" not in ours
        missing = [] if package.get("own_spans") else lacks(theirs, ours)
        if not is_expected or missing or (not ours.get("seen") and expected == "runs"):
            wrong.append(f"{package['name']}: {ours.get('error') or 'records nothing'}; lacks {missing or 'nothing'}")
        cells = [package["name"], package["version"], package["uses"], shown(theirs), shown(ours)]
        cells.append(package.get("differs", ""))
        rows.append("| " + " | ".join(cells).rstrip() + " |")
        print(rows[-1])
    if not named:
        PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    for one in wrong:
        print(f"not as the table says: {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
