"""Every finding of the security reviews has a test that fails where it comes back: `findings.toml` is the list."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDINGS = tomllib.loads((Path(__file__).parent / "findings.toml").read_text(encoding="utf-8"))["finding"]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding["id"])
def test_a_finding_names_a_test_that_exists(finding: dict[str, str]) -> None:
    path, _, name = finding["test"].partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names, f"{finding['id']} ({finding['what']}): {path} has no {name}; name the test that replaced it"


def test_every_finding_is_one_row_with_a_test_of_its_own() -> None:
    assert all(finding.keys() == {"id", "what", "test"} for finding in FINDINGS)
    for key in ("id", "what", "test"):
        values = [finding[key] for finding in FINDINGS]
        assert len(values) == len(set(values)), key
    assert all(re.fullmatch(r"[A-G]\d{1,2}", finding["id"]) for finding in FINDINGS)
    assert {finding["id"][0] for finding in FINDINGS} == set("ABCDEFG")
