"""Plant each deliberate mistake and let the short tier's checks of its clauses look for it.

    python tools/mutants.py                    # all of them, from the beginning
    python tools/mutants.py --resume           # those that have no verdict yet
    python tools/mutants.py C12 'runs/engine/*'     # those of a clause, or of ids and patterns of ids

A mistake is planted in a copy of the source, never in the working tree. The tests of the short tier that name one of
its clauses (tests/helpers/clauses.py) run against the copy, the likeliest first, until one fails. That test has caught
the mistake if it passes on a copy without it. A mistake that every test lets pass is a survivor: it is named, and the
exit code is 1. `docs/reference/mutants.md` is the table of all verdicts. `tests/mistakes/verdicts.json` keeps them and
is committed, so that a run continues on another machine; what is only of use here is in `.mutants`.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.mistakes.registry import Mistake, every_mistake  # noqa: E402 — the project's root comes first

STATE = ROOT / ".mutants"
VERDICTS = ROOT / "tests" / "mistakes" / "verdicts.json"
PAGE = ROOT / "docs" / "reference" / "mutants.md"
COPIED = ("src", "tests", "tools", "examples", "bench", "docs", "requirements", "pyproject.toml", "README.md", "dev")
SHORT_TIER = ("--tier", "short")
"""What pytest is given so that it collects the short tier."""
STAGE_S = 240
"""How long one child process may take. One that takes longer has caught nothing: the machine may just be busy."""
TEST_S = 60
CAUGHT, SURVIVED, UNPROVEN = "caught", "survived", "unproven"


@dataclass
class Verdict:
    """What became of one mistake. `digest` is of its text: a mistake that was changed has no verdict."""

    digest: str
    outcome: str
    check: str = ""
    files: str = ""
    is_proved: bool = False
    """Whether the test that caught it was seen to pass without it."""
    seen: str = ""
    seconds: float = 0.0
    tests: int = 0
    hung: list[str] = field(default_factory=list)


LASTING = ("digest", "outcome", "check", "files", "is_proved")
"""What is kept of a verdict. What a failure looked like and how long it took is said of one machine."""


def main(arguments: Sequence[str]) -> int:
    """Run the mistakes that are asked for, write the page, and return 1 if one of them survived."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("wanted", nargs="*", help="clauses, ids of mistakes, or patterns of ids; none: all")
    parser.add_argument("--resume", action="store_true", help="leave out what was caught and has not changed since")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default: %(default)s)")
    parser.add_argument("--page", action="store_true", help="only write the page from the verdicts there are")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children end with this process
    every = every_mistake()
    book = Book(every)
    # In the order in which they are asked for, because a run may be stopped.
    chosen = [mistake for name in asked.wanted or ["*"] for mistake in every if _is_named(mistake, name)]
    chosen = list(dict.fromkeys(chosen))
    if not chosen:
        print(f"no mistake is named {' '.join(asked.wanted)}; tests/mistakes/*.toml has their ids", file=sys.stderr)
        return 2
    if not asked.page:
        due = [mistake for mistake in chosen if not (asked.resume and book.stands(mistake))]
        print(f"{len(due)} of {len(every)} mistakes, {asked.jobs} at a time", flush=True)
        if due:
            _run(due, book, asked.jobs)
    PAGE.write_text(page(every, book), encoding="utf-8")
    left = [mistake for mistake in chosen if book.knows(mistake) and book.of(mistake).outcome != CAUGHT]
    for mistake in left:
        print(f"SURVIVOR {mistake.id} ({', '.join(mistake.clauses)}): {mistake.fault}", flush=True)
    return 1 if left else 0


def _is_named(mistake: Mistake, name: str) -> bool:
    return name in mistake.clauses or fnmatch.fnmatchcase(mistake.id, name)


# --- the state -------------------------------------------------------------------------------------------------------


