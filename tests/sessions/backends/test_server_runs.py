"""Runs on servers: a worker killed inside a tool, and four others that go on with its run at once (C12, C16)."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.helpers import mariadb, servers

WORKER = Path(__file__).parents[2] / "helpers" / "paying_worker.py"


def address(kind: str) -> str:
    if kind == "mariadb":
        return mariadb.shared().url
    if kind == "cluster":
        return servers.cluster_url()
    return servers.redis_url() if kind in ("redis", "sealed") else servers.postgres_url()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("cluster", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("sealed", marks=pytest.mark.redis),
        pytest.param("sqlalchemy", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
def test_a_run_killed_in_a_tool_is_finished_once_by_four_workers_at_once(kind: str, tmp_path: Path) -> None:
    url = address(kind)
    kind = "sqlalchemy" if kind == "mariadb" else kind
    ledger = tmp_path / "ledger"
    command = [sys.executable, str(WORKER), kind, url, f"n{uuid.uuid4().hex}", str(ledger)]
    first = subprocess.run([*command, "die"], capture_output=True, text=True, timeout=60, check=False)
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert ledger.read_text() == "7\n"
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [worker.communicate(timeout=90) for worker in workers]
    assert ledger.read_text() == "7\n", "paid again"
    assert {out for out, _ in said} == {"finished 4\n"}, said
