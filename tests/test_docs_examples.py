"""What the documentation shows, runs: every `python` block of the README and docs, and every example.

Blocks of one page share a namespace, in order, and may use `await` at the top level, as a notebook does. Each page and
each example runs in a process of its own, in an empty folder, so that none can lean on another or on this machine. A
block below a line `<!-- no-run: why -->` is left out.
"""

from __future__ import annotations

import ast
import codeop
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from run_blocks import HIDDEN, blocks

from tests.helpers.page_needs import hidden, named
from tools import site

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUNNER = Path(__file__).with_name("run_blocks.py")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
# Generous: it only ends a program that hangs. A page takes a second or two.
DEADLINE_S = 300


def run(arguments: list[str], folder: Path, **more: str) -> None:
    # Keys of the person who runs the tests must not make an example talk to a real service.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")} | more
    command = [sys.executable, "-W", "error::ResourceWarning", *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, f"{arguments[-1]} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"


RUNNABLE = [page for page in PAGES if blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_on_this_page_runs_with_what_it_says_is_needed(page: Path, tmp_path: Path):
    """As for a stranger who installed standfast and the extras that the page names, and nothing else."""
    is_followed = page.name == "README.md" or page.parent.name == "tutorial"
    text = page.read_text(encoding="utf-8")
    beside = [str(ROOT / folder) for folder in re.findall(r"^<!-- beside: (examples/\w+) -->$", text, re.MULTILINE)]
    more = {HIDDEN: ",".join(hidden(text))} | ({"PYTHONPATH": os.pathsep.join(beside)} if beside else {})
    for _ in range(2 if is_followed else 1):  # what people follow, they follow again the next day, in the same folder
        run([str(RUNNER), str(page)], tmp_path, **more)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))], ids=lambda page: page.stem
)
def test_what_people_follow_can_be_pasted_into_an_interactive_python(page: Path):
    """There a blank line ends what is indented, and something else behind it needs one (`python -m asyncio`)."""
    for first, source in blocks(page.read_text(encoding="utf-8")):
        compiled = codeop.CommandCompiler()
        compiled.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        typed: list[str] = []
        for number, line in enumerate([*source.splitlines(), ""], first):
            typed.append(line)
            try:
                whole = compiled("\n".join(typed), page.name, "single")
            except SyntaxError as error:
                pytest.fail(f"{page.name}, line {number}: {error.msg}")
            typed = [] if whole else typed
        assert not any(typed), f"{page.name}, line {first}: Python waits for more"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_this_example_runs(example: Path, tmp_path: Path):
    run([str(example)], tmp_path)


def test_the_readme_has_code_that_runs():
    assert ROOT / "README.md" in RUNNABLE


def test_a_block_that_fails_is_noticed(tmp_path: Path):
    """The tests above can fail, and say which line of the page did."""
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\nand\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError, match=r'page\.md", line 10'):
        run([str(RUNNER), str(page)], tmp_path)


def test_a_page_that_does_not_name_what_it_needs_is_noticed(tmp_path: Path):
    page = tmp_path / "page.md"
    text = (
        "Install `pip install 'fakeredis[lua]' httpx2` or standfast[redis,mcp].\n\n```python\nimport websockets\n```\n"
    )
    assert named(text) == {"standfast", "standfast[redis]", "standfast[mcp]", "fakeredis[lua]", "httpx2"}
    assert "websockets" in hidden(text)
    assert not {"redis", "httpx2", "fakeredis", "lupa", "pydantic", "standfast"} & set(hidden(text))
    page.write_text(text)
    with pytest.raises(AssertionError, match="No module named 'websockets'"):
        run([str(RUNNER), str(page)], tmp_path, **{HIDDEN: ",".join(hidden(text))})
    page.write_text(text.replace("mcp]", "realtime]"))
    run([str(RUNNER), str(page)], tmp_path, **{HIDDEN: ",".join(hidden(page.read_text()))})


def test_no_run_blocks_and_other_languages_are_left_alone():
    text = "<!-- no-run: it fails -->\n```python\nboom\n```\n```\nplain\n```\n```sh\nls\n```\n  ```python\n  x\n  ```\n"
    assert blocks(text) == [(12, "x\n")]