class Book:
    """Verdicts by id, kept in a file that is replaced whole after each of them."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        STATE.mkdir(exist_ok=True)
        self._path = VERDICTS
        self._lock = threading.Lock()
        known = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        ids = {mistake.id for mistake in mistakes}
        self.verdicts = {name: Verdict(**value) for name, value in known.items() if name in ids}
        self._timed = STATE / "durations.json"
        self.durations: dict[str, float] = (
            json.loads(self._timed.read_text(encoding="utf-8")) if self._timed.exists() else {}
        )
        """How long each test took the last time it passed, in seconds."""

    def knows(self, mistake: Mistake) -> bool:
        """Return whether this mistake, with this text, has a verdict."""
        return mistake.id in self.verdicts and self.verdicts[mistake.id].digest == digest_of(mistake)

    def stands(self, mistake: Mistake) -> bool:
        """Return whether it was caught, and neither the planted file nor that of the test has changed since."""
        if not self.knows(mistake) or self.of(mistake).outcome != CAUGHT:
            return False
        return self.of(mistake).files == files_digest(mistake, self.of(mistake).check)

    def of(self, mistake: Mistake) -> Verdict:
        """Return the verdict of a mistake that has one."""
        return self.verdicts[mistake.id]

    def enter(self, mistake: Mistake, verdict: Verdict) -> None:
        """Keep a verdict, at once and whole."""
        with self._lock:
            self.verdicts[mistake.id] = verdict
            self.save()

    def save(self) -> None:
        """Write all verdicts."""
        draft = STATE / "verdicts.draft"
        kept = {name: {part: getattr(one, part) for part in LASTING} for name, one in sorted(self.verdicts.items())}
        draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._path)
        self._timed.write_text(json.dumps(dict(self.durations), indent=0), encoding="utf-8")


def digest_of(mistake: Mistake) -> str:
    """Return what a verdict is bound to: the text of the mistake and the clauses that have to notice it."""
    parts = (mistake.clauses, mistake.file, mistake.old, mistake.new, mistake.check)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def files_digest(mistake: Mistake, check: str) -> str:
    """Return the state of the two files that a verdict is about."""
    named = [name for name in (mistake.file, check.partition("::")[0]) if (ROOT / name).is_file()]
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in named)).hexdigest()[:16]


# --- the run ---------------------------------------------------------------------------------------------------------


def _run(due: Sequence[Mistake], book: Book, jobs: int) -> None:
    """Run the mistakes, `jobs` at a time, and end every process that was started for it."""
    try:
        copies = [Copy(STATE / f"copy-{number}", book.durations) for number in range(jobs)]
        tests = copies[0].list_tests()
        _try_all(due, tests, copies, book)
        _prove(book, copies[0])
    finally:
        for zygote in list(Zygote.living):
            zygote.end()


def _try_all(due: Sequence[Mistake], tests: Sequence[Listed], copies: Iterable[Copy], book: Book) -> None:
    """Try the mistakes out, each in a copy that no other one uses meanwhile."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)
    done = itertools.count(1)

    def one(mistake: Mistake) -> None:
        copy = free.get()
        try:
            before = book.verdicts.get(mistake.id)
            verdict = copy.try_out(mistake, tests, before.check if before else "")
            book.enter(mistake, verdict)
            said = verdict.check if verdict.outcome == CAUGHT else verdict.outcome.upper()
            print(f"{next(done)}/{len(due)} {mistake.id}: {said} ({verdict.seconds:.0f} s)", flush=True)
        finally:
            free.put(copy)

    pool = ThreadPoolExecutor(free.qsize())
    try:
        for future in [pool.submit(one, mistake) for mistake in due]:
            future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _prove(book: Book, copy: Copy) -> None:
    """Run each test that caught a mistake on a copy without one: a test that fails there has caught nothing."""
    caught = {name: one for name, one in book.verdicts.items() if one.outcome == CAUGHT and not one.is_proved}
    tests = sorted({one.check for one in caught.values() if "::" in one.check})
    passed = set()
    if tests:
        print(f"{len(tests)} tests that caught something run without a mistake", flush=True)
        passed = {one["test"] for one in copy.run_tests(tests, stop=False)[0] if one["outcome"] == "passed"}
    for name, one in caught.items():
        one.is_proved = one.check in passed or "::" not in one.check
        if not one.is_proved:
            print(f"{one.check} fails without {name} too", flush=True)
            one.outcome = UNPROVEN
    book.save()


