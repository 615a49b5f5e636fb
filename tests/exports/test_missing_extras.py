"""Without an extra, whatever needs it says which command installs it: in a process that cannot see its packages."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from standfast._src.base.extras import EXTRAS

ROOT = Path(__file__).parents[2]

BARE = """
import sys

class Bare:
    '''Finds nothing that an extra installs.'''

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Bare)
try:
    {use}
except ImportError as error:
    print(type(error).__name__, error)
"""

LITELLM = "standfast.extensions.models.litellm_model"
USES = {
    "from standfast import Agent, Runner; Runner.run_sync(Agent(name='Host'), 'Hello.')": "openai",
    "from standfast.testing.loopback import LoopbackServer; LoopbackServer().client()": "openai",
    "from standfast import OpenAIConversationsSession": None,  # it asks for a client when it is used
    "from standfast import RedisSession": "redis",
    "from standfast import PostgresSession": "postgres",
    "from standfast import SQLAlchemySession": "sqlalchemy",
    "from standfast import EncryptedSession": "encrypt",
    "from standfast.extensions.memory import RedisSession": "redis",
    "from standfast import open_store; open_store('redis://localhost')": "redis",
    "from standfast import open_store; open_store('postgresql://localhost/x')": "postgres",
    "from standfast.workers.procrastinate_queue import RunQueue": "procrastinate",
    "from standfast.workers.dbos_workflows import RunWorkflows": "dbos",
    "from standfast.workers.temporal_workflows import TemporalRuns": "temporal",
    "from standfast import price_of": "prices",
    "from standfast.mcp import MCPServerStdio": "mcp",
    "from standfast.realtime import OpenAIRealtimeWebSocketModel": "realtime",
    "from standfast.testing import LoopbackRealtimeServer": "realtime",
    "from standfast.conformance import suite": "conformance",
    "from standfast.conformance import check": None,  # checks that need Hypothesis are left out where there is none
    f"from {LITELLM} import LitellmModel as Model; Model('a').completion_function(retries=True)": "litellm",
}


def printed(use: str) -> str:
    program = BARE.format(use=use, hidden=frozenset(EXTRAS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("use", "extra"), USES.items(), ids=list(USES))
def test_what_needs_an_extra_names_the_command_that_installs_it(use: str, extra: str | None) -> None:
    found = printed(use)
    if extra is None:
        assert found == ""
    else:
        assert found.startswith("ImportError")
        assert found.endswith(f"Install it with: pip install 'standfast[{extra}]'")


def test_the_kit_as_a_command_says_it_too_and_its_help_needs_nothing() -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        run = "import runpy; runpy.run_module('standfast.conformance', run_name='__main__')"
        use = f"sys.argv = ['kit', *{arguments!r}]; {run}"
        program = BARE.format(use=use, hidden=frozenset(EXTRAS))
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert "usage" in command("--help").stdout
    told = command("my_stores.py:MyStore")
    assert told.returncode == 1
    assert told.stderr.strip().endswith("pip install 'standfast[conformance]'")


def test_every_extra_that_an_error_names_installs_that_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought_along = {"mcp_types", "httpx2", "anyio"}  # by the package that the extra names
    installed_as = {"any_llm": "any-llm-sdk", "genai_prices": "genai-prices", "pytest_asyncio": "pytest-asyncio"}
    for package, extra in EXTRAS.items():
        names = [requirement.partition(">")[0].partition("[")[0] for requirement in declared[extra]]
        assert package in brought_along or installed_as.get(package, package) in names, (package, extra)
