"""A copy of the SDK's test tree that can be collected where a name that some tests import does not exist.

A test file imports private names beside public ones, for other tests than those that are run. Each import from `agents`
becomes one assignment per name, on the same line; a name that is missing becomes a stand-in that raises as soon as a
test uses it.
"""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

STAND_IN = '''"""Names that a test file imports from `agents`; a missing one raises when it is used."""

import importlib
import sys
from typing import Any

running = False
"""Whether tests run: at their collection a stand-in may be called and subclassed."""


class MissingName(Exception):
    """A test uses a name that standfast does not have."""


class Missing:
    def __init__(self, name: str, why: object) -> None:
        self.__dict__.update(name=name, why=why)

    def _use(self, *_args: Any, **_kwargs: Any) -> Any:
        if running:
            raise MissingName(f"{self.name}: {self.why}")
        return self

    __call__ = __eq__ = __bool__ = __iter__ = __getitem__ = __contains__ = __instancecheck__ = __len__ = _use
    __setattr__ = __delattr__ = __enter__ = __await__ = _use
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._use()

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: Any) -> Any:
        return ()


def imported(module: str, name: str | None = None) -> Any:
    try:
        found = importlib.import_module(module)
        if name is None:
            return found
        try:
            return getattr(found, name)
        except AttributeError:
            return importlib.import_module(f"{module}.{name}")
    except Exception as error:
        if name is None and running:
            raise
        return Missing(f"{module}.{name}" if name else module, error)
'''

CONFTEST = '''"""The fixtures of the SDK's conftest.py, with public names only."""

import os

import pytest

from tests import stand_in

os.environ.setdefault("OPENAI_API_KEY", "test_key")


@pytest.fixture(scope="session", autouse=True)
def setup_span_processor():
    from agents.tracing.provider import DefaultTraceProvider
    from agents.tracing.setup import set_trace_provider

    from .testing_processor import SPAN_PROCESSOR_TESTING

    provider = DefaultTraceProvider()
    provider.set_processors([SPAN_PROCESSOR_TESTING])
    set_trace_provider(provider)
    yield
    provider.shutdown()


@pytest.fixture(autouse=True)
def as_new():
    from agents import set_default_openai_api, set_default_openai_client, set_default_openai_key
    from agents.run import set_default_agent_runner

    from .testing_processor import SPAN_PROCESSOR_TESTING

    SPAN_PROCESSOR_TESTING.force_flush()
    SPAN_PROCESSOR_TESTING.shutdown()
    SPAN_PROCESSOR_TESTING.clear()
    set_default_openai_key(None, use_for_tracing=False)
    set_default_openai_client(None, use_for_tracing=False)
    set_default_openai_api("responses")
    set_default_agent_runner(None)
    stand_in.running = True
    yield
    stand_in.running = False


@pytest.fixture(autouse=True)
def disable_real_model_clients(monkeypatch, request):
    if request.node.get_closest_marker("allow_call_model_methods"):
        return
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel

    def failing_version(*args, **kwargs):
        pytest.fail("Real models should not be used in tests!")

    for model in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        monkeypatch.setattr(model, "get_response", failing_version)
        monkeypatch.setattr(model, "stream_response", failing_version)
'''


def prepare(archive: Path, folder: Path) -> None:
    """Copy the test tree of an unpacked source archive, with its examples, ready to run on any package `agents`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(archive / "tests", folder / "tests")
    shutil.copytree(archive / "examples", folder / "examples")
    shutil.copy(archive / "pyproject.toml", folder)
    for file in (folder / "tests").rglob("*.py"):
        file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "tests" / "stand_in.py").write_text(STAND_IN)
    (folder / "tests" / "conftest.py").write_text(CONFTEST)


def rewritten(source: str) -> str:
    """Return the source of a test file with its imports from `agents` as assignments, every line at its place."""
    tree = ast.parse(source)
    lines = source.split("\n")
    changed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "agents":
            names = [(alias.asname or alias.name, f'imported("{node.module}", "{alias.name}")') for alias in node.names]
        elif isinstance(node, ast.Import) and all(
            alias.asname and alias.name.startswith("agents.") for alias in node.names
        ):
            names = [(alias.asname or "", f'imported("{alias.name}")') for alias in node.names]
        else:
            continue
        assert node.end_lineno is not None
        before = lines[node.lineno - 1][: node.col_offset]
        after = lines[node.end_lineno - 1][node.end_col_offset or 0 :]
        lines[node.lineno - 1] = before + "; ".join(f"{name} = {value}" for name, value in names) + after
        for line in range(node.lineno, node.end_lineno):
            lines[line] = ""
        changed = True
    if not changed:
        return source
    first = next((node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"), None)
    brings = "from tests.stand_in import imported"
    if first is None:
        doc = ast.get_docstring(tree, clean=False) is not None
        place = (tree.body[0].end_lineno or 1) if doc else 0
        return "\n".join([*lines[:place], brings, *lines[place:]])
    lines[first.lineno - 1] += f"; {brings}"
    return "\n".join(lines)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), Path(sys.argv[2]))