@dataclass(frozen=True)
class Listed:
    """A test of the short tier: its node id, clauses, servers, and the check of the kit that it makes."""

    test: str
    clauses: frozenset[str]
    needs: tuple[str, ...]
    check: str


def selection(mistake: Mistake, tests: Iterable[Listed], hint: str, seconds: Mapping[str, float]) -> list[list[Listed]]:
    """Return the tests of the mistake's clauses in stages, a process each, the likeliest to notice it first.

    First comes the test that caught it the last time; then one case of each test that needs no server; then their other
    cases; then what needs a server. Within a stage: the check that the mistake names, tests about the part of the
    source that it is planted in, quick ones, and those that name few clauses.
    """
    common = ("src", "_src", "_kits", "sessions", "backends", "runs", "engine")  # say little about where it is
    places = {part for part in Path(mistake.file).with_suffix("").parts[2:] if part not in common}

    def rank(one: Listed) -> tuple[Any, ...]:
        is_near = any(place in one.test for place in places)
        is_named = (bool(mistake.check) and one.check == mistake.check) or one.test.endswith(f"[{mistake.seed}]")
        return (not is_named, not is_near, round(seconds.get(one.test, 1.0)), len(one.clauses))

    chosen = sorted((one for one in tests if one.clauses & set(mistake.clauses)), key=rank)
    hinted = [one for one in chosen if one.test == hint]
    alone = [one for one in chosen if not one.needs]
    cases: dict[str, Listed] = {}
    for one in alone:
        cases.setdefault(one.test.partition("[")[0], one)
    first = list(cases.values())
    stages = [hinted, first, [one for one in alone if one not in first], [one for one in chosen if one.needs]]
    return [stage for stage in stages if stage]


