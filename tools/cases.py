"""Compare the test cases of an older commit with those of the working tree: where does each check run now?

    python tools/cases.py 1a4c85b6            counts per tier, and what runs nowhere any more, with its reason
    python tools/cases.py 1a4c85b6 --rows     one line for each check, store and tier

A check is a test function, or one of the kit's checks in the suite of one store. Its parameters are counted and not
compared: a table that became a loop has one case where it had hundreds. The reasons of what runs nowhere are in
tools/cases.toml. `--renamed FILE` is a TOML file of renames, so that a test that moved is found at its new place.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

Check = tuple[str, str]
"""A file and what is checked there: a function, or a class and its method."""


def collect(folder: Path) -> Counter[Check]:
    """Return how many cases each check has in a checkout, whatever their tier."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    # The plugins that are installed are those of the working tree: the checkout's own may be other modules.
    command += [option for name in plugins(ROOT) for option in ("-p", f"no:{name}")]
    command += [option for module in plugins(folder).values() for option in ("-p", module)]
    if (folder / "tests" / "tiers.toml").exists():
        command += ["--tier", "deep"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"collecting {folder} failed:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    found: Counter[Check] = Counter()
    for line in ran.stdout.splitlines():
        file, separator, rest = line.partition("::")
        if separator and file.endswith(".py"):
            found[file, rest.partition("[")[0]] += 1
    return found


def plugins(folder: Path) -> dict[str, str]:
    """Return the pytest plugins that a checkout's package declares: entry point and module."""
    declared = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    return dict(declared.get("pytest11", {}))


def collect_at(revision: str) -> Counter[Check]:
    """Return the checks of a commit, collected in a checkout of their own."""
    with tempfile.TemporaryDirectory(prefix="standfast-cases-") as folder:
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        return collect(Path(folder))


def renames(file: Path | None) -> dict[str, str]:
    """Return the new place of each test file that the house moved."""
    if file is None or not file.exists():
        return {}
    return {str(old): str(new) for old, new in tomllib.loads(file.read_text(encoding="utf-8")).get("tests", {}).items()}


def reason(check: Check, gone: list[dict[str, str]], now: Counter[Check]) -> str | None:
    """Return why a check runs nowhere; None without a row, or if the check that took its place is not there."""
    for row in gone:
        if fnmatch.fnmatchcase("::".join(check), row["at"]):
            heir = row.get("now")
            if heir is None:
                return row["why"]
            file, _, name = heir.partition("::")
            return f"{row['why']}: {heir}" if (file, name) in now else None
    return None


def place(check: Check, now: Counter[Check], moved: dict[str, str]) -> Check | None:
    """Return where a check of the older commit is now; by its name alone if its file is another."""
    file, name = check
    for candidate in ((file, name), (moved.get(file, file), name)):
        if candidate in now:
            return candidate
    # Of several with its name, the one in the file whose path has the most folders and names of the old one.
    parts = set(Path(file).parts)
    elsewhere = sorted(
        (known for known in now if known[1] == name), key=lambda known: -len(parts & set(Path(known[0]).parts))
    )
    return elsewhere[0] if elsewhere else None


def main() -> int:
    """Print the comparison; 1 if a check runs nowhere without a reason."""
    from tests.helpers.tiers import tier_of

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--renamed", type=Path, default=ROOT / "tools" / "rename.toml")
    given = parser.parse_args()
    before, now, moved = collect_at(given.revision), collect(ROOT), renames(given.renamed)
    reasons = tomllib.loads((ROOT / "tools" / "cases.toml").read_text(encoding="utf-8"))["gone"]
    tiers: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    gone: list[str] = []
    unexplained = 0
    for check, count in sorted(before.items()):
        found = place(check, now, moved)
        tier = "nowhere" if found is None else tier_of("::".join(found))
        tiers[tier][0] += 1
        tiers[tier][1] += count
        if found is None:
            why = reason(check, reasons, now)
            unexplained += why is None
            gone.append(f"{count:5d}  {'::'.join(check)}\n       {why or 'NO REASON'}")
        elif given.rows:
            print(f"{tier:8}{count:5d} -> {now[found]:5d}  {'::'.join(found)}")
    then, today = f"{sum(before.values())} cases of {len(before)}", f"{sum(now.values())} of {len(now)}"
    print(f"{given.revision}: {then} checks; now: {today}")
    for tier, (checks, cases) in sorted(tiers.items()):
        print(f"{tier:8} {checks:6d} checks, {cases:6d} cases then")
    if gone:
        print("run nowhere any more:", *gone, sep="\n")
    return 1 if unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
