"""The mistakes of a first hour: each is one sentence with a remedy, raised before anything is done."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openai import APIConnectionError, AsyncOpenAI

from standfast import (
    AdvancedSQLiteSession,
    Agent,
    EncryptedSession,
    InMemorySession,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    PostgresSession,
    RedisSession,
    RunConfig,
    Runner,
    SettingTypeError,
    SQLAlchemySession,
    SQLiteSession,
    SummarisingSession,
    UserError,
    function_tool,
)
from standfast._src.base.errors import StandfastError
from standfast.realtime import RealtimeAgent, RealtimeRunner
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers.children import import_path


def speaker() -> Agent[None]:
    return Agent(name="A", model=ScriptedModel([final("hello")]))


def test_a_first_program_without_a_key_fails_with_one_sentence_before_the_loop(tmp_path: Path) -> None:
    program = "from standfast import Agent, Runner\nRunner.run_sync(Agent(name='Host'), 'Hello.')\n"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, cwd=tmp_path, env={**environment, "PYTHONPATH": import_path()},
    )  # fmt: skip
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    assert lines[-1].startswith("standfast.UserError: no OpenAI client can be made: ")
    assert "Set OPENAI_API_KEY" in lines[-1]
    assert ended.stderr.count('  File "') < 10  # how many lines each has depends on the Python
    assert "asyncio" not in ended.stderr


def test_a_text_in_the_place_of_a_session_is_refused_with_the_line_to_write() -> None:
    with pytest.raises(SettingTypeError, match=r"session is a str .* SQLiteSession\('user-1', 'conversations.db'\)"):
        Runner.run_sync(speaker(), "hi", session="user-1")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_a_network_that_is_down_is_named_with_the_address(kind: type) -> None:
    client = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0)
    with pytest.raises(APIConnectionError) as failed:
        Runner.run_sync(Agent(name="A", model=kind("gpt-5", client)), "hi")
    assert "No answer came from http://127.0.0.1:9/v1/" in "".join(traceback.format_exception(failed.value))


def test_a_parameter_without_a_schema_is_named() -> None:
    class Database: ...

    with pytest.raises(UserError, match=r"the parameter 'db' of 'find' is Database, which no JSON schema describes"):

        @function_tool
        def find(text: str, db: Database) -> str:
            """Find."""
            return text


def test_an_item_without_a_role_is_named_by_its_place() -> None:
    with pytest.raises(UserError, match="item 1 of the input has content, and neither a role nor a type"):
        Runner.run_sync(speaker(), [{"role": "user", "content": "hi"}, {"content": "again"}])


def test_results_and_sessions_show_themselves_in_a_notebook(tmp_path: Path) -> None:
    session = SQLiteSession("guest-42", tmp_path / "talks.db")
    result = Runner.run_sync(speaker(), "hi", session=session)
    assert repr(result).startswith(
        f"<RunResult of run {result.run_id}: done, last agent 'A', 1 new item, 1 response, 1"
    )
    assert repr(result).endswith("final output of type str>")
    assert "- 1 new item, 1 response, 1 turn" in str(result)
    assert repr(session) == f"<SQLiteSession 'guest-42' in {str(tmp_path / 'talks.db')!r}>"
    session.close()
    assert repr(session).endswith(", closed>")
    assert repr(InMemorySession("s")) == "<InMemorySession 's'>"


def test_a_result_and_a_state_show_what_waits_for_a_person() -> None:
    @function_tool(needs_approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([[function_call("pay", {"cents": 5}, call_id="call-1")]])
    result = Runner.run_sync(Agent(name="A", tools=[pay], model=model), "hi")
    assert repr(result).endswith("1 turn, waits for a decision about pay>")
    assert str(result).endswith("\n- waits for a decision about pay")
    assert repr(result.to_state()).endswith("status='paused', turns=1, waiting=['pay'])")
    assert "cents" not in repr(result) + repr(result.to_state())


def test_an_error_has_one_full_stop_and_the_right_article() -> None:
    assert str(StandfastError("it ended.", "Begin again.")) == "it ended. Begin again."
    with pytest.raises(UserError, match="the input of a run is an int"):
        Runner.run_sync(speaker(), 5)  # type: ignore[arg-type]


SESSIONS = [
    AdvancedSQLiteSession, EncryptedSession, InMemorySession, OpenAIConversationsSession,
    OpenAIResponsesCompactionSession, PostgresSession, RedisSession, SQLAlchemySession, SQLiteSession,
    SummarisingSession,
]  # fmt: skip
METHODS = [getattr(kind, name) for kind in (Runner, RealtimeRunner) for name in vars(kind) if not name.startswith("_")]
ENTRY_POINTS = [*METHODS, *SESSIONS, Agent, RealtimeAgent, RealtimeRunner, RunConfig, function_tool]


@pytest.mark.parametrize("entry", ENTRY_POINTS, ids=lambda one: one.__qualname__)
def test_an_entry_point_describes_each_of_its_arguments(entry: Any) -> None:
    text = inspect.getdoc(entry) or ""
    described = re.findall(r"^    (\w+): \S", text.partition("Args:\n")[2].partition("\n\n")[0], re.MULTILINE)
    known = [name for name in inspect.signature(entry).parameters if name not in ("self", "cls")]
    assert sorted(described) == sorted(known)


def test_the_arguments_of_a_run_config_are_described_as_its_fields_are() -> None:
    """Two places for one sentence: an editor shows one of them at the call, and the other at the field."""
    (node,) = ast.parse(inspect.getsource(RunConfig)).body
    assert isinstance(node, ast.ClassDef)
    text = " ".join((RunConfig.__doc__ or "").split())
    for field, words in pairwise(node.body):
        if isinstance(field, ast.AnnAssign) and isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
            first = re.split(r"(?<=\.)\s+(?=[A-Z`\"])", " ".join(str(words.value.value).split()))[0]
            assert f"{ast.unparse(field.target)}: {first}" in text
