"""The command line as such: what it imports, how words are read, and which exit code each ending has."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from standfast._kits.cli import entry
from standfast._kits.cli.arguments import Parser, command, group, seconds, store_named
from standfast._kits.cli.output import Output
from standfast._kits.operators import exit_codes
from standfast._src.base import errors

ROOT = Path(__file__).resolve().parents[2]


def standfast(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "standfast", *words], capture_output=True, text=True, check=False, timeout=120
    )
    return ended


def test_help_imports_nothing_that_is_slow() -> None:
    """It is asked often: no parser, no event loop, no JSON library, no `typing`."""
    code = (
        "import sys; from standfast._kits.cli.entry import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ended.stderr.split())
    assert "standfast._kits.cli.entry" in loaded
    assert not loaded & {"argparse", "typing", "asyncio", "msgspec", "pydantic", "sqlite3", "rich", "openai"}
    for name, (_, told) in entry.GROUPS.items():
        assert name in ended.stdout
        assert told in ended.stdout


def test_every_group_has_its_module_and_is_helpful() -> None:
    for word, (module, _) in entry.GROUPS.items():
        assert callable(import_module(module).add)
        assert entry.parser_of(word).format_help()
        assert entry.main([word, "--help"]) == 0


def test_the_installed_command_is_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["scripts"]["standfast"].partition(":")
    assert getattr(import_module(module), name) is entry.main


def test_nothing_and_nonsense_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([]) == 2
    assert "usage: standfast" in capsys.readouterr().err
    assert entry.main(["sesions"]) == 2
    assert "'sesions'" in capsys.readouterr().err
    assert entry.main(["version", "--no-such-option"]) == 2
    assert "--no-such-option" in capsys.readouterr().err


def test_version_says_which_release_this_is() -> None:
    from standfast import __version__

    ended = standfast("--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"standfast {__version__}\n")


# --- words -----------------------------------------------------------------------------------------------------------


def read(*words: str) -> argparse.Namespace:
    parser = Parser(prog="standfast")
    commands = parser.add_subparsers(parser_class=Parser)
    show = command(group(commands, "things", "things"), "show", lambda args, out: 0, "show a thing", asks=True)
    show.add_argument("thing", metavar="THING")
    found: argparse.Namespace = parser.parse_args(["things", "show", *words])
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("talks.db", "x"),
        ("talks.db", "--json", "x"),
        ("--json", "talks.db", "x"),
        ("talks.db", "x", "--json"),
        ("x", "--store", "talks.db", "--json"),
        ("--store", "talks.db", "--json", "--", "x"),
    ],
)
def test_options_may_stand_anywhere(words: tuple[str, ...]) -> None:
    args = read(*words)
    assert (store_named(args), args.thing, args.json) == ("talks.db", "x", True) or words == ("talks.db", "x")
    assert (store_named(args), args.thing) == ("talks.db", "x")


def test_an_id_that_begins_with_a_dash_can_be_given() -> None:
    args = read("talks.db", "--json", "--", "-x")
    assert (args.store, args.thing, args.json) == ("talks.db", "-x", True)


def test_the_store_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_STORE", "redis://here")
    assert (store_named(read("x")), read("x").thing) == ("redis://here", "x")
    assert store_named(read("talks.db", "x")) == "talks.db"
    monkeypatch.delenv("STANDFAST_STORE")
    with pytest.raises(exit_codes.UsageError, match="no store is named"):
        store_named(read("x"))
    with pytest.raises(exit_codes.UsageError, match="named twice"):
        store_named(read("a.db", "x", "--store", "b.db"))


@pytest.mark.parametrize("words", [(), ("a", "b", "c"), ("a", "b", "--timeout", "0"), ("a", "b", "--timeout", "nan")])
def test_wrong_words_are_usage_errors(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("standfast")


def test_lengths_of_time_are_read() -> None:
    read = [seconds(text) for text in ("30", "0.5", "15m", "2h", "7d", "9s", "0s", "0")]
    assert read == [30, 0.5, 900, 7200, 604800, 9, 0, 0]
    for text in ("", "x", "-1", "inf", "nan", "1w"):
        with pytest.raises(argparse.ArgumentTypeError):
            seconds(text)


# --- endings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exit_codes.UsageError("a", "b"), 2),
        (errors.UnknownSchemeError("a", "b"), 2),
        (errors.InvalidLimitError("a", "b"), 2),
        (errors.NotFoundError("a", "b"), 3),
        (FileNotFoundError(2, "No such file", "x"), 3),
        (errors.StoreNotFoundError("a", "b"), 4),
        (errors.NotADatabaseError("a", "b"), 4),
        (errors.StoreUnavailableError("a", "b"), 4),
        (errors.StoreTimeoutError("a", "b"), 4),
        (ImportError("a store at redis:// needs the package 'redis'"), 4),
        (errors.StoreReadOnlyError("a", "b"), 5),
        (errors.SchemaTooNewError("a", "b"), 5),
        (errors.SessionBusyError("a", "b"), 5),
        (errors.SessionConflictError("a", "b"), 5),
        (errors.AlreadyDecidedError("a", "b"), 5),
        (errors.RunClaimedError("a", "b"), 5),
        (exit_codes.RefusedError("a", "b"), 5),
        (PermissionError(13, "Permission denied", "x"), 5),
        (errors.OutcomeUnknownError("a", "b"), 6),
        (errors.StoreFullError("a", "b"), 6),
        (OSError(28, "No space left on device"), 6),
        (exit_codes.BrokeOffError("a", "b"), 6),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("x"), 70),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(args: argparse.Namespace, out: Output) -> int:
        raise error

    monkeypatch.setattr("standfast._kits.cli.version.version", fails)
    assert entry.main(["version"]) == code
    said = capsys.readouterr().err
    assert said.strip().splitlines()[-1].startswith("standfast: ")
    if isinstance(error, errors.StandfastError):
        assert said == "standfast: a. b\n"


def test_an_unknown_option_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["doctor", "talks.db", "--mend"]) == 2
    told = "standfast doctor: unrecognized arguments: --mend. Try 'standfast doctor --help'.\n"
    assert capsys.readouterr().err == told
