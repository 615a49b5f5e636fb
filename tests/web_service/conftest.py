"""Two workers of the service on one store, for tests that do not kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from service.client import Client

from tests.helpers import servers
from tests.helpers.children import import_path
from tests.helpers.ledger_oracle import lines
from tests.helpers.processes import wait_until
from tests.helpers.stores import SERVERS
from tests.web_service.nursery import Nursery, ServiceProcess
from tests.web_service.payer import Places

STORES = ["sqlite", next(one for one in SERVERS if "postgres" in one.values)]
PATIENCE_S = 120.0
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'talks.db'}"
        return
    url, schema = servers.postgres_url(), f"w{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE SCHEMA {schema}")
    yield f"{url}?schema={schema}"
    servers.drop_schema(url, schema)


@dataclass
class Service:
    """A service, seen from outside: its workers come from `nursery`, what they did is in `book`."""

    nursery: Nursery
    folder: Path
    store: str
    workers: list[ServiceProcess] = field(default_factory=list)

    @property
    def places(self) -> Places:
        return Places(self.folder)

    @property
    def book(self) -> list[str]:
        return lines(self.folder / "book")

    def worker(self, port: int | None = None, **settings: Any) -> ServiceProcess:
        settings = {"store": self.store, "tend_s": 0.1, "lease_s": 10.0} | settings
        self.workers.append(made := self.nursery.worker(self.folder, settings, port or 0))
        return made

    def somebody_stands(self, place: str) -> int:
        """Wait until a worker stands at a place: its process."""
        return int(wait_until(lambda: self.places.standing(place), PATIENCE_S))


def client(*workers: ServiceProcess, token: str = "") -> Client:
    return Client(*(one.address for one in workers), token=token, patience_s=PATIENCE_S)


def is_status(asked: Client, run: str, *wanted: str) -> Any:
    """Wait until a run has one of these: the run."""
    return wait_until(lambda: (found := asked.get(f"/runs/{run}"))["status"] in wanted and found, PATIENCE_S)


@contextmanager
def started(tmp_path: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """The service as an operator starts it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SERVICE_", "OPENAI_"))}
    environment |= {"SERVICE_STORE": f"sqlite:///{tmp_path / 'talks.db'}", "PYTHONPATH": import_path(), **settings}
    command = [sys.executable, "-m", "uvicorn", "service.app:app", *arguments]
    with subprocess.Popen(command, cwd=EXAMPLES, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)  # does nothing to one that was waited for


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture
def service(nursery: Nursery, store: str, tmp_path: Path) -> Iterator[Service]:
    """A service without a worker yet; whatever a test starts of it is gone at its end."""
    made = Service(nursery, tmp_path, store)
    yield made
    for worker in made.workers:
        worker.remove()
