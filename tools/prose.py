"""Measure the prose of `src`, and refuse a folder whose prose has become worse (part of `./dev lint`).

`tools/prose.toml` holds what each folder is allowed. A folder may only get better:

    python tools/prose.py             compare with the table; exit 1 where a folder exceeds it
    python tools/prose.py FOLDER ...  list every finding in these folders or files
    python tools/prose.py --lower     write today's lower figures into the table
    python tools/prose.py --figures   print the figures of each folder

Rules: the first sentence of a docstring begins with a verb or a noun phrase, actors are named, a function that acts is
a verb, and acts have technical names. The pairs of words are read from `docs/explanation/glossary.md`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/standfast"
ALLOWED = ROOT / "tools" / "prose.toml"
GLOSSARY = ROOT / "docs" / "explanation" / "glossary.md"
HEADER = "# What each folder of `src` may still contain of unclear prose. `python tools/prose.py --lower` lowers it.\n"
SHOWN_MAX = 12

PRONOUN = re.compile(
    r"\b(whoever|whatever|what|who|which|that|whose|whom|where|nobody|somebody|none|one|ones|other|others|another"
    r"|it|its|them|they|those|these|this|such|theirs)\b",
    re.IGNORECASE,
)
OPENER = re.compile(r"(What|Who|Whoever|Whether|Which|Where|Those|How|When)\b")
ACTOR = re.compile(r"\b(whoever|somebody|someone|nobody|no one|anybody|others|those who)\b", re.IGNORECASE)
PREPOSITION = re.compile(
    "of|on|in|at|by|for|from|to|under|over|with|without|into|behind|beside|before|after|around|through|inside|outside"
    "|as|than|upto"
)
PARTICIPLE = re.compile("told|said|done|gone|left|begun|held|known|kept|made|given|taken|found|seen|shown|written|sent")
# In one paragraph: two pronouns are too few to judge by, and a seventh of the words is three times the field's share.
DENSE_PRONOUNS_MIN = 3
DENSE_SHARE = 0.15

Counts = dict[str, int]
KINDS = ("openers", "dense", "actors", "everyday", "names")


@dataclass(frozen=True)
class Finding:
    """One place that a rule objects to."""

    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        where = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{where}:{self.line}: {self.kind}: {self.text}"


def word_pairs(page: str) -> dict[str, str]:
    """Read the table of words to avoid from the glossary: each everyday word with the technical ones."""
    _, _, table = page.partition("| Instead of | Write |")
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", table, flags=re.MULTILINE)
    return {left: right for left, right in rows if not left.startswith("---")}


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a method is read as a value, for which a participle is a good name."""
    names = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name.endswith(("property", ".setter", ".deleter")) for name in names)


def is_unclear_name(name: str) -> bool:
    """Return whether a function's name is a preposition or a participle instead of a verb."""
    words = name.strip("_").split("_")
    if len(words) == 1 and (PREPOSITION.fullmatch(words[0]) or re.search(r"((?<!e)ed|ing)$", words[0])):
        return True
    if words[0] == "read" and len(words) > 1:
        words = words[1:]  # `read_text` is a verb with its object, as in pathlib and importlib.metadata
    return any(PARTICIPLE.fullmatch(word) for word in (words[0], words[-1]))


