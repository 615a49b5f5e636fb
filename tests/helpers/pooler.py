"""PgBouncer for tests: on PATH, or unpacked from Debian's packages. `pytest --with pgbouncer` asks for it."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

from tests.helpers.debian import command
from tests.helpers.servers import START_S_MAX, PostgresServer, Served, ServerMissing, free_port

PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")


class PgBouncer:
    """A pooler in transaction mode before a database: each transaction may get another of its few connections."""

    def __init__(self, database: PostgresServer) -> None:
        self._port, folder = free_port(), Path(tempfile.mkdtemp(prefix="standfast-pooler-"))
        folder.chmod(0o755)
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={database.port} dbname=postgres user=standfast\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n"
        )
        user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root, as PostgreSQL does
        self._served = Served([*command("pgbouncer", PACKAGES)[0], str(settings)], folder, user=user)
        self._served.start()
        deadline = time.monotonic() + START_S_MAX
        while not self._answers():
            if time.monotonic() > deadline or not self._served.is_running():
                raise ServerMissing(f"PgBouncer did not start:\n{self._served.log()}")
            time.sleep(0.05)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"postgresql://standfast@127.0.0.1:{self._port}/postgres"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it."""
        self._served.remove()
