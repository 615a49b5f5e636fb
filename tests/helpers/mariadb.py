"""MariaDB for tests: on PATH, or unpacked from Debian's packages. `pytest --with mariadb` asks for it."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from pathlib import Path

import pymysql

from tests.helpers import servers
from tests.helpers.debian import command
from tests.helpers.servers import Served, ServerMissing, free_port

PACKAGES = ("mariadb-server-core", "libaio1", "liburing2", "libnuma1")
SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
USER = "standfast"
"""Also the password, and a database."""


class MariaDB:
    """A MariaDB server with an empty database, and a user that may do everything."""

    def __init__(self) -> None:
        self.port, folder = free_port(), Path(tempfile.mkdtemp(prefix="standfast-mariadb-"))
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root, as PostgreSQL does
        if user:
            account = pwd.getpwnam(user)
            os.chown(data, account.pw_uid, account.pw_gid)
        program, root = command("mariadbd", PACKAGES)
        words = root / "usr/share/mysql"
        options = [*program, "--no-defaults", f"--datadir={data}", f"--lc-messages-dir={words}", "--log-warnings=0"]
        options += ["--innodb-log-file-size=16M", "--skip-log-bin"]
        parts = ["CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"]
        parts += [(words / name).read_text() for name in SYSTEM_TABLES]
        parts += [
            f"FLUSH PRIVILEGES;\nCREATE DATABASE {USER} CHARACTER SET utf8mb4;\n"
            f"CREATE USER {USER}@'%' IDENTIFIED BY '{USER}';\nGRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
        ]
        made = subprocess.run(
            [*options, "--bootstrap"], input="".join(parts), user=user, cwd=folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if made.returncode:
            raise ServerMissing(f"MariaDB's tables could not be made: {made.stderr[-2000:]}")
        options += [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={data}/socket", "--skip-name-resolve"]
        self.served = Served([*options, "--max-connections=300", "--performance-schema=OFF"], folder, user=user)
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mysql+aiomysql://{USER}:{USER}@127.0.0.1:{self.port}/{USER}"

    def connect(self, database: str = USER) -> pymysql.Connection:
        """A connection that commits every statement by itself."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=USER, database=database, autocommit=True
        )

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        self.served.start()
        servers.await_answer(self._answers, [self.served], "MariaDB")

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back."""
        self.served.stop()

    def stop(self) -> None:
        """End it and remove its data."""
        self.served.remove()

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.MySQLError:
            return False
        return True


def shared() -> MariaDB:
    """A server that all tests of this process share."""
    found = servers.STARTED.get("mariadb")
    if found is None:
        found = servers.STARTED["mariadb"] = MariaDB()
    assert isinstance(found, MariaDB)
    return found