class Copy:
    """A copy of the project, in which one mistake at a time is planted and taken out again."""

    def __init__(self, folder: Path, durations: dict[str, float]) -> None:
        self.folder, self._durations = folder, durations
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, symlinks=True)  # with times, so that compiled files stay valid
            elif source.exists():
                shutil.copy2(source, folder / name)
        self._zygote = Zygote(folder)

    def list_tests(self) -> list[Listed]:
        """Collect the short tier, with the clauses of each test, unless the tests are those of the last time."""
        path, known_by = STATE / "tests.json", STATE / "tests.digest"
        digest = _digest_of_tests(self.folder)
        if not path.exists() or not known_by.exists() or known_by.read_text(encoding="utf-8") != digest:
            path.unlink(missing_ok=True)
            out = STATE / "collecting.txt"
            command = [*PYTEST, "--collect-only", "-q", "--clauses-to", str(path), *SHORT_TIER, "tests"]
            self._zygote.run(command, out, 900)
            if not path.exists():
                raise SystemExit(f"the tests could not be collected; see {out.relative_to(ROOT)}")
            known_by.write_text(digest, encoding="utf-8")
        found = json.loads(path.read_text(encoding="utf-8"))
        return [
            Listed(test, frozenset(one["clauses"]), tuple(one["needs"]), one["check"]) for test, one in found.items()
        ]

    def try_out(self, mistake: Mistake, tests: Sequence[Listed], hint: str) -> Verdict:
        """Plant the mistake, run the selection for its clauses until a test fails, and say which."""
        began = time.monotonic()
        verdict = Verdict(digest_of(mistake), SURVIVED)
        if not mistake.file:
            self._try_backend(mistake, tests, verdict)
        else:
            with self._planted(mistake):
                failed = self._first_failure(mistake, tests, hint, verdict)
            if failed is not None:
                verdict.outcome, verdict.check, verdict.seen = CAUGHT, failed["test"], failed["seen"]
        verdict.files = files_digest(mistake, verdict.check)
        verdict.seconds = round(time.monotonic() - began, 1)
        return verdict

    def _first_failure(
        self, mistake: Mistake, tests: Sequence[Listed], hint: str, verdict: Verdict
    ) -> dict[str, Any] | None:
        """Return the outcome of the first test that fails by what it sees; None if all pass."""
        looked_at: set[str] = set()
        for stage in selection(mistake, tests, hint, self._durations):
            while wanted := [one.test for one in stage if one.test not in looked_at]:
                outcomes, code = self.run_tests(wanted)
                if not outcomes and code not in (0, 1):  # nothing ran: the file itself cannot be imported
                    return {"test": stage[0].test, "seen": f"pytest ended with {code} before any test ran"}
                looked_at |= {one["test"] for one in outcomes}
                verdict.tests += len(outcomes)
                failed = [one for one in outcomes if one["outcome"] == "failed"]
                verdict.hung += [one["test"] for one in failed if one["says_nothing"]]
                if seen := [one for one in failed if not one["says_nothing"]]:
                    return seen[0]
                if not failed:  # all passed, or the process was ended: what is left of this stage is not looked at
                    break
        return None

    def _try_backend(self, mistake: Mistake, tests: Sequence[Listed], verdict: Verdict) -> None:
        """Let the checks of the kit that the short tier makes for the clause look at a wrong backend."""
        checks = {one.check for one in tests if one.check and one.clauses & set(mistake.clauses)}
        path = STATE / f"{self.folder.name}.backend.json"
        path.unlink(missing_ok=True)
        command = ["-m", "tests.mistakes.wrong_backend", mistake.id, str(path), *sorted(checks)]
        self._zygote.run(command, STATE / f"{self.folder.name}.txt", STAGE_S)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        verdict.tests = len(checks)
        if found.get("check"):
            verdict.outcome, verdict.check, verdict.seen = CAUGHT, found["check"], found["seen"]

    def run_tests(self, tests: Sequence[str], *, stop: bool = True) -> tuple[list[dict[str, Any]], int]:
        """Run tests, until one fails or all; return the outcomes of those that ran, and pytest's exit code."""
        path = STATE / f"{self.folder.name}.outcomes.jsonl"
        path.unlink(missing_ok=True)
        chosen = STATE / f"{self.folder.name}.tests"
        chosen.write_text("\n".join(tests), encoding="utf-8")
        options = [*(["-x"] if stop else []), "-q", f"--timeout={TEST_S}", "--outcomes-to", str(path)]
        command = [*PYTEST, *options, *SHORT_TIER, f"@{chosen}"]
        code = self._zygote.run(command, STATE / f"{self.folder.name}.txt", STAGE_S if stop else 3_600)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        outcomes = [json.loads(line) for line in lines]
        self._durations.update({one["test"]: one["seconds"] for one in outcomes if one["outcome"] == "passed"})
        return outcomes, code

    def _planted(self, mistake: Mistake) -> Planting:
        return Planting(self.folder / mistake.file, mistake.wrong_source(self.folder))


