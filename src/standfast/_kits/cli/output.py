"""Output of a command: tables and trees for people, JSON lines for programs, progress and questions beside them.

Results go to standard output; notes, progress, questions and errors to the error stream, so that a pipe carries results
only. Every printed text goes through `safe`, from any source. On a terminal a table has a heading and is cut to the
terminal's width; in a pipe each record is one whole line with its cells separated by tabs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple, TextIO

from standfast._kits.cli.pipes import point_nowhere
from standfast._kits.cli.wait_line import WaitLine
from standfast._kits.operators.exit_codes import RefusedError
from standfast._src.base.safe_text import safe, safe_lines, shorten, width_of
from standfast._src.base.type_names import describe_type

Row = Mapping[str, Any]

WIDTH_MIN = 8
# A column that gives way keeps at least this much.

PROGRESS_AFTER_S = 0.5
PROGRESS_EVERY_S = 0.1
# What is over in a moment shows none; and a terminal is slow, and nobody reads faster.

INTERRUPT_LOOK_S = 0.25
# How long a question waits for a key before Python looks for a signal: a person does not notice it.


def as_shown(value: object) -> str:
    """Return a value for people; a dash for None."""
    return "–" if value is None else str(value)


def as_plain(value: object) -> str:
    """Return a value for a pipe: a time in ISO 8601 to the microsecond, and an empty text for None."""
    if value is None:
        return ""
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else str(value)


class Column(NamedTuple):  # not a dataclass: that is slow to import, and a listing of everything waits for it
    """Column of a table: its heading, the shown value of a row ("": the row), and the formatting."""

    title: str
    key: str
    show: Callable[[Any], str] = as_shown
    plain: Callable[[Any], str] = as_plain
    """How in a pipe, where a program may read it: no thousands apart, no "2 min ago"."""
    is_right: bool = False
    gives_way: bool = False
    """Whether it is the one that is cut when the terminal is narrow."""

    def value_in(self, row: Row) -> Any:
        """Return the shown value of a row."""
        return row.get(self.key) if self.key else row


class Node:
    """Line of a tree, and the lines below it."""

    def __init__(self, text: str, below: Sequence[Node] = ()) -> None:
        self.text, self.below = text, list(below)

    def add(self, text: str) -> Node:
        """Add a line below this one."""
        node = Node(text)
        self.below.append(node)
        return node


class Output:
    """Destination of a command's output. `changes`: the command does not stop halfway because the reader has gone."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        yes: bool = False,
        changes: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        stdin: TextIO | None = None,
    ) -> None:
        self.as_json, self.yes, self.changes = as_json, yes, changes
        self._stdout, self._stderr = stdout or sys.stdout, stderr or sys.stderr
        self._stdin = stdin or sys.stdin
        for stream in (self._stdout, self._stderr):  # what the locale cannot write is written out, not an error
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        self.is_terminal = _is_terminal(self._stdout)
        """Whether a person sees standard output as it comes."""
        self.shows_progress = _is_terminal(self._stderr) and not as_json and os.environ.get("TERM") != "dumb"
        self._progress: Progress | None = None
        self._wait_line: WaitLine | None = None
        self._is_closed = False

    # --- results -----------------------------------------------------------------------------------------------------

    def record(self, schema: str, fields: Row) -> None:
        """Print one JSON object on a line, under the name and version of its schema ("standfast.session/1")."""
        self._write(json_line({"schema": schema, **fields}))

    def line(self, text: str = "") -> None:
        """Print one line for people."""
        self._write(safe(text))

    def text(self, text: str, indent: str = "") -> None:
        """A text of several lines, each behind `indent`."""
        for one in safe_lines(text):
            self._write(f"{indent}{one}".rstrip())

    def table(self, schema: str, columns: Sequence[Column], rows: Iterable[Row]) -> int:
        """Rows as a table, as lines in a pipe, or as JSON: then each is a record with all its values. How many."""
        count = 0
        if self.as_json:
            for row in rows:
                self.record(schema, row)
                count += 1
            return count
        if not self.is_terminal:
            for row in rows:
                self._write("\t".join(safe(column.plain(column.value_in(row))) for column in columns))
                count += 1
            return count
        cells = [[safe(column.show(column.value_in(row))) for column in columns] for row in rows]
        for text in _as_table(columns, cells, self.width, pretty=self._pretty()):
            self._write(text)
        return len(cells)

    def cells(self, texts: Sequence[str]) -> None:
        """Print one row of an unfinished table: cut to the terminal, whole in a pipe."""
        row = [safe(text) for text in texts]
        self._write(shorten("  ".join(row), self.width) if self.is_terminal else "\t".join(row))

    def tree(self, root: Node) -> None:
        """Print a line and the lines below it."""
        self._write(safe(root.text))
        for text in _branches(root.below, ""):
            self._write(text)

    # --- beside them -------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Print a remark beside the results: the beginning of the next page, or omitted parts."""
        if not self.as_json:
            self._write_error_line(safe(text))

    def page(self, after: str | None, note: str = "") -> None:
        """Print the beginning of the next page (None: no more): for people a note, for programs the last record."""
        if after is not None:
            if self.as_json:
                self.record("standfast.page/1", {"after": after})
            else:
                self.note(f"{note}{'   ' if note else ''}next page: --after {after}")
        elif note:
            self.note(note)

    def report_failure(self, code: int, what: str, remedy: str) -> None:
        """Say on the error stream how a command failed."""
        if self.as_json:
            self._write_error_line(
                json_line({"schema": "standfast.error/1", "exit": code, "what": what, "remedy": remedy})
            )
            return
        ending = "" if what.endswith((".", "!", "?")) else "."
        self._write_error_line(f"standfast: {safe(what)}{ending}" + (f" {safe(remedy)}" if remedy else ""))

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Progress]:
        """Show the progress of long work if a person sees the error stream; otherwise show nothing."""
        self._progress = Progress(safe(what), total, self._stderr if self.shows_progress else None, self._wait_line)
        try:
            with self.waiting_for(what):
                yield self._progress
        finally:
            self._progress.clear()
            self._progress = None

    @contextmanager
    def waits(self, what: str) -> Iterator[None]:
        """Tell a person at a terminal, after a moment without output, what the command waits for and for how long."""
        if not self.shows_progress or self._wait_line is not None:
            yield
            return
        self._wait_line = WaitLine(safe(what), self._stderr)
        self._wait_line.start()
        try:
            yield
        finally:
            self._wait_line.stop()
            self._wait_line = None

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Name the cause of a wait in this part of a command."""
        line = self._wait_line
        if line is None:
            yield
            return
        before, line.what = line.what, safe(what)
        try:
            yield
        finally:
            line.what = before

    def confirm(self, what: str, *, details: Iterable[str] = ()) -> None:
        """Ask before something that cannot be undone; raises RefusedError unless the answer is yes.

        `what` is the question's first half ("This removes session x for good"). `--yes` answers it; without that and
        without a terminal to ask at, nothing is done.
        """
        for one in (what + ".", *details):
            self._write_error_line(safe(one))
        if self.yes:
            return
        if not self.can_ask:
            raise RefusedError("nobody can be asked here, and this cannot be undone", "Add --yes if it is meant.")
        answer = self.ask("Go on? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            raise RefusedError("nothing was changed", "")

    @property
    def can_ask(self) -> bool:
        """True if a person reads the error stream and can type an answer."""
        return not self.as_json and _is_terminal(self._stdin) and _is_terminal(self._stderr)

    def ask(self, question: str) -> str:
        """Return the line that a person types behind a question."""
        with nullcontext() if self._wait_line is None else self._wait_line.pause(), _interruptible():
            self._stderr.write(safe(question))
            self._stderr.flush()
            return _read_line(self._stdin)

    # --- how ---------------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Width of the terminal in columns ($COLUMNS counts first)."""
        from shutil import get_terminal_size

        return max(20, get_terminal_size((100, 24)).columns)

    def flush(self) -> None:
        """Write buffered output."""
        if not self._is_closed:
            self._tolerate_closed_pipe(self._stdout.flush)

    def _write(self, text: str) -> None:
        self._clear_lines()
        if not self._is_closed:
            self._tolerate_closed_pipe(lambda: self._stdout.write(text + "\n"))

    def _tolerate_closed_pipe(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BrokenPipeError:
            if not self.changes:
                raise  # there is nobody left to read for
            self._is_closed = True
            point_nowhere(self._stdout)

    def _write_error_line(self, text: str) -> None:
        self._clear_lines()
        try:
            if not self._is_closed:
                self._stdout.flush()  # in the order it was said in, where both are one terminal
            self._stderr.write(text + "\n")
            self._stderr.flush()
        except BrokenPipeError:
            pass  # nobody listens; the exit code still tells

    def _clear_lines(self) -> None:
        if self._progress is not None:
            self._progress.clear()
        if self._wait_line is not None:
            self._wait_line.clear()

    def _pretty(self) -> bool:
        return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Progress:
    """Progress of long work, on one line that is overwritten."""

    def __init__(self, what: str, total: int | None, stream: TextIO | None, wait_line: WaitLine | None = None) -> None:
        self.what, self.total, self.done = what, total, 0
        self._wait_line = wait_line
        self._stream, self._is_shown = stream, False
        self._next = monotonic() + PROGRESS_AFTER_S

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if self._stream is None or monotonic() < self._next:
            return
        self._next = monotonic() + PROGRESS_EVERY_S
        part = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}"
        if self._wait_line is not None:
            self._wait_line.clear()
            self._wait_line.what = f"{self.what}: {part}"
        self._stream.write(f"\r\x1b[2K{self.what}: {part}")
        self._stream.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown and self._stream is not None:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._is_shown = False


