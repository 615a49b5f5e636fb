"""What surrounds the service: errors that say what to do, who may ask, its settings, its command and compose files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from service import app
from service.client import Client, RefusedError
from service.settings import Settings, agent_named

from standfast import Agent, InvalidSettingError
from tests.helpers import servers
from tests.helpers.children import import_path
from tests.helpers.processes import wait_until
from tests.web_service.conftest import PATIENCE_S, Service, client, is_status

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICE = ROOT / "examples" / "service"
PAGE = ROOT / "docs" / "how-to" / "run-a-service.md"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """What follows is the same on every store."""
    return f"sqlite:///{tmp_path / 'talks.db'}"


def test_every_refusal_says_what_happened_and_what_to_do(service: Service):
    asked = client(service.worker())
    asked.say("ada", "ask1", "m1")
    is_status(asked, "m1", "paused")
    wrong: list[tuple[int, str, Any]] = [
        (404, "/conversations/nobody", None),
        (404, "/runs/none", None),
        (404, "/runs/none/events", None),
        (404, "/nowhere", None),
        (405, "/conversations/ada", {}),
        (422, "/conversations/a%20b/messages", {"id": "m2", "text": "a"}),
        (422, "/conversations/ada/messages", {"id": "m2"}),
        (422, "/conversations/ada/messages", {"id": "with space", "text": "a"}),
        (422, "/conversations/ada/messages", {"id": "\u0436", "text": "a"}),  # no header can hold it
        (422, "/conversations/ada?before=nonsense&limit=0", None),
        (404, "/runs/none/decisions", {"call": "ask1", "approve": True, "arguments": "{}", "by": "ann"}),
        (409, "/runs/m1/decisions", {"call": "other", "approve": True, "arguments": "{}", "by": "ann"}),
        (404, "/runs/none/cancel", {"by": "ann"}),
    ]
    for status, path, body in wrong:
        with pytest.raises(RefusedError) as caught:
            asked.get(path) if body is None else asked.post(path, body)
        assert caught.value.status == status, path
        error = caught.value.said["error"]
        assert error["kind"]
        assert error["what"]
        assert error["remedy"].endswith(".")
    assert asked.get("/health") == {"status": "alive"}
    assert asked.get("/ready")["status"] == "ready"
    assert asked.get("/conversations/ada") == {
        "items": [{"content": "ask1", "role": "user"}],
        "before": None,
        "waiting": ["m1"],
    }


def test_a_conversation_comes_in_pages(service: Service):
    asked = client(service.worker())
    asked.say("ada", "a b c", "m1")
    is_status(asked, "m1", "done")
    whole = asked.get("/conversations/ada")["items"]
    page = asked.get("/conversations/ada?limit=3")
    before = asked.get(f"/conversations/ada?limit=100&before={page['before']}")
    assert [*before["items"], *page["items"]] == whole


def test_without_the_token_nothing_is_answered(service: Service):
    worker = service.worker(token="a secret")
    for path, body in (("/runs/m1", None), ("/conversations/ada/messages", {"id": "m1", "text": "a"})):
        with pytest.raises(RefusedError) as caught:
            client(worker).get(path) if body is None else client(worker).post(path, body)
        assert caught.value.status == 401
    client(worker, token="a secret").say("ada", "a", "m1")
    is_status(client(worker, token="a secret"), "m1", "done")
    assert client(worker).get("/health")


def test_settings_come_from_the_environment_and_what_is_wrong_is_named():
    given = {"SERVICE_STORE": "talks.db", "SERVICE_LEASE_S": "2.5", "SERVICE_OPEN": "1", "OTHER": "1"}
    assert Settings.of(given) == Settings(store="talks.db", lease_s=2.5, open=True)
    assert not Settings.of({"SERVICE_OPEN": "0"}).open
    with pytest.raises(InvalidSettingError, match="SERVICE_OPEN='maybe'"):
        Settings.of({"SERVICE_OPEN": "maybe"})
    with pytest.raises(InvalidSettingError, match="SERVICE_TEND_S='soon'"):
        Settings.of({"SERVICE_TEND_S": "soon"})
    assert isinstance(agent_named("service.agent:clerk"), Agent)
    for place in ("service.agent", "service.agent:nobody", "nowhere:clerk", "service.agent:pay"):
        with pytest.raises(InvalidSettingError):
            agent_named(place)


def test_the_command_of_the_page_starts_workers_that_are_replaced_when_they_die(tmp_path: Path):
    """As on the page, with the clerk that needs no key; one of two workers is killed while a call waits."""
    command = re.search(r"^uvicorn (service\.app:app .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert command is not None
    port = servers.free_port()
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment |= {"SERVICE_STORE": f"sqlite:///{tmp_path / 'talks.db'}", "PYTHONPATH": import_path()}
    environment["SERVICE_TOKEN"] = "a secret"  # without which it does not start
    arguments = [*command[1].split(), "--workers", "2", "--port", str(port), "--log-level", "warning"]
    started = subprocess.Popen([sys.executable, "-m", "uvicorn", *arguments], cwd=SERVICE.parent, env=environment)
    try:
        asked = Client(f"http://127.0.0.1:{port}", token="a secret", patience_s=PATIENCE_S)
        asked.say("ada", "Please pay.", "m1")
        (waiting,) = is_status(asked, "m1", "paused")["waiting"]
        before = wait_until(lambda: len(found := workers_below(started.pid)) == 2 and found, PATIENCE_S)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: len(now := workers_below(started.pid)) == 2 and now != before, PATIENCE_S)
        decision = {"call": waiting["call"], "approve": True, "arguments": waiting["arguments"], "by": "ann"}
        asked.post("/runs/m1/decisions", decision)
        assert "120 euros paid" in is_status(asked, "m1", "done")["output"]
        started.terminate()
        started.wait(PATIENCE_S)
    finally:
        for pid in (*workers_below(started.pid), started.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        started.wait()


def workers_below(pid: int) -> set[int]:
    """The processes that uvicorn has started as workers, and not yet replaced."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z" and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


