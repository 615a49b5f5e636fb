"""Run the kit on `examples/dynamodb_backend.py` with the real `boto3`, against moto's server, and print the scorecard.

Neither is among our development packages. So this makes an environment of its own, installs the pinned versions of
`requirements/dynamodb.txt`, and runs itself there: `python tools/dynamodb_store.py` (all clauses, some ten minutes), or
with the clauses behind it. It ends with 1 if one is broken or not claimed.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev import install

ROOT = Path(__file__).resolve().parent.parent
THERE = "--there"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples")]

from standfast._kits.conformance.backend import Backend  # noqa: E402 — it is found on the path above
from standfast._kits.conformance.check_context import Options  # noqa: E402


class Dynamo(Backend):
    """A table for each check, on a server that has no rights to ask for."""

    name = "DynamoSession (examples)"
    persistent = True
    closes_when_called = True
    remote = True
    not_applicable: Mapping[str, str] = {
        "A15": "a table's name is an argument of every session",
        "A20": "no expiry can be configured",
        "B10": "no other program writes this layout",
    }
    not_claimed: Mapping[str, str] = {}
    url = ""
    unique = "probe"

    def child_state(self) -> dict[str, Any]:
        """Where the server is."""
        return {"url": self.url}

    def open(self, session_id: str, **options: Any) -> Any:
        """A session in the check's table."""
        from dynamodb_backend import DynamoSession  # type: ignore[import-not-found]  # in examples/

        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        client = {"region_name": "eu-west-1", "endpoint_url": self.url or "http://127.0.0.1:1", **keys}
        return DynamoSession(session_id, f"kit-{self.unique}", client=client, **options)

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Push a record that is no item, as a faulty program would."""
        from dynamodb_backend import DynamoStore

        from standfast._src.sessions.storage import KeyUpdate, Name, Tag

        session = self.open(session_id)
        store = DynamoStore(session.table, session.client)
        store.commit([KeyUpdate(Name("session", session_id), push=[(data, Tag())], touch=True)])
        store.close()


def prepare(clauses: list[str]) -> int:
    """Make the environment, install everything, and run this file in it."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install(Path(python), ROOT / "requirements" / "dynamodb.txt")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])}
        return subprocess.call([python, __file__, THERE, *clauses], env=environment)


def check(clauses: list[str]) -> int:
    """Every check that can be made, with few rounds: each request takes moto some milliseconds."""
    from moto.server import ThreadedMotoServer  # type: ignore[import-not-found]

    from standfast._kits.conformance.run import prepare_checks
    from standfast._kits.conformance.scorecard import Scorecard

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    logging.getLogger("standfast").addHandler(logging.NullHandler())
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    backend = Dynamo()
    backend.url = f"http://{host}:{port}"
    try:
        amount = Options(rounds=2, examples=3, objects=400, soon_s=60)
        results = [make() for make in prepare_checks(backend, *clauses, options=amount)]
    finally:
        server.stop()
    card = Scorecard.of(backend, results, clause_ids=clauses)
    print("\n".join(card.lines()))
    return 0 if card.green(backend.name) else 1


if __name__ == "__main__":
    sys.exit(check(sys.argv[2:]) if sys.argv[1:2] == [THERE] else prepare(sys.argv[1:]))
