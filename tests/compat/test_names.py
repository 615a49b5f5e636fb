"""Every public name of the OpenAI Agents SDK is in standfast under the same path, or says why not and what to do.

The SDK that is installed is read, file by file: every module without an underscore, and in it what `__all__` names or
what has a docstring. No list of names is kept here, so a new release of the SDK fails this test with what it added.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import standfast
from standfast._src.exports.absent import ABSENT
from tests.helpers.tables import for_each

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "move-from-openai-agents.md"

# What may be missing as long as it explains itself: what was decided for all of standfast ...
FAMILIES = {
    "computer use",
    "shell tools",
    "patch tools",
    "sandbox",
    "codex",
    "voice pipelines",
    "sessions on MongoDB",
    "sessions on Dapr",
}
# ... and, besides, with its reason; the guide to moving has both.
DEVIATIONS = {
    "Responses API over a websocket": "over HTTP a lost answer has a status, an id and a retry known to be safe (D5)",
    "hosted multi-agent beta": "an experiment of the provider's: agents that run there leave no history here (C3)",
    "reasoning content over Chat Completions": "that API neither takes nor gives reasoning, and other servers differ",
    "machinery of the SDK's own loop": "functions that pass the SDK's own state from one of its modules to the next",
}
# A module that would hide the function of its name, which is what programs import from `standfast` itself.
HIDING = {"agents.responses_websocket_session"}


@cache
def modules() -> dict[str, Path]:
    """Every public module of the installed SDK. `run_internal` says by its name that it is none."""
    spec = find_spec("agents")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    found = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") or part == "run_internal" for part in parts):
            found[".".join(("agents", *parts))] = file
    return found


def public_names(file: Path) -> list[str]:
    """What a module offers: its `__all__`, or what it defines and documents."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    listed = [node for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    if listed:
        return [name for name in ast.literal_eval(listed[-1].value) if not name.startswith("_")]
    names = []
    for node, follower in zip(body, [*body[1:], None], strict=False):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                documented = ast.get_docstring(node) is not None
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                documented = isinstance(follower, ast.Expr) and isinstance(follower.value, ast.Constant)
            case _:
                continue
        if documented and not name.startswith("_"):
            names.append(name)
    return names


def failure(module: str, name: str | None) -> str | None:
    """What importing this with one word changed says; None if it works."""
    ours = module.replace("agents", "standfast", 1)
    try:
        exec(f"import {ours}" if name is None else f"from {ours} import {name}", {})
    except ImportError as error:
        return str(error)
    return None


def is_allowed(reason: str) -> bool:
    kinds = (*FAMILIES, *DEVIATIONS)
    return any(reason.startswith(f"standfast has no {kind}, so there is no ") for kind in kinds)


@for_each("module", modules())
def test_a_public_module_of_the_sdk_is_there_with_its_names_or_says_what_to_do_instead(module: str):
    if module in HIDING:
        module = "agents"
    names = [None, *public_names(modules()[module])]
    failed = {name: reason for name in names if (reason := failure(module, name)) is not None}
    unexplained = {name: reason for name, reason in failed.items() if not is_allowed(reason)}
    assert not unexplained


def test_modules_are_attributes_of_the_package_as_they_are_there():
    import agents as sdk

    modules = {name: value for name, value in vars(sdk).items() if type(value) is type(sdk)}
    theirs = [name for name, value in modules.items() if value.__name__ == f"agents.{name}"]
    ours = [name for name in theirs if not name.startswith("_") and name != "run_internal"]
    missing = [name for name in ours if failure(f"agents.{name}", None) is None and not hasattr(standfast, name)]
    assert len(ours) > 20
    assert not missing


NAMES = [(kind, name) for kind, about in ABSENT.items() for name in about.names.split()]


@for_each(("kind", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_name_that_is_not_there_says_so_and_what_to_do(kind: str, name: str):
    with pytest.raises(ImportError) as caught:
        exec(f"from standfast import {name}")
    assert str(caught.value) == f"standfast has no {kind}, so there is no {name}. {ABSENT[kind].instead}"


@for_each("module", [module for about in ABSENT.values() for module in about.modules])
def test_anything_from_a_module_that_is_not_there_says_so(module: str):
    for statement in (
        f"import standfast.{module}",
        f"import standfast.{module}.whatever",
        f"from standfast.{module} import Whatever",
        f"from standfast.{module}.whatever import Whatever",
    ):
        with pytest.raises(ImportError, match=r"standfast has no .*, so there is no standfast\."):
            exec(statement)


def test_what_is_not_there_is_not_offered_either():
    assert not {name for _, name in NAMES} & set(dir(standfast))


def test_the_guide_to_moving_lists_every_kind_of_thing_that_is_not_there():
    text = GUIDE.read_text(encoding="utf-8")
    assert [kind for kind in ABSENT if f"| {kind} |" not in text] == []


def test_the_reading_finds_what_it_is_meant_to_find():
    """The test can fail: a documented name that standfast has not is not passed over."""
    assert "get_default_model" in public_names(modules()["agents.models"])
    assert "serialize_usage" in public_names(modules()["agents.usage"])
    assert len(modules()) > 150
    assert failure("agents.usage", "no_such_name") is not None
    assert not is_allowed("cannot import name 'x' from 'standfast.usage'")
    assert import_module("agents.usage")
