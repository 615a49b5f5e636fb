"""A release is refused until everything is there, comes out the same twice, and is looked at before it is kept."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import release
finally:
    sys.path.pop(0)  # tools/site.py is not the standard library's

ADDRESS = "https://example.org/people/standfast"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that is ready, but small: the package, and one word of everything that belongs to a release."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "src" / "standfast").mkdir(parents=True)
    (folder / "src" / "standfast" / "__init__.py").write_text('"""A package."""\n')
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = re.sub(r'^version = ".*"$', 'version = "0.2.0"', text, flags=re.MULTILINE)
    text = text.replace("[project.scripts]", f'[project.urls]\nRepository = "{ADDRESS}"\n\n[project.scripts]')
    (folder / "pyproject.toml").write_text(text)
    for name in ("tests", "docs", "examples", "bench", "tools", "requirements"):
        (folder / name).mkdir()
        (folder / name / "one.txt").write_text("one\n")
    for name in ("dev", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "README.md").write_text(
        "# A page\n\n[a contract](docs/contract.md), ![a picture](docs/a.svg), [out](https://x.org)\n"
    )
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2026-11-16)\n")
    return folder


def test_what_is_missing_for_a_release_is_said_and_nothing_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    facts = release.project()
    assert "urls" not in facts["project"], "the address is known: this test has done its work"
    assert release.main(["--tag", "v9.9.9"]) == 1
    said = capsys.readouterr().err
    assert "the repository's address is not known, and none is invented" in said
    assert "the tag v9.9.9 is not that of version" in said
    assert "no version to release" not in said
    assert "has no section" not in said
    facts["project"]["version"] = "9.9.9.dev0"
    told = " ".join(release.not_ready(ROOT, facts, None))
    assert "9.9.9.dev0 is no version to release" in told
    assert "CHANGELOG.md has no section 9.9.9.dev0" in told


def test_a_checkout_that_is_ready_is_built_and_kept(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = release.project(checkout)
    (problem,) = release.not_ready(checkout, facts, "v0.2.0")  # a folder of its own is no checkout
    assert "not what is committed" in problem
    assert release.main(["--no-install"], checkout) == 1
    assert not (checkout / "dist").exists()
    assert release.main(["--no-install", "--rehearse"], checkout) == 0, capsys.readouterr().err
    assert sorted(file.name for file in (checkout / "dist").iterdir()) == [
        "standfast-0.2.0-py3-none-any.whl",
        "standfast-0.2.0.tar.gz",
    ]
    with zipfile.ZipFile(checkout / "dist" / "standfast-0.2.0-py3-none-any.whl") as wheel:
        told = wheel.read("standfast-0.2.0.dist-info/METADATA").decode()
    assert f"[a contract]({ADDRESS}/blob/v0.2.0/docs/contract.md)" in told
    assert f"![a picture]({ADDRESS}/raw/v0.2.0/docs/a.svg)" in told
    assert "[out](https://x.org)" in told


def test_a_wheel_that_is_not_whole_is_refused(checkout: Path, tmp_path: Path) -> None:
    facts = release.project(checkout)
    built = release.build(checkout, tmp_path / "build", facts)
    assert list(release.faults(checkout, built, with_links=True)) == []
    other = tmp_path / built.wheel.name
    with zipfile.ZipFile(built.wheel) as wheel, zipfile.ZipFile(other, "w") as changed:
        for name in wheel.namelist():
            data = wheel.read(name)
            if name == "standfast/__init__.py":
                data += b"import os\n"
            if name.endswith("METADATA"):
                data += b"\n[gone](docs/gone.md)\n"
            changed.writestr(name, data)
        changed.writestr("standfast/left.db", b"")
        changed.writestr("tests/__init__.py", b"")
    (checkout / "src" / "standfast" / "new.py").write_text("")
    try:
        found = " / ".join(release.faults(checkout, built._replace(wheel=other), with_links=True))
    finally:
        (checkout / "src" / "standfast" / "new.py").unlink()
    assert "the wheel lacks standfast/new.py" in found
    assert "the wheel holds standfast/left.db" in found
    assert "the wheel holds tests/__init__.py" in found
    assert "standfast/__init__.py in the wheel is not what its record says" in found
    assert "links to docs/gone.md, which is dead there" in found
    assert "the source archive lacks src/standfast/new.py" in found
    assert release.differing(built, built._replace(wheel=other))


def test_the_workflow_publishes_what_the_script_has_checked_without_a_key() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert './dev release --tag "$GITHUB_REF_NAME"' in text
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used), "a tag can be moved"
    assert "secrets." not in text
    assert text.count("id-token: write") == 1
    assert "permissions: {}" in text


def test_a_pull_request_is_tested_with_no_rights_and_no_key() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert "pull_request:" in text
    assert "run: ./dev test" in text
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used), "a tag can be moved"
    assert "secrets." not in text
    assert "write" not in text
    assert "permissions: {}" in text
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = facts["project"]["requires-python"].removeprefix(">=")
    named = [one.rpartition(" ")[2] for one in facts["project"]["classifiers"] if "Python :: 3." in one]
    assert f'python: ["{oldest}", "{named[-1]}"]' in text, "the oldest and the newest supported Python are tested"
    assert "run: ./dev docs" in text


def test_the_readme_names_what_an_installation_brings() -> None:
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = [re.split(r"[><=\[]", one)[0] for one in facts["project"]["dependencies"]]
    costs = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it costs\n")[2].partition("##")[0]
    assert set(re.findall(r"`([\w-]+)`", costs.partition(")")[0])) == set(names)