def test_a_fence_that_builders_of_sites_do_not_understand_is_refused():
    with pytest.raises(ValueError, match="name the language only"):
        blocks("```python no-run\nboom\n```\n")


def test_every_link_between_pages_leads_somewhere():
    """A page that names another by a relative link must not point at nothing."""
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} links to {target}")
    assert not broken, "\n".join(broken)


def test_every_page_can_be_found_from_the_index():
    found = [ROOT / "docs" / "README.md"]
    for index in found:  # which grows: an index may lead to others
        if index.name == "README.md":
            links = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
            found += [page for page in PAGES[1:] if page in links - {*found}]
    lost = [str(page.relative_to(ROOT)) for page in PAGES[1:] if page not in found]
    assert not lost, f"docs/README.md and the indexes it leads to do not lead to {lost}"


def test_the_readme_is_short_enough_to_be_read():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_the_menu_of_the_site_has_every_page_once():
    def pages(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        below = entry.values() if isinstance(entry, dict) else entry
        assert isinstance(below, Iterable)
        return [page for each in below for page in pages(each)]

    listed = [page.replace("index.md", "README.md") for page in pages(site.menu()) if "/api/" not in page]
    there = [str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]]
    assert sorted(listed) == sorted([*there, *site.BESIDE]), "list a page once, in the index of its folder"


DECISION_PARTS = ["Context", "Decision", "Rejected", "Consequence"]
"""The parts of a record in docs/decisions, in order."""


def test_a_decision_is_a_record_of_four_parts_and_at_most_25_lines():
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert records
    numbers = [record.name[:3] for record in records]
    assert len(set(numbers)) == len(numbers), "a number is given once"
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert re.fullmatch(r"[0-9]{3}-[a-z0-9-]+\.md", record.name)
        assert len(text.splitlines()) <= 25, record.name
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == DECISION_PARTS, record.name


# Generated, written for those who work on standfast, or made of nothing but clauses.
NAMES_CLAUSES = ("contract.md", "names.md")
NO_PROSE = re.compile(r"^```.*?^```|`[^`\n]*`|\[[^\]\n]*\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)


def test_a_clause_that_a_page_names_is_a_link_to_it():
    """A reader who meets the id of a clause in the middle of a page must be able to ask what that is."""
    contract = (ROOT / "docs" / "reference" / "contract.md").read_text(encoding="utf-8")
    known = set(re.findall(r'<a id="[a-z]+\d+"></a>([A-Z]+\d+) ', contract))
    assert known
    bare = []
    for page in PAGES:
        if page.name not in NAMES_CLAUSES and "scorecard" not in page.name:
            prose = NO_PROSE.sub("", page.read_text(encoding="utf-8"))
            bare += [
                f"{page.relative_to(ROOT)}: {one}" for one in re.findall(r"\b[A-Z]\d{1,2}\b", prose) if one in known
            ]
    assert not bare, "\n".join(bare)


def test_a_how_to_opens_with_when_it_is_needed():
    late = []
    for page in sorted((ROOT / "docs" / "how-to").glob("[a-z]*.md")):
        opening = page.read_text(encoding="utf-8").split("\n\n")[1]
        if not re.match(r"(When|You need this)\b", opening):
            late.append(str(page.relative_to(ROOT)))
    assert not late, "\n".join(late)


TABLE = re.compile(r"^(\|.*\|)\n\|[ :|-]+\|$", re.MULTILINE)


def test_every_column_of_a_table_has_a_name():
    """A reader who lands in the middle of a page must be able to read a row alone."""
    nameless = [
        f"{page.relative_to(ROOT)}: {header}"
        for page in PAGES
        for header in TABLE.findall(page.read_text(encoding="utf-8"))
        if any(not cell.strip() for cell in header.strip("|").split("|"))
    ]
    assert not nameless, "\n".join(nameless)


def test_the_page_on_installing_lists_every_extra_with_what_it_brings():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    listed = {
        name: set(brings.split(", ")) for name, brings in re.findall(r"^\| `([a-z-]+)` \| ([^|]+?) \|", page, re.M)
    }
    declared = {
        extra: {re.split(r"[\[>]", requirement)[0] for requirement in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }
    assert listed.keys() == declared.keys()
    assert {extra: brings for extra, brings in listed.items() if extra != "all"} == {
        extra: names for extra, names in declared.items() if extra != "all"
    }
