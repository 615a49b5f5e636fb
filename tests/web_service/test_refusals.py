"""Requests that the service refuses before it does anything: to other hosts, too long, without the token."""

from __future__ import annotations

import http.client
import signal
import socket
import urllib.parse
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import servers
from tests.helpers.processes import wait_until
from tests.web_service.conftest import PATIENCE_S, Service, client, is_status, started
from tests.web_service.nursery import ServiceProcess

LONG = 150 * 1024 * 1024
DIGITS = "1" * 5000


@pytest.fixture
def store(tmp_path: Path) -> str:
    """What follows is the same on every store."""
    return f"sqlite:///{tmp_path / 'talks.db'}"


def answer(worker: ServiceProcess, *head: str, pieces: Iterable[bytes] = ()) -> bytes:
    """Send a request as it is written here, and a body until the service answers: its answer."""
    place = urllib.parse.urlsplit(worker.address)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=PATIENCE_S) as link:
        link.sendall("\r\n".join((*head, "", "")).encode())
        try:
            for piece in pieces:
                link.sendall(piece)
        except OSError:
            pass  # it has answered, and reads no more
        received = b""
        try:
            while chunk := link.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass  # with what was sent unread
        return received


def peak_kb(worker: ServiceProcess) -> int:
    """The most memory that a worker has had."""
    status = Path(f"/proc/{worker.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1].evil", "::1"]
)
def test_a_request_to_another_host_name_is_refused(service: Service, host: str):
    """A page in a browser on this computer can give its own name this address (DNS rebinding)."""
    worker = service.worker()
    for path in ("/runs/m1", "/health"):
        said = answer(worker, f"GET {path} HTTP/1.1", f"host: {host}", "connection: close")
        assert said.split()[1] in (b"421", b"400"), said
    two = answer(worker, "GET /health HTTP/1.1", "host: localhost", "host: evil.example", "connection: close")
    assert two.split()[1] in (b"421", b"400"), two


def test_the_names_of_the_service_are_a_setting(service: Service):
    named = service.worker(hosts="agents.example, other.example")
    everywhere = service.worker(hosts="*")
    own = service.worker()
    asked = [
        (own, "LOCALHOST:9", b"200"),
        (own, "[::1]:8000", b"200"),
        (named, "agents.example", b"200"),
        (named, "Other.Example.:8000", b"200"),
        (named, "localhost", b"421"),
        (everywhere, "anything.example", b"200"),
    ]
    for worker, host, status in asked:
        said = answer(worker, "GET /health HTTP/1.1", f"host: {host}", "connection: close")
        assert said.split()[1] == status, (host, said)


@pytest.mark.parametrize("path", ["/conversations/a/messages", "/runs/r/decisions", "/nowhere"])
def test_a_body_without_an_end_costs_no_memory_and_needs_no_token(service: Service, path: str):
    worker = service.worker(token="a secret")
    client(worker).get("/health")
    before = peak_kb(worker)
    head = (f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", "connection: close")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    for framing, pieces in (
        (f"content-length: {LONG}", (b" " * 65536 for _ in range(LONG // 65536))),
        ("transfer-encoding: chunked", (chunk for _ in range(LONG // 65536))),
    ):
        said = answer(worker, *head, framing, pieces=pieces)
        assert not said or said.split()[1] == b"413", said  # a reset can overtake the answer
    assert peak_kb(worker) - before < 20_000
    assert client(worker).get("/health")


def test_a_body_of_the_longest_text_is_taken(service: Service):
    """100,000 characters that are two escapes each in JSON."""
    asked = client(service.worker())
    asked.say("ada", "\U0001f600" * 100_000, "m1")
    assert is_status(asked, "m1", "done", "failed")


def test_headers_and_queries_of_thousands_of_digits_are_refused(service: Service):
    """Python raises ValueError for a number of more than 4,300 digits."""
    worker = service.worker(hook_secret="both sides know it")
    client(worker).say("ada", "a", "m1")
    is_status(client(worker), "m1", "done")
    place = urllib.parse.urlsplit(worker.address)
    requests = [
        ("POST", "/runs/m1/decisions", {"webhook-timestamp": DIGITS, "webhook-signature": "v1,AA=="}),
        ("POST", "/runs/m1/decisions", {"content-length": DIGITS}),
        ("GET", f"/conversations/ada?limit={DIGITS}", {}),
        ("GET", f"/conversations/ada?before={DIGITS}", {}),
        ("GET", "/runs/m1", {"host": f"localhost:{DIGITS}"}),
    ]
    for method, path, headers in requests:
        with closing(http.client.HTTPConnection(place.netloc, timeout=PATIENCE_S)) as link:
            link.request(method, path, b"{}" if method == "POST" else None, headers)
            status = link.getresponse().status
        expected = 200 if "host" in headers else 400
        assert expected <= status < expected + 100, (status, path[:40], list(headers))


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc", "/docs/oauth2-redirect"])
def test_the_list_of_addresses_needs_the_token_as_they_do(service: Service, path: str):
    worker = service.worker(token="a secret")
    said = answer(worker, f"GET {path} HTTP/1.1", "host: localhost", "connection: close")
    assert said.split()[1] in (b"401", b"404")
    known = answer(
        worker, f"GET {path} HTTP/1.1", "host: localhost", "connection: close", "authorization: Bearer a secret"
    )
    assert known.split()[1] == (b"200" if path in ("/docs", "/openapi.json") else b"404")


# --- starting it -----------------------------------------------------------------------------------------------------


def test_without_a_token_it_does_not_start(tmp_path: Path):
    with started(tmp_path, "--port", str(servers.free_port())) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode not in (0, -signal.SIGKILL)
    assert "the service has no token" in said
    assert "SERVICE_OPEN=1" in said


def test_on_a_unix_socket_it_starts_without_a_token(tmp_path: Path):
    place = tmp_path / "socket"

    def is_answered() -> bool:
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(place))
            except OSError:
                return False
            link.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return link.recv(65536).split()[1] == b"200"

    with started(tmp_path, "--uds", str(place), "--log-level", "error") as process:
        wait_until(lambda: is_answered() or process.poll() is not None, PATIENCE_S)
        assert process.poll() is None


def test_told_to_be_open_it_starts_without_a_token(service: Service):
    """As `SERVICE_OPEN=1` says; the workers of these tests are started so."""
    assert client(service.worker(open=True)).get("/ready")