def findings_in_name(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    """Yield a finding if a function's name is not a verb."""
    if not node.name.startswith("__") and is_unclear_name(node.name) and not is_property(node):
        yield Finding(path, node.lineno, "names", f"{node.name}: name a function that acts by a verb")


def findings_in_docstring(path: Path, line: int, doc: str, pairs: dict[str, str]) -> Iterator[Finding]:
    """Yield what the rules object to in one docstring; the shares are taken from its first paragraph."""
    first = re.split(r"\n\s*\n", doc)[0].replace("\n", " ")
    if OPENER.match(first):
        yield Finding(path, line, "openers", f"begin with a verb or a noun phrase: {first[:90]}")
    pronouns, words = len(PRONOUN.findall(first)), len(first.split())
    if pronouns >= DENSE_PRONOUNS_MIN and pronouns > DENSE_SHARE * words:
        yield Finding(path, line, "dense", f"{pronouns} of {words} words are pronouns: {first[:90]}")
    for word, better in pairs.items():
        for _ in re.finditer(rf"\b{re.escape(word)}\b", doc, flags=re.IGNORECASE):
            yield Finding(path, line, "everyday", f"{word!r}: write {better}")


def findings_in_text(path: Path, line: int, text: str) -> Iterator[Finding]:
    """Yield the actors without a name in a docstring, a message or a comment."""
    for found in ACTOR.finditer(text):
        yield Finding(path, line, "actors", f"{found[0]!r}: write caller, worker, process, operator, model or server")


def read(path: Path, pairs: dict[str, str]) -> tuple[list[Finding], Counts]:
    """Return what the rules object to in one file, and its pronouns and words."""
    source = path.read_text(encoding="utf-8")
    found: list[Finding] = []
    counts = {"pronouns": 0, "words": 0}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            found += findings_in_text(path, node.lineno, node.value)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += findings_in_name(path, node)
        if doc := ast.get_docstring(node):
            found += findings_in_docstring(path, line, doc, pairs)
            first = re.split(r"\n\s*\n", doc)[0]
            counts["pronouns"] += len(PRONOUN.findall(first))
            counts["words"] += len(first.split())
    for number, text in enumerate(source.splitlines(), start=1):
        if comment := re.search(r"(?:^|\s)# .*", text):
            found += findings_in_text(path, number, comment[0])
    return found, counts


def folder_of(path: Path, package: Path) -> str:
    """Return the folder whose figures a file belongs to: `_src/items`, `_src/runs/loop`, `_kits/cli`, or `.`."""
    parts = path.relative_to(package).parts[:-1]
    depth = 3 if parts[1:2] and parts[1] in ("runs", "realtime", "sessions") else 2
    return "/".join(parts[:depth]) if parts and parts[0] in ("_src", "_kits") else "."


def measure(package: Path, pairs: dict[str, str]) -> tuple[dict[str, Counts], dict[str, list[Finding]]]:
    """Return the figures and the findings of every folder, without the generated modules outside `_src` and `_kits`."""
    figures: dict[str, Counts] = defaultdict(lambda: dict.fromkeys((*KINDS, "pronouns", "words"), 0))
    found: dict[str, list[Finding]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        if (folder := folder_of(path, package)) == ".":
            continue
        findings, counts = read(path, pairs)
        found[folder] += findings
        for finding in findings:
            figures[folder][finding.kind] += 1
        for name, count in counts.items():
            figures[folder][name] += count
    return dict(figures), dict(found)


def exceeded(now: Counts, allowed: Counts) -> list[str]:
    """Name the figures of a folder that are worse than allowed.

    Pronouns are too many only if their count and their share have both grown: neither a good new docstring
    nor a deleted one makes a folder worse.
    """
    worse = [kind for kind in KINDS if now[kind] > allowed.get(kind, 0)]
    pronouns, words = allowed.get("pronouns", 0), allowed.get("words", 0)
    share_has_grown = now["pronouns"] * max(words, 1) > pronouns * max(now["words"], 1)
    # A folder without an entry, and one that is better than the goal already, have the goal as their limit.
    is_above_goal = now["pronouns"] > 0.06 * now["words"]
    return [*worse, "pronouns"] if now["pronouns"] > pronouns and share_has_grown and is_above_goal else worse


def lowered(now: Counts, allowed: Counts | None) -> Counts:
    """Return what a folder is allowed from now on: today's figures where they are lower."""
    if allowed is None:
        return now
    kept = {kind: min(now[kind], allowed.get(kind, 0)) for kind in KINDS}
    better_share = now["pronouns"] * max(allowed.get("words", 0), 1) <= allowed.get("pronouns", 0) * max(
        now["words"], 1
    )
    share = now if better_share else allowed
    return kept | {"pronouns": share.get("pronouns", 0), "words": share.get("words", 0)}


def write_table(table: dict[str, Counts], path: Path) -> None:
    """Write the allowed figures, one line for each folder."""
    lines = [
        f'"{folder}" = {{ ' + ", ".join(f"{name} = {count}" for name, count in counts.items()) + " }\n"
        for folder, counts in sorted(table.items())
    ]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")


def report(figures: dict[str, Counts]) -> str:
    """Lay out the figures of each folder and their sum, as a table for a person."""
    total = {name: sum(counts[name] for counts in figures.values()) for name in (*KINDS, "pronouns", "words")}
    lines = [f"{'folder':28}" + "".join(f"{kind:>10}" for kind in KINDS) + f"{'pronouns':>11}"]
    for folder, counts in [*sorted(figures.items()), ("all", total)]:
        share = 100 * counts["pronouns"] / max(counts["words"], 1)
        lines.append(f"{folder:28}" + "".join(f"{counts[kind]:10}" for kind in KINDS) + f"{share:9.1f} %")
    return "\n".join(lines)


def check(figures: dict[str, Counts], found: dict[str, list[Finding]], table: dict[str, Counts]) -> list[str]:
    """Return a message for each folder and rule that is worse than allowed, with the newest files' findings first."""
    messages = []
    for folder, now in sorted(figures.items()):
        for kind in exceeded(now, table.get(folder, {})):
            was = table.get(folder, {}).get(kind, 0)
            shown = [finding for finding in found[folder] if finding.kind == ("dense" if kind == "pronouns" else kind)]
            shown.sort(key=lambda finding: -finding.path.stat().st_mtime)
            messages.append(f"prose: {folder}: {kind}: {now[kind]}, and {was} are allowed. The newest files first:")
            messages += [f"  {finding}" for finding in shown[:SHOWN_MAX]]
    if messages:
        messages += [
            "prose: rewrite what you added (docs/explanation/glossary.md). A figure of tools/prose.toml may rise only",
            "prose: by what another folder lost because files moved; write that by hand.",
        ]
    return messages


def main(arguments: list[str]) -> int:
    """Run the command line of this tool."""
    pairs = word_pairs(GLOSSARY.read_text(encoding="utf-8"))
    if arguments and not arguments[0].startswith("-"):
        for name in arguments:
            files = sorted(Path(name).rglob("*.py")) if Path(name).is_dir() else [Path(name)]
            for finding in (finding for file in files for finding in read(file.resolve(), pairs)[0]):
                print(finding)
        return 0
    figures, found = measure(ROOT / PACKAGE, pairs)
    table: dict[str, Counts] = tomllib.loads(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else {}
    if arguments == ["--figures"]:
        print(report(figures))
        return 0
    if arguments == ["--lower"]:
        write_table({folder: lowered(now, table.get(folder)) for folder, now in figures.items()}, ALLOWED)
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    messages = check(figures, found, table)
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
