"""Build what a release consists of, twice, and look at it as a stranger will (`./dev release`).

The wheel and the source archive are built in two folders that differ in whatever must not matter, and have to be the
same bytes. Then they are read: every module is in, nothing else is, the long description leads somewhere. Then the
wheel is installed by name into an environment of its own, with what it depends on, and the README is followed with it.
Only what has passed is put into dist/. Publishing is not done here: `.github/workflows/release.yml` does it, where
nobody holds a key.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")
ADDRESS = "Repository"
SUFFIXES = (".py", ".pyi", ".typed", ".html", ".css", ".js", ".sql", ".lua", ".json")
"""What a wheel may hold of the package; a database or a log that somebody left behind is none of it."""


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path


def project(root: Path = ROOT) -> dict[str, Any]:
    """What pyproject.toml says of the package."""
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return found


def not_ready(root: Path, facts: dict[str, Any], tag: str | None) -> list[str]:
    """Why this cannot be released yet, each with what to do."""
    version, problems = facts["project"]["version"], []
    if not facts["project"].get("urls", {}).get(ADDRESS):
        problems.append(
            f"the repository's address is not known, and none is invented: set {ADDRESS} under [project.urls] in"
            " pyproject.toml"
        )
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version):
        problems.append(f"{version} is no version to release: set the next one in pyproject.toml")
    if tag is not None and tag != f"v{version}":
        problems.append(f"the tag {tag} is not that of version {version}: name it v{version}")
    if not re.search(rf"^## {re.escape(version)}\b", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        problems.append(f"CHANGELOG.md has no section {version}: give what is unreleased its number and date")
    if not _is_committed(root):
        problems.append("the checkout is not what is committed: commit first, or nobody can build the same again")
    return problems


def _is_committed(root: Path) -> bool:
    if shutil.which("git") is None:
        return False
    asked = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True)
    return asked.returncode == 0 and not asked.stdout


# --- building --------------------------------------------------------------------------------------------------------


def stage(root: Path, folder: Path, facts: dict[str, Any]) -> None:
    """Copy what is built, with a README whose links hold wherever it is shown."""
    names = facts["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    leftovers = shutil.ignore_patterns("__pycache__", "*.pyc", "*.db", "*.db-*", ".*")
    for name in (*names, "pyproject.toml", "LICENSE"):
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=leftovers, copy_function=shutil.copy)
        else:
            shutil.copy(root / name, folder / name)
    address = facts["project"].get("urls", {}).get(ADDRESS)
    if address:
        readme = folder / "README.md"
        text = absolute(readme.read_text(encoding="utf-8"), address, f"v{facts['project']['version']}")
        readme.write_text(text, encoding="utf-8")


def absolute(text: str, address: str, tag: str) -> str:
    """A page with its relative links as addresses of that tag: a package index shows it without the files beside it."""

    def whole(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        return f"{image}[{words}]({address.rstrip('/')}/{'raw' if image else 'blob'}/{tag}/{target})"

    return LINK.sub(whole, text)


def build(root: Path, folder: Path, facts: dict[str, Any], *, mask: int = 0o022) -> Built:
    """Build both files from a copy, under a umask: what a builder's account looks like must not matter."""
    staged, made = folder / "staged", folder / "made"
    staged.mkdir(parents=True)
    stage(root, staged, facts)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(made)]
    ended = subprocess.run(command, cwd=staged, capture_output=True, text=True, umask=mask)
    if ended.returncode:
        raise SystemExit(f"it cannot be built: {ended.stdout}{ended.stderr}")
    (wheel,), (sdist,) = made.glob("*.whl"), made.glob("*.tar.gz")
    return Built(wheel, sdist)


def differing(one: Built, other: Built) -> list[str]:
    """The files that are not the same bytes."""
    pairs = zip(one, other, strict=True)
    return [
        f"{mine.name} came out differently when it was built again"
        for mine, theirs in pairs
        if mine.name != theirs.name or mine.read_bytes() != theirs.read_bytes()
    ]


# --- looking ---------------------------------------------------------------------------------------------------------


