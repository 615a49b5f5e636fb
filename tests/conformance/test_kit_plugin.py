"""The kit as a stranger meets it: a test file, a command line, a scorecard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from standfast._kits.conformance.__main__ import main
from standfast._kits.conformance.catalogue import checks_of
from standfast._kits.conformance.pytest_suite import options_of
from standfast._kits.conformance.results import BROKEN, KEPT, LEFT_OUT, value_of
from standfast._kits.conformance.run import run_check
from standfast._kits.contract.clauses import CLAUSES
from standfast.conformance import Backend, ClauseBroken, Options, Result, Scorecard, check
from tests.conformance.kit_backends import Memory

TEST_FILE = """
import pytest
from standfast.conformance import Backend, suite

class ListSession:
    session_settings = None
    stores = {}

    def __init__(self, session_id):
        self.session_id = session_id
        self.items = self.stores.setdefault(session_id, [])

    async def get_items(self, limit=None):
        return list(self.items) if limit is None else self.items[:limit]  # the oldest: wrong

    async def add_items(self, items):
        self.items.extend(items)

    async def pop_item(self):
        return self.items.pop() if self.items else None

    async def clear_session(self):
        self.items.clear()

class Lists(Backend):
    name = "lists"
    settings = deadlines = False
    not_applicable = {"A20": "nothing expires"}

    def setup(self):
        ListSession.stores.clear()

    def open(self, session_id, **options):
        return ListSession(session_id)

TestLists = suite(Lists())

@pytest.mark.clause("C3", "C5", backend="runner")
def test_a_turn_is_one_append():
    pass

@pytest.mark.clause("C8c")
def test_that_goes_wrong():
    assert 1 == 2

@pytest.mark.clause("D1")
@pytest.mark.parametrize("backend", ["one", "two"])
def test_of_a_parameter(backend):
    pass
"""
CHOSEN = "A1_items or A2_ or A7_ or turn or wrong or parameter"


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOSEN, *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "test_lists.py").write_text(TEST_FILE)
    return folder, run_pytest(folder, "--conformance-report", "card", "--conformance-examples=5")


def test_a_broken_clause_fails_its_test_and_says_what_was_seen(ended: Any) -> None:
    output = ended[1].stdout
    assert ended[1].returncode == 1
    assert "test_A2_a_limit_gives_the_latest_items_oldest_first" in output
    assert "A2 (limit) is broken by lists: after get_items(limit=1) of 7 items: 1 instead of 1 items" in output
    assert "promised: `get_items(limit=N)` returns the latest N valid items" in output


def test_the_scorecard_is_printed_at_the_end(ended: Any) -> None:
    output = ended[1].stdout
    assert "lists" in output
    assert "A2   limit                        BROKEN" in output
    assert "lists: A20 not applicable: nothing expires" in output
    assert "lists: B1 not claimed: the ability 'append' is not declared" in output
    assert "lists: A23 not claimed: the history does not outlive its process" in output


def test_the_scorecard_is_written_as_markdown_and_json(ended: Any) -> None:
    folder, _ = ended
    card = json.loads((folder / "card.json").read_text())
    assert card["lists"]["A1"]["value"] == "kept"
    assert card["lists"]["A7"]["value"] == "kept"
    assert card["lists"]["A2"]["checks"], "the checks are listed"
    page = (folder / "card.md").read_text()
    assert "| A2 | limit | **broken** (2/4) |" in page
    assert "| A20 | expiry | not applicable |" in page


def test_any_test_can_enter_the_scorecard(ended: Any) -> None:
    card = json.loads((ended[0] / "card.json").read_text())
    assert (card["runner"]["C3"]["value"], card["runner"]["C5"]["value"]) == ("kept", "kept")
    assert card["standfast"]["C8"]["value"] == "broken"
    assert card["standfast"]["C8"]["reason"].startswith("AssertionError: assert 1 == 2")
    assert (card["one"]["D1"]["value"], card["two"]["D1"]["value"]) == ("kept", "kept")


def test_workers_of_xdist_make_the_same_scorecard(ended: Any, tmp_path: Path) -> None:
    (tmp_path / "test_lists.py").write_text(TEST_FILE)
    report = tmp_path / "parallel.json"
    output = run_pytest(tmp_path, "-n2", "--conformance-report", str(report), "--conformance-examples=5").stdout
    assert "A2   limit                        BROKEN" in output
    alone, parallel = json.loads((ended[0] / "card.json").read_text()), json.loads(report.read_text())
    assert {name: values(column) for name, column in parallel.items()} == {
        name: values(column) for name, column in alone.items()
    }


def values(column: dict[str, Any]) -> dict[str, Any]:
    return {clause_id: (found["value"], len(found["checks"])) for clause_id, found in column.items()}


def test_a_marker_with_an_unknown_clause_is_refused(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.clause('Z9')\ndef test_turn(): pass\n"
    (tmp_path / "test_unknown.py").write_text(text)
    ended = run_pytest(tmp_path)
    assert ended.returncode != 0
    assert "there is no clause 'Z9'" in ended.stdout + ended.stderr


# --- the pieces -----------------------------------------------------------------------------------


def test_every_clause_a_store_answers_for_has_a_check() -> None:
    """Parts A, B and F are a store's whole duty; of part C it answers for C12, the saving of runs."""
    wanted = {clause_id for clause_id in CLAUSES if clause_id[0] in "ABF"} | {"C12"}
    assert {found.clause_id for found in checks_of()} == wanted


def test_names_of_checks_are_unique_and_read_as_sentences() -> None:
    names = [found.name for found in checks_of()]
    assert len(names) == len(set(names))
    assert all(len(name.split("_")) > 2 for name in names)