# --- as text ---------------------------------------------------------------------------------------------------------


def json_line(value: Mapping[str, Any]) -> str:
    """Return a value on one line of JSON in ASCII: nothing in it can act on a terminal."""
    return json_text(value, ascii_only=True).replace("\x7f", "\\u007f")


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """Return a value as JSON, with times, tuples and bytes as text. Printing makes it safe for people."""
    import json

    return json.dumps(value, default=_as_json, ensure_ascii=ascii_only, separators=(", ", ": "))


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{describe_type(value)} cannot be shown as JSON")


def _as_table(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int, *, pretty: bool) -> list[str]:
    widths = [
        max([width_of(column.title), *(width_of(row[index]) for row in cells)]) for index, column in enumerate(columns)
    ]
    room = width - sum(widths) - 2 * (len(columns) - 1)
    for index, column in enumerate(columns):
        if room < 0 and column.gives_way:
            narrower = max(min(WIDTH_MIN, widths[index]), widths[index] + room)
            room += widths[index] - narrower
            widths[index] = narrower
    if pretty:
        rich = _rich_table(columns, cells, widths, width)
        if rich is not None:
            return rich
    titles = [column.title for column in columns]
    return [_pad_row(columns, row, widths) for row in (titles, *cells)]


def _pad_row(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    shown = []
    for column, text, width in zip(columns, row, widths, strict=True):
        cut = shorten(text, width)
        gap = " " * (width - width_of(cut))
        shown.append(gap + cut if column.is_right else cut + gap)
    return "  ".join(shown).rstrip()


def _rich_table(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int], width: int
) -> list[str] | None:
    """Return the table as formatted by the extra `cli`; None without this extra."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for column, wide in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.title, "bold"), justify="right" if column.is_right else "left", no_wrap=True, max_width=wide
        )
    for row in cells:  # as Text: in a plain string rich would read [brackets] as its own marks
        table.add_row(*(Text(text) for text in row))
    console = Console(width=width, force_terminal=True, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def _branches(nodes: Sequence[Node], indent: str) -> Iterator[str]:
    for index, node in enumerate(nodes):
        is_last = index == len(nodes) - 1
        yield f"{indent}{'└─ ' if is_last else '├─ '}{safe(node.text)}"
        yield from _branches(node.below, indent + ("   " if is_last else "│  "))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a blocking read: an event loop would only cancel its task, which never gets to run."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _was_interrupted():  # a moment ago, when the loop's handler still took it
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _read_line(stream: TextIO) -> str:
    """Read a line that a person types; Ctrl-C ends the wait at any moment.

    A signal that arrives after Python's last look and before the system call blocks would be acted upon after the next
    key only. So the wait is made of short ones, and Python looks between them.
    """
    import select

    try:
        while not select.select([stream], [], [], INTERRUPT_LOOK_S)[0]:
            continue
    except (OSError, ValueError):  # a stream without a descriptor, or Windows, which selects sockets only
        pass
    return stream.readline()


def _was_interrupted() -> bool:
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
