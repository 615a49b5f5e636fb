"""Common parts of command lines: naming and opening a store, common options, and shortened ids."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import USAGE, UsageError
from standfast._kits.operators.suggested_commands import store_command
from standfast._src.base.digits import whole_number
from standfast._src.base.errors import NotFoundError
from standfast._src.base.safe_text import safe

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store
    from standfast._src.sessions.client.stored_session import StoredSession

Commands = argparse._SubParsersAction  # argparse gives the type no public name
Run = Callable[[argparse.Namespace, Output], "int | Coroutine[Any, Any, int]"]

VARIABLE = "STANDFAST_STORE"
SHOWN_OF_SEVERAL = 10


class _Word(str):
    """Word behind `--`, never an option, whatever its first letter."""

    __slots__ = ()


class Parser(argparse.ArgumentParser):
    """Parser that takes options anywhere, and reports a mistake in one line.

    Python's own parser gives a lone word to the first place that fits before it has read the options behind it; an
    optional STORE in front of a SESSION needs all words to be counted first.
    """

    _is_inside = False

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Read the options first and then the rest, in a command without commands below it."""
        args = list(sys.argv[1:] if args is None else args)
        if self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        if "--" in args:
            # Python reads what is left a second time, and has forgotten by then that `--` stood before it.
            end = args.index("--")
            args = [*args[:end], *map(_Word, args[end + 1 :])]
        if self._is_inside:
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_inside = False

    def _parse_optional(self, arg_string: str) -> Any:
        return None if isinstance(arg_string, _Word) else super()._parse_optional(arg_string)

    def error(self, message: str) -> NoReturn:
        """Print the mistake and the way to help, and exit with the code for it."""
        self.exit(USAGE, f"{self.prog}: {safe(message)}. Try '{self.prog} --help'.\n")


def command(
    commands: Commands[Parser],
    name: str,
    run: Run,
    help: str,
    *,
    store: bool = True,
    changes: bool = False,
    asks: bool = False,
    description: str | None = None,
) -> Parser:
    """Add one command: with a store as its first word, and the options common to all commands.

    `changes`: it changes the store. `asks`: it asks before it does (`--yes`). Behind the store every command takes a
    fixed number of words; an optional part is an option, or a word could be taken for the store.
    """
    parser: Parser = commands.add_parser(name, help=help, description=description or help.capitalize() + ".")
    parser.set_defaults(run=run, changes=changes, waits=store)
    if store:
        add_store(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each record, on lines")
    if asks:
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask: it is meant")
    return parser


def group(commands: Commands[Parser], name: str, help: str) -> Commands[Parser]:
    """Add a word with commands below it, such as `sessions`; return the place to add them."""
    parser: Parser = commands.add_parser(name, help=help, description=help.capitalize() + ".")
    return parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)


def add_store(parser: argparse.ArgumentParser) -> None:
    """The store: as the first word, as an option, or from the environment."""
    parser.add_argument("store", nargs="?", metavar="STORE", help=f"path or URL of the store (else ${VARIABLE})")
    parser.add_argument("--store", dest="store_option", metavar="STORE", help="the same, as an option")
    parser.add_argument("--timeout", type=deadline, default=30.0, metavar="S", help="seconds for each question (30)")


