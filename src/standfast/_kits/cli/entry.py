"""Entry point of the command `standfast`: the groups of commands, and the handling of each ending.

`standfast --help` answers from the table below and imports nothing more, because it is used often and must be fast. A
group's module is imported when one of its commands is used, and the libraries of a store when the store is opened.
"""

from __future__ import annotations

import os
import sys

from standfast._kits.cli.pipes import point_nowhere

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would cost more than all of `--help`
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from standfast._kits.cli.output import Output

GROUPS: dict[str, tuple[str, str]] = {  # word: (module that has `add(commands)`, what it is for)
    "sessions": ("standfast._kits.cli.sessions", "conversations: ls, show, tail, search, copy, undo, rm and more"),
    "runs": (
        "standfast._kits.cli.runs",
        "saved runs: ls, show, result, resume, approve, reject, hold, cancel, unlock, prune",
    ),
    "budgets": ("standfast._kits.cli.budgets", "budgets that runs share: ls, set, unset"),
    "send": ("standfast._kits.cli.send", "send a message to a conversation in any state"),
    "verify": ("standfast._kits.cli.verify", "whether a store keeps the contract, in a scratch name space of it"),
    "doctor": ("standfast._kits.cli.doctor", "what is wrong with a store, repairing it, and undoing that"),
    "chat": ("standfast._kits.cli.chat", "talk to an agent in the terminal"),
    "inspect": ("standfast._kits.cli.inspect_command", "conversations, calls and costs on a page in the browser"),
    "as-agents": ("standfast._kits.cli.as_agents", "run a program that imports `agents`, unchanged, on standfast"),
    "demo": ("standfast._kits.cli.demo", "see a conversation hold: a writer is killed, again and again"),
    "version": ("standfast._kits.cli.version", "which release this is, and what it finds installed"),
}
OTHER_OPTIONS = {"--version": "version", "-V": "version"}

HEAD = """usage: standfast COMMAND ...

Look into the conversations and runs of a store, decide about them, repair and move them.

commands:
"""
TAIL = """
STORE is a path or a URL: talks.db, sqlite:///talks.db, redis://host/0, postgresql://user@host/database. It may be left
out where $STANDFAST_STORE or --store names it. `standfast COMMAND --help` says more of each command.
Exit codes: 0 done, 1 found something, 2 usage, 3 not there, 4 store unreachable, 5 refused, 6 broke off and can be
repeated, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            (sys.stderr if not words else sys.stdout).write(overview())
            sys.stdout.flush()
            return 0 if words else 2
        word = OTHER_OPTIONS.get(words[0], words[0])
        if word not in GROUPS:
            from standfast._kits.operators.exit_codes import USAGE

            known = ", ".join(GROUPS)
            sys.stderr.write(f"standfast: there is no command {words[0]!r}. There are: {known}.\n")
            return USAGE
        return _carried_out(word, words[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read this has seen enough
        point_nowhere(sys.stdout)
        return 0


def overview() -> str:
    """Return the text of `standfast --help`."""
    return HEAD + "".join(f"  {name:<10} {help}\n" for name, (_, help) in GROUPS.items()) + TAIL


def parser_of(word: str) -> argparse.ArgumentParser:
    """The parser of the whole command line, with the commands of one group."""
    from importlib import import_module

    from standfast._kits.cli.arguments import Parser

    parser = Parser(prog="standfast", add_help=False)
    commands = parser.add_subparsers(dest="group", required=True, metavar="COMMAND", parser_class=Parser)
    import_module(GROUPS[word][0]).add(commands)
    parser.prog = f"standfast {word}"  # an option that is not known is reported by this parser: name the command's help
    return parser


def _carried_out(word: str, rest: Sequence[str]) -> int:
    from contextlib import nullcontext

    from standfast._kits.cli.output import Output
    from standfast._kits.operators import exit_codes

    try:
        args = parser_of(word).parse_args([word, *rest])
    except SystemExit as ended:  # argparse has said why, or has shown its help
        sys.stdout.flush()
        return int(ended.code or 0)
    out = Output(
        as_json=getattr(args, "json", False), yes=getattr(args, "yes", False), changes=getattr(args, "changes", False)
    )
    try:
        is_told = out.shows_progress and getattr(args, "waits", False)
        with out.waits(f"asking {_name_store(args)}") if is_told else nullcontext():
            code: int = exit_codes.run_to_exit_code(args.run(args, out))
        out.flush()
        return code
    except BrokenPipeError:
        point_nowhere(sys.stdout)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return _report_error(error, out)


def _name_store(args: argparse.Namespace) -> str:
    from standfast._kits.cli.arguments import VARIABLE
    from standfast._kits.operators.store_url import without_password

    named = getattr(args, "store_option", None) or os.environ.get(VARIABLE) or getattr(args, "store", None)
    return without_password(str(named)) if named else "the store"


def _report_error(error: BaseException, out: Output) -> int:
    """Print an error and its remedy on the error stream; return the exit code."""
    from standfast._kits.operators import exit_codes

    ending = exit_codes.ending_of(error)
    if ending.code == exit_codes.DEFECT:
        import traceback

        traceback.print_exception(error)
    out.report_failure(*ending)
    return ending.code
