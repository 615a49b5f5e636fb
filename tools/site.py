"""Build the site from docs/: the pages as they are, and a reference with signatures from the docstrings (`./dev docs`).

Pages are staged in a folder of their own. What they link to outside docs/ is copied beside them, and each module that
has public names gets a page that mkdocstrings fills from its source. The menu has the sections of SECTIONS with the
pages in the order of their indexes. Whatever the builder warns of ends it: a link that leads nowhere, a name that is
not there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "build" / "site"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SECTIONS = ("tutorial", "how-to", "reference", "explanation", "decisions")
"""Folders of docs/ in the order of the menu."""
CONFIG = """[project]
site_name = "standfast"
site_description = "An agent runtime whose conversations hold."
docs_dir = "docs"
nav = {menu}
site_dir = "{target}"

[project.theme]
font = false
features = ["navigation.indexes", "navigation.sections", "content.code.copy", "search.highlight"]

[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Switch to light mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Switch to dark mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Switch to system preference"

[project.plugins.mkdocstrings.handlers.python]
paths = ["{source}"]

[project.plugins.mkdocstrings.handlers.python.options]
docstring_style = "google"
show_source = false
show_root_heading = true
show_root_full_path = false
separate_signature = true
line_length = 88
show_signature_annotations = true
members_order = "source"
heading_level = 2
"""


def stage() -> None:
    """Put everything that the builder reads into one folder."""
    shutil.rmtree(STAGE, ignore_errors=True)
    docs = STAGE / "docs"
    shutil.copytree(ROOT / "docs", docs)
    for index in list(docs.rglob("README.md")):
        index.rename(index.with_name("index.md"))
    for name in BESIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        (docs / name).write_text(re.sub(r"\]\(docs/", "](", text), encoding="utf-8")
    shutil.copytree(ROOT / "examples", docs / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for page in docs.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if page.parent != docs:
            text = text.replace("](../../", "](../")
        page.write_text(text.replace("README.md)", "index.md)"), encoding="utf-8")
    for name, text in reference().items():
        file = docs / "reference" / "api" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


Entry = str | dict[str, "str | list[Entry]"]
"""An entry of the menu: a page, or a title with a page or with entries below it."""


def menu() -> list[Entry]:
    """Build the menu of the site: the start page, then each section with the pages that its index lists."""
    sections: list[Entry] = [{"Start here": "index.md"}]
    for folder in SECTIONS:
        text = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
        title, *parts = re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]
        entries: list[Entry] = [f"{folder}/index.md", *pages_listed(folder, title)]
        for part in parts:
            entries.append({part.partition("\n")[0]: pages_listed(folder, part)})
        if folder == "reference":
            entries.append(
                {"By module": ["reference/api/index.md", *(f"reference/api/{name}" for name in api_pages())]}
            )
        sections.append({title.partition("\n")[0]: entries})
    return [*sections, {"Project": list(BESIDE)}]


def pages_listed(folder: str, text: str) -> list[Entry]:
    """Return the pages of this folder that a part of its index lists, once each, in order."""
    found = re.findall(r"^- .*?\]\(([^)/#]+\.md)\)", text, flags=re.MULTILINE)
    return [f"{folder}/{page}" for page in dict.fromkeys(found)]


def api_pages() -> list[str]:
    """Return the names of the pages with signatures, without their index."""
    return sorted(name for name in reference() if name != "index.md")


def reference() -> dict[str, str]:
    """A page for each module that has public names, and one that lists them."""
    sys.path.insert(0, str(ROOT / "src"))
    from standfast._src.exports import table

    pages: dict[str, str] = {}
    lines = ["# Reference by module", "", "Import every name from `standfast`; the module is where it lives.", ""]
    for home, names in sorted(table.PUBLIC.items()):
        page = f"{home.replace('.', '-')}.md"
        lines.append(f"- [`{home}`]({page}): {', '.join(f'`{name}`' for name in names)}")
        blocks = [f"::: standfast.{home}.{name}" for name in names]
        pages[page] = "\n\n".join([f"# {home}", *blocks]) + "\n"
    return {"index.md": "\n".join(lines) + "\n", **pages}


def toml_list(entries: list[Entry]) -> str:
    """Write entries of the menu as an inline list of TOML."""
    return f"[{', '.join(map(toml_entry, entries))}]"


def toml_entry(entry: Entry) -> str:
    """Write an entry of the menu as an inline value of TOML."""
    if isinstance(entry, str):
        return json.dumps(entry)
    return ", ".join(
        f"{{{json.dumps(title)} = {json.dumps(below) if isinstance(below, str) else toml_list(below)}}}"
        for title, below in entry.items()
    )


def main() -> int:
    """Stage the pages and let the builder do the rest."""
    parser = argparse.ArgumentParser(prog="./dev docs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--serve", action="store_true", help="serve the site on this computer and build it anew on changes"
    )
    options = parser.parse_args()
    stage()
    config = STAGE / "zensical.toml"
    target = STAGE / "html"
    config.write_text(
        CONFIG.format(target=target.name, source=str(ROOT / "src"), menu=toml_list(menu())), encoding="utf-8"
    )
    builder = [sys.executable, "-m", "zensical"]
    if options.serve:
        return subprocess.call([*builder, "serve", "-f", str(config)], cwd=STAGE)
    code = subprocess.call([*builder, "build", "--clean", "--strict", "-f", str(config)], cwd=STAGE)
    if not code:
        sys.stdout.write(f"the site is in {target.relative_to(ROOT)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