def test_a_description_without_name_or_reason_is_refused_before_anything_runs() -> None:
    class Nameless(Memory):
        name = ""

    class Silent(Memory):
        not_applicable: Mapping[str, str] = {"A15": " "}

    class Unknown(Memory):
        not_claimed: Mapping[str, str] = {"A99": "never heard of it"}

    for wrong, words in ((Nameless, "has no name"), (Silent, "without a reason"), (Unknown, "no clause 'A99'")):
        with pytest.raises((ValueError, LookupError), match=words):
            check(wrong(), "A1")


def test_a_backend_that_hangs_is_broken_and_not_waited_for() -> None:
    class Hangs(Memory):
        name = "hangs"
        patience_s = 0.5

        def setup(self) -> None:
            self.calls = 0

        def open(self, session_id: str, **options: Any) -> Any:
            import threading

            if session_id != "probe":
                threading.Event().wait(20)
            return super().open(session_id, **options)

    (result,) = check(Hangs(), "A7", only="an_empty_batch_changes_nothing")
    assert result.value == BROKEN
    assert "did not come back within 0.5 s" in result.detail


def test_an_error_of_the_backend_is_told_as_what_was_seen() -> None:
    class Raises(Memory):
        name = "raises"

        def open(self, session_id: str, **options: Any) -> Any:
            if session_id == "probe":
                return super().open(session_id, **options)
            raise OSError("no such server")

    (found,) = [each for each in checks_of("A7") if each.name == "an_empty_batch_changes_nothing"]
    with pytest.raises(ClauseBroken, match=r"A7 .* is broken by raises: it raised OSError: no such server") as caught:
        run_check(Raises(), found, Options())
    assert isinstance(caught.value.__cause__, OSError)


def test_a_clause_is_kept_only_if_a_check_saw_it() -> None:
    left_out = Result("A14", "x", LEFT_OUT, "no hook")
    assert value_of(Memory(), "A14", [left_out]) == ("not claimed", "no hook")
    assert value_of(Memory(), "A14", [left_out, Result("A14", "y", KEPT)]) == ("kept", "")
    assert value_of(Memory(), "A14", [Result("A14", "y", KEPT), Result("A14", "z", BROKEN, "seen")])[0] == "broken"


def test_green_means_nothing_broken_and_nothing_unclaimed() -> None:
    class Modest(Memory):
        name = "modest"
        not_claimed: Mapping[str, str] = {"A2": "not yet"}

    kept = [Result(clause_id, "x", KEPT) for clause_id in CLAUSES]
    assert Scorecard.of(Memory(), kept).green("InMemorySession")
    assert not Scorecard.of(Modest(), kept).green("modest")
    broken = [*kept, Result("A3", "y", BROKEN, "seen")]
    assert not Scorecard.of(Memory(), broken).green("InMemorySession")


def test_the_command_writes_a_report_and_ends_with_1_if_a_clause_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "card.md"
    arguments = ["tests.conformance.mistakes.history:LimitGivesTheOldestBackend", "--clause", "A2", "--examples", "3"]
    assert main([*arguments, "--report", str(report), "--title", "A title"]) == 1
    assert "A2 broken, a limit gives the latest items oldest first" in capsys.readouterr().out
    assert report.read_text().startswith("# A title\n")
    assert main(["tests.conformance.kit_backends:Memory", "--clause", "A2", "--examples", "3"]) == 0
    with pytest.raises(SystemExit, match="names no class"):
        main(["nonsense"])


def test_the_plugin_loads_where_only_pytest_is_installed_and_nothing_of_the_kit_with_it(tmp_path: Path) -> None:
    """Every pytest of an environment loads it: it must not fail, nor be slow, for those who do not use it."""
    (tmp_path / "test_of_theirs.py").write_text("def test_it(): pass\n")
    program = (
        "import pytest, sys; code = pytest.main(['-q', '-p', 'no:cacheprovider', 'test_of_theirs.py']); "
        "ours = ('hypothesis', 'msgspec', 'standfast'); "
        "print(code == 0, *sorted(name for name in sys.modules if name.partition('.')[0] in ours))"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    only = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p standfast._kits.conformance.plugin"}
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **only}, capture_output=True, text=True
    )
    last = told.stdout.splitlines()[-1].split()
    assert last[0] == "True", told
    kit = [name for name in last[1:] if name.startswith("standfast._kits.conformance.") or name == "hypothesis"]
    assert kit == ["standfast._kits.conformance.plugin"]
    assert not [name for name in last[1:] if name.startswith(("standfast.sessions", "standfast._src.items", "msgspec"))]


@pytest.mark.parametrize("same", [True, False])
def test_generated_examples_are_new_or_the_same_as_the_profile_of_the_suite_says(
    same: bool, pytestconfig: pytest.Config
) -> None:
    settings.register_profile("as said", settings(), derandomize=same)
    settings.load_profile("as said")
    try:
        assert options_of(pytestconfig).repeatable is same
    finally:
        settings.load_profile("standfast")


def test_a_backend_of_a_notebook_is_not_asked_to_be_imported_by_a_child() -> None:
    class Local(Memory):
        name = "local"

    assert Memory().importable()
    assert not Local().importable()
    reasons = {result.detail for result in check(Local(), "A21")}
    assert reasons == {"a child process cannot import the backend's class"}


def test_the_base_class_says_what_is_missing() -> None:
    class Empty(Backend):
        name = "empty"

    with pytest.raises(NotImplementedError, match="Empty needs a method open"):
        Empty().open("x")
