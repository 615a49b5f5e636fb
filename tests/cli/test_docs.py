"""The pages about the command line: their transcripts are run, and the reference has every command and option."""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import io
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast._kits.cli import entry

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCS / "reference" / "command-line.md"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "```console" in page.read_text(encoding="utf-8")]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal shows for a line of a transcript."""
    first, *rest = shlex.split(line)
    if first == "export":
        name, _, value = rest[0].partition("=")
        monkeypatch.setenv(name, value)
        return []
    assert first == "standfast", line
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        patch.setattr(sys, "stdin", io.StringIO())
        code = entry.main(rest)
    return [*screen.getvalue().splitlines(), *([f"[exit code {code}]"] if code else [])]


def fits(expected: str, line: str) -> bool:
    """Whether a line is as the page has it: "…" stands for anything, and columns may be wider than there."""
    parts = (r"\s+".join(map(re.escape, part.split(" "))) for part in re.split(r" *… *", " ".join(expected.split())))
    return re.fullmatch(r".*".join(parts) + r"\s*", line.strip()) is not None or expected.strip() == line.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_transcripts_of_this_page_are_what_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = types.ModuleType("page")
    for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            code = compile(text, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(types.FunctionType(code, module.__dict__)())
            else:
                exec(code, module.__dict__)
        elif language == "console":
            for transcript in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, *expected = transcript.rstrip("\n").split("\n")
                got = shown(line, monkeypatch)
                assert len(got) == len(expected), f"$ {line}\n" + "\n".join(got)
                for wanted, found in zip(expected, got, strict=True):
                    assert fits(wanted, found), f"$ {line}\nthe page says: {wanted}\nit says:       {found}"


def test_a_transcript_that_is_wrong_is_noticed() -> None:
    assert fits("run 6e58  paused, … · agent", "run 6e58  paused, 3 s ago · agent")
    assert fits("a      1  …            –", "a      1  just now     –")
    assert not fits("run 6e58 paused, … · agent", "run 6e59 paused, 3 s ago · agent")
    assert not fits("forgot 1 run", "forgot 2 runs")


# --- every command and option ----------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command there is, with its parser."""

    def below(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
        groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        if not groups:
            yield name, parser
        for group in groups:
            for word, inner in group.choices.items():
                yield from below(f"{name} {word}", inner)

    for word in entry.GROUPS:
        yield from below("standfast", entry.parser_of(word))


def sections() -> dict[str, str]:
    parts = re.split(r"^### `(.+)`$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


COMMON = {"--help", "-h", "--json", "--yes", "-y", "--store", "--timeout", "-n"}


def test_the_reference_has_the_commands_that_there_are() -> None:
    assert sorted(sections()) == sorted(name for name, _ in commands())


def test_the_reference_names_every_option() -> None:
    missing = [
        f"{name} {option}"
        for name, parser in commands()
        for action in parser._actions
        for option in action.option_strings
        if option not in COMMON and f"`{option}`" not in sections()[name] and option.startswith("--")
    ]
    assert not missing


def test_every_command_says_what_it_does() -> None:
    for name, parser in commands():
        assert parser.description, name
        assert all(action.help for action in parser._actions if action.option_strings), name
