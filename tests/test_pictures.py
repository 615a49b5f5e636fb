"""The pictures in docs/ are what their tables say, and the recording is what the command says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import pictures
    import recording
finally:
    sys.path.pop(0)  # tools/site.py is not the standard library's

DRAWN = [*(ROOT / one.file for one in pictures.PICTURES), recording.FILE]
AGAIN = "draw it again with: ./dev pictures"


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda one: Path(one.file).stem)
def test_a_picture_says_what_the_table_below_it_says(picture: pictures.Bars | pictures.Squares) -> None:
    assert (ROOT / picture.file).read_text(encoding="utf-8") == pictures.drawn(picture), AGAIN


def test_the_recording_is_what_the_command_says_now() -> None:
    kept = recording.FILE.read_text(encoding="utf-8")
    assert recording.comparable(kept) == recording.comparable(recording.drawn(recording.recorded())), AGAIN


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.stem)
def test_a_picture_can_be_read_without_seeing_it_light_or_dark_and_loads_nothing(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    inside = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert root.findtext(f"{inside}title")
    assert root.findtext(f"{inside}desc")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"href|url\(|<script|@import", text)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = [page for page in pages if re.search(rf"!\[[^\]]{{20,}}\]\([^)]*{file.name}\)", page.read_text("utf-8"))]
    assert shown, "no page shows it, with words for those who do not see it"


def test_a_table_that_is_gone_is_named() -> None:
    with pytest.raises(SystemExit, match="there is no table with 'case' and 'furlongs'"):
        pictures.table("| case | ms |\n|---|---|\n| a | 1 |\n", "case", "furlongs")