def _digest_of_tests(folder: Path) -> str:
    files = sorted(path for end in ("py", "toml") for path in (folder / "tests").rglob(f"*.{end}"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


class Planting:
    """A file of a copy that holds a mistake for as long as this context lasts."""

    _seconds: ClassVar[Iterator[int]] = itertools.count(10_000)

    def __init__(self, path: Path, wrong: str) -> None:
        self._path, self._wrong = path, wrong

    def __enter__(self) -> None:
        self._right, self._times = self._path.read_bytes(), self._path.stat()
        self._path.write_text(self._wrong, encoding="utf-8")
        # Compiled files are known by the second and the size: a second of its own, so that none is taken for another.
        os.utime(self._path, (self._times.st_atime, self._times.st_mtime - next(self._seconds)))

    def __exit__(self, *_: object) -> None:
        self._path.write_bytes(self._right)
        os.utime(self._path, ns=(self._times.st_atime_ns, self._times.st_mtime_ns))


PYTEST = ["-m", "pytest", "-p", "tests.mistakes.listing"]


class Zygote:
    """A Python process in a copy that forks a child for each command (tests/mistakes/zygote.py)."""

    living: ClassVar[set[Zygote]] = set()

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "CI": "1"}
        self._process = subprocess.Popen(
            ["nice", sys.executable, "-m", "tests.mistakes.zygote"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._child = 0
        self.living.add(self)

    def run(self, command: Sequence[str], output: Path, seconds: float) -> int:
        """Run a command in a child, in a process group of its own, and end it when the time is over."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": list(command), "output": str(output)}) + "\n")
        self._process.stdin.flush()
        self._child = int(self._process.stdout.readline())
        timer = threading.Timer(seconds, self._end_child)
        timer.start()
        try:
            return int(self._process.stdout.readline())
        finally:
            timer.cancel()
            self._end_child()  # and whatever it left in its group

    def _end_child(self) -> None:
        try:
            os.killpg(self._child, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self) -> None:
        """End the process and its child."""
        self.living.discard(self)
        if self._child:
            self._end_child()
        self._process.kill()
        self._process.wait()


# --- the page --------------------------------------------------------------------------------------------------------

HEAD = """# Deliberate mistakes

Written by `./dev test --deep mutants`. A *mistake* is one small change of the product's own code, or a backend that is
wrong in one place. The run plants each of them in a copy of the source, lets the tests of the short tier that name its
clauses look at it, and notes the first test that fails. A *survivor* is a mistake that all of them let pass.
"""


def page(mistakes: Sequence[Mistake], book: Book) -> str:
    """Return the page: survivors first, then the mistakes of each clause with the test that caught each."""
    known = [mistake for mistake in mistakes if book.knows(mistake)]
    left = [mistake for mistake in known if book.of(mistake).outcome != CAUGHT]
    lines = [HEAD, f"Mistakes: {len(mistakes)}. Caught: {len(known) - len(left)}. Survivors: {len(left)}."]
    if len(known) < len(mistakes):
        lines[-1] += f" Not run yet: {len(mistakes) - len(known)}."
    if left:
        lines += ["", "## Survivors", "", "| mistake | clauses | what is wrong |", "|---|---|---|"]
        lines += [f"| **{one.id}** | {_linked(one.clauses)} | {_cell(one.fault)} |" for one in left]
    by_clause: dict[str, list[Mistake]] = {}
    for mistake in mistakes:
        by_clause.setdefault(mistake.clauses[0], []).append(mistake)
    for clause in sorted(by_clause, key=lambda name: (name[0], int(name[1:].rstrip("abcdefgh")), name)):
        lines += ["", f"## {_linked([clause])}", "", "| mistake | planted in | caught by |", "|---|---|---|"]
        lines += [_row(mistake, book) for mistake in by_clause[clause]]
    return "\n".join(lines) + "\n"


def _row(mistake: Mistake, book: Book) -> str:
    also = f" (also {_linked(mistake.clauses[1:])})" if mistake.clauses[1:] else ""
    place = f"`{mistake.file.removeprefix('src/standfast/')}`" if mistake.file else "a wrong backend"
    if not book.knows(mistake):
        caught = "not run yet"
    elif book.of(mistake).outcome != CAUGHT:
        caught = f"**no check: {book.of(mistake).outcome}**"
    else:
        caught = f"`{_cell(book.of(mistake).check.removeprefix('tests/'))}`"
    return f"| {_cell(mistake.fault)}{also} | {place} | {caught} |"


def _linked(clauses: Iterable[str]) -> str:
    return ", ".join(f"[{clause}](contract.md#{clause.lower()})" for clause in clauses)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