def add_words(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the words behind the store. The last may be left out; `take_words` reads them."""
    parser.add_argument("words", nargs="*", metavar=" ".join((*names[:-1], f"[{names[-1]}]")))
    parser.set_defaults(word_names=names)


def take_words(args: argparse.Namespace) -> list[str | None]:
    """Return the words behind the store; None for an omitted last word.

    The store is among them where neither --store nor the environment names one. Where one does, a word more than the
    command takes is the store.
    """
    names: tuple[str, ...] = args.word_names
    words: list[str | None] = ([args.store] if args.store else []) + list(args.words)
    args.store = None
    is_named = bool(args.store_option or os.environ.get(VARIABLE))
    if words and (len(words) > len(names) or not is_named):
        args.store = words.pop(0)
    if not len(names) - 1 <= len(words) <= len(names):
        wanted = " ".join(("STORE", *names[:-1], f"[{names[-1]}]"))
        raise UsageError(f"this command takes {wanted}", "Give these words; --help says more.")
    store_named(args)
    return [*words, *([None] if len(words) < len(names) else [])]


def add_page(parser: argparse.ArgumentParser, limit: int) -> None:
    """Add the options for the size and the start of a page."""
    parser.add_argument("--limit", "-n", type=count, default=limit, metavar="N", help=f"show at most N ({limit})")
    parser.add_argument("--after", metavar="CURSOR", help="go on behind an earlier page")


def count(text: str) -> int:
    """Return a whole number of one or more."""
    number = whole_number(text, below=2**63)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return number


def seconds(text: str) -> float:
    """A number of seconds: 30, 0.5, 0s, 15m, 2h, 7d."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    unit = units.get(text[-1:], 0.0)
    try:
        number = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time: say 30, 0.5, 15m, 2h or 7d")
    return number


def deadline(text: str) -> float:
    """A number of seconds above zero."""
    number = seconds(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} leaves no time: say 30, 0.5 or 15m")
    return number


# --- the store -------------------------------------------------------------------------------------------------------


def store_named(args: argparse.Namespace) -> str:
    """Return the store named by a command line."""
    if args.store and args.store_option:
        raise UsageError("the store is named twice", "Give it as the first word or with --store.")
    named: str = args.store or args.store_option or os.environ.get(VARIABLE, "")
    if not named:
        raise UsageError(
            "no store is named", f"Give a path or a URL as the first word behind the command, or set ${VARIABLE}."
        )
    return named


def open_named_store(args: argparse.Namespace, *, read_only: bool = True) -> Store:
    """The store of a command line, to be used with `async with`; to be looked at unless it is to be changed."""
    from standfast._kits.operators.open_store import open_store

    return open_store(store_named(args), read_only=read_only, timeout_s=args.timeout)


# --- ids -------------------------------------------------------------------------------------------------------------


async def session_id_of(store: Store, given: str) -> str:
    """Return the id of the one session with this id or this beginning of an id."""
    session = store.session(given)
    try:
        if await session.info() is not None:
            return given
    finally:
        await session.close()
    found: list[str] = []
    after: str | None = None
    while len(found) <= SHOWN_OF_SEVERAL:
        page = await store.sessions(prefix=given, after=after, limit=SHOWN_OF_SEVERAL + 1, details=False)
        found += [one.session_id for one in page.sessions]
        after = page.after
        if after is None:
            break
    if not found:
        await _refuse_unstored(store, given)
    return only_one("session", given, found, "standfast sessions ls")


async def _refuse_unstored(store: Store, given: str) -> None:
    """Refuse a session without a record, because a run is at its first turn."""
    for status in ("running", "ready", "paused"):
        after: str | None = None
        while True:
            page = await store.runs(status=status, after=after, limit=256)
            for run in page.runs:
                if run.session_id is not None and run.session_id.startswith(given):
                    raise NotFoundError(
                        f"session {run.session_id!r} has no record yet: run {run.run_id!r} is at work on it",
                        f"See: {store_command('runs show', store.url, run.run_id)}",
                    )
            after = page.after
            if after is None:
                break


async def session_of(store: Store, given: str) -> StoredSession:
    """Return the one session with this id or this beginning of an id."""
    return store.session(await session_id_of(store, given))


async def run_id_of(store: Store, given: str) -> str:
    """Return the id of the one saved run with this id or this beginning of an id."""
    found: list[str] = []
    after: str | None = None
    while True:
        page = await store.runs(after=after, limit=256)
        for run in page.runs:
            if run.run_id == given:
                return given
            if run.run_id.startswith(given):
                found.append(run.run_id)
        after = page.after
        if after is None:
            return only_one("run", given, found, "standfast runs ls")


def only_one(kind: str, given: str, found: Sequence[str], listing: str) -> str:
    """Return the one id with this beginning; raise an error that lists the candidates if there is not exactly one."""
    if not found:
        raise NotFoundError(f"there is no {kind}: {given!r}", f"See: {listing}")
    if len(found) > 1:
        some = ", ".join(found[:SHOWN_OF_SEVERAL]) + (", …" if len(found) > SHOWN_OF_SEVERAL else "")
        raise UsageError(f"more than one {kind} begins with {given!r}: {some}", "Give more of the id.")
    return found[0]


def whoever() -> str:
    """Return the user of this command line: the user's name and the host's."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