def faults(root: Path, built: Built, *, with_links: bool) -> Iterator[str]:
    """What is wrong with the two files."""
    facts = project(root)["project"]
    source = {str(path.relative_to(root / "src")) for path in (root / "src" / "standfast").rglob("*") if path.is_file()}
    source = {name for name in source if "__pycache__" not in name}
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
        inside = {name for name in names if name.startswith("standfast/")}
        yield from (f"the wheel lacks {name}" for name in sorted(source - inside))
        strange = {name for name in inside if not name.endswith(SUFFIXES)} | (inside - source)
        strange |= {name for name in names - inside if ".dist-info/" not in name}
        yield from (f"the wheel holds {name}, which is no part of the package" for name in sorted(strange))
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        yield from _unlike_the_record(wheel, info)
        metadata = message_from_string(wheel.read(f"{info}/METADATA").decode())
    if (metadata["Name"], metadata["Version"]) != (facts["name"], facts["version"]):
        yield f"the wheel calls itself {metadata['Name']} {metadata['Version']}"
    if metadata["Description-Content-Type"] != "text/markdown":
        yield "the long description does not say that it is Markdown"
    if with_links:
        dead = LINK.findall(str(metadata.get_payload()))
        yield from (f"the long description links to {target}, which is dead there" for *_, target in dead)
    with tarfile.open(built.sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"src/{name}" for name in source} | {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"}
    yield from (f"the source archive lacks {name}" for name in sorted(wanted - packed))


def _unlike_the_record(wheel: zipfile.ZipFile, info: str) -> Iterator[str]:
    for name, digest, _ in csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())):
        if digest:
            kind, _, told = digest.partition("=")
            found = base64.urlsafe_b64encode(hashlib.new(kind, wheel.read(name)).digest()).rstrip(b"=").decode()
            if found != told:
                yield f"{name} in the wheel is not what its record says"


def follow_the_readme(root: Path, built: Built, folder: Path) -> None:
    """Install the wheel by its name into an environment of its own, and do with it what the README says, twice."""
    facts = project(root)["project"]
    venv.create(folder / "env", with_pip=True)
    python = str(folder / "env" / "bin" / "python")
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    kept.pop("PYTHONPATH", None)

    def run(*command: str, said: str = "") -> str:
        ended = subprocess.run([python, *command], cwd=folder, env=kept, capture_output=True, text=True, input=said)
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)} failed: {ended.stdout}{ended.stderr}")
        return ended.stdout

    wanted = f"{facts['name']}[openai,inspect]=={facts['version']}"
    run("-m", "pip", "install", "--quiet", "--no-input", "--find-links", str(built.wheel.parent), wanted)
    for _ in range(2):
        run(str(root / "tests" / "run_blocks.py"), str(root / "README.md"))
    run("-m", "standfast", "demo", "--kills", "1")
    run("-m", "standfast", "chat", "--demo", said="pay 120 to ACME\n")  # and leaves, with the question open
    if "paid 120 to ACME" not in run("-m", "standfast", "chat", "--demo", "--continue", said="y\n"):
        raise SystemExit("the chat of the README did not go on")
    run("-m", "standfast", "sessions", "ls", "chats.db")
    if facts["version"] not in run("-m", "standfast", "--version"):
        raise SystemExit("the command does not tell the version that was built")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Build, look, follow the README, and keep what has passed."""
    parser = argparse.ArgumentParser(prog="./dev release", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--rehearse", action="store_true", help="do all of it with a version that cannot be released yet"
    )
    parser.add_argument("--no-install", action="store_true", help="build and look only: installing needs a network")
    parser.add_argument("--tag", metavar="NAME", help="the tag it is built from, which must be that of the version")
    given = parser.parse_args(arguments)
    facts = project(root)
    problems = not_ready(root, facts, given.tag)
    if problems and not given.rehearse:
        return _refused(problems)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = build(root, folder / "first", facts)
        second = build(root, folder / "somewhere else", facts, mask=0o077)
        has_address = bool(facts["project"].get("urls", {}).get(ADDRESS))
        found = [*differing(first, second), *faults(root, first, with_links=has_address)]
        if found:
            return _refused(found)
        if not given.no_install:
            follow_the_readme(root, first, folder)
        target = root / "dist"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file in first:
            shutil.copy2(file, target)
            print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  dist/{file.name}")
    for problem in problems:
        print(f"rehearsed; to release it: {problem}", file=sys.stderr)
    return 0


def _refused(problems: list[str]) -> int:
    for problem in problems:
        print(f"./dev release: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
