"""`standfast as-agents`: run an unchanged program for the OpenAI Agents SDK on standfast.

The process is replaced by a new Python, as `python app.py` would start it: tracebacks, exit codes, signals and
`__main__` are the program's own. Running the program inside this process was rejected, because its child processes
(spawn, uvicorn's workers, Celery's) would import the SDK again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from standfast._kits.cli.arguments import Commands, Parser
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import UsageError

SITE = Path(__file__).parent / "as_agents_site"
VARIABLE = "STANDFAST_AS_AGENTS"


class _ProgramParser(Parser):
    """Parser of a command line like that of `python`: options end at the program."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Leave every word from the program on to the program."""
        words = list(args or ())
        begin = next((at for at, word in enumerate(words) if word not in self._option_string_actions), len(words))
        ours = words[:begin]
        parsed, _ = argparse.ArgumentParser.parse_known_args(self, ours, namespace)
        parsed.program = words[begin:][words[begin : begin + 1] == ["--"] :]
        return parsed, []


def add(commands: Commands[Parser]) -> None:
    """Add `as-agents`."""
    help = "run a program that imports `agents`, unchanged, on standfast"
    parser: Parser = commands.add_parser(
        "as-agents",
        help=help,
        description=f"{help.capitalize()}. Its child processes are run so, too.",
        usage="standfast as-agents [--distribution] (app.py | -m module | -c code) [words of the program]",
    )
    parser.__class__ = _ProgramParser
    parser.set_defaults(run=run, changes=False)
    parser.add_argument(
        "--distribution",
        action="store_true",
        help="also answer for the distribution openai-agents, which packages that instrument the SDK look for",
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Replace this process by the program's."""
    if not args.program or args.program in (["-m"], ["-c"]):
        raise UsageError("there is no program to run", "Give it as to Python: app.py, -m module or -c code.")
    out.flush()
    os.execve(sys.executable, [sys.executable, *args.program], environment(os.environ, args.distribution))


def environment(inherited: Mapping[str, str], distribution: bool) -> dict[str, str]:
    """Return the environment in which every Python begins with `install_as_agents`."""
    path = [str(SITE), *filter(None, [inherited.get("PYTHONPATH")])]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(path),
        VARIABLE: "distribution" if distribution else "1",
    }