@pytest.mark.parametrize("name", ["compose.yaml", "compose.postgres.yaml"])
def test_compose_files_name_images_settings_and_files_that_exist(name: str):
    """They are read here, and not run: there is no engine for containers where the tests run."""
    composed = yaml.safe_load((SERVICE / name).read_text(encoding="utf-8"))
    web = composed["services"]["web"]
    settings = {f"SERVICE_{one.name.upper()}" for one in dataclasses.fields(Settings)}
    assert {key for key in web["environment"] if key.startswith("SERVICE_")} <= settings
    assert web["environment"]["SERVICE_TOKEN"].startswith("${SERVICE_TOKEN:?")  # compose refuses to start without one
    assert "127.0.0.1" in web["environment"]["SERVICE_HOSTS"]  # which the health check names
    assert all(set(one) & {"image"} and "build" not in one for one in composed["services"].values())
    assert web["image"] == "python:3.13-slim"
    assert "uvicorn service.app:app" in web["command"][-1]
    mounted = [SERVICE / volume.split(":")[0] for volume in web["volumes"] if volume.startswith("..")]
    assert [path.resolve() for path in mounted] == [ROOT, SERVICE.parent]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.search(r"/source\[([\w,]+)\]", web["command"][-1])
    assert named is not None
    assert set(named[1].split(",")) <= extras.keys()
    assert ("postgres" in named[1]) == web["environment"]["SERVICE_STORE"].startswith("postgresql://")
    assert float(web["stop_grace_period"].removesuffix("s")) > Settings().stop_s + 5


def test_the_page_names_every_setting_and_every_address():
    text = PAGE.read_text(encoding="utf-8")
    missing = [one.name for one in dataclasses.fields(Settings) if f"`SERVICE_{one.name.upper()}`" not in text]
    assert not missing
    routes = [
        (route.path, method) for route in (*app.open_routes.routes, *app.routes.routes) for method in route.methods
    ]
    assert not [path for path, method in routes if f"`{method} {path}`" not in text]
