"""`RedisSession` over TLS: what is read there is not what comes over the wire, and the socket is not a plain one."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from standfast import RedisSession, StoreTimeoutError, StoreUnavailableError
from standfast._src.base.errors import OutcomeUnknownError
from tests.helpers import servers

pytestmark = pytest.mark.redis


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "server.crt", folder / "server.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public, private


class Front:
    """Takes TLS off before a server, as a load balancer does; while it is stalled, nothing of the server comes back."""

    def __init__(self, port: int, files: tuple[Path, Path]) -> None:
        self._target, self._context = port, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(*files)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.passes = threading.Event()
        self.passes.set()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        try:
            near = self._context.wrap_socket(raw, server_side=True)
        except OSError:
            raw.close()  # somebody who does not trust it
            return
        far = socket.create_connection(("127.0.0.1", self._target))
        self._open += (near, far)
        threading.Thread(target=self._pump, args=(far, near, self.passes), daemon=True).start()
        self._pump(near, far, None)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, passes: threading.Event | None) -> None:
        try:
            while data := source.recv(65_536):
                if passes is not None:
                    passes.wait()
                target.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, target):
                one.close()

    def close(self) -> None:
        """Take nobody any more, and let everybody go."""
        self._listening.close()
        self.passes.set()
        for one in self._open:
            one.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def front(files: tuple[Path, Path]) -> Iterator[Front]:
    url = redis.asyncio.ConnectionPool.from_url(servers.redis_url())
    made = Front(url.connection_kwargs["port"], files)
    yield made
    made.close()


def opened(
    front: Front, files: tuple[Path, Path], session_id: str | None = None, protocol: int = 3, **options: Any
) -> RedisSession:
    return RedisSession.from_url(
        session_id or uuid.uuid4().hex,
        url=f"rediss://127.0.0.1:{front.port}/0",
        redis_kwargs={"ssl_ca_certs": str(files[0]), "protocol": protocol},
        **options,
    )


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_history_of_many_and_of_large_items_comes_back_as_it_was(
    protocol: int, front: Front, files: tuple[Path, Path]
):
    """Records of TLS end anywhere: inside of a length, of a line's end, of a letter."""
    session = opened(front, files, protocol=protocol)
    items: list[Any] = [{"role": "user", "content": f"{n} " + "ö\r\n" * (n % 700)} for n in range(2_000)]
    items.insert(1_000, {"role": "user", "content": "x" * 3_000_000})
    await session.add_items(items)
    assert await session.get_items() == items
    assert await session.pop_item() == items[-1]
    await session.close()


async def test_a_server_that_stalls_is_waited_for_no_longer_than_the_deadline(front: Front, files: tuple[Path, Path]):
    session = opened(front, files, timeout_s=1.0)
    await session.add_items([{"role": "user", "content": "one"}])
    front.passes.clear()
    began = time.monotonic()
    with pytest.raises((StoreTimeoutError, StoreUnavailableError, OutcomeUnknownError)):
        await session.add_items([{"role": "user", "content": "two"}])
    assert time.monotonic() - began < 30  # far from waiting without end
    front.passes.set()
    patient = opened(front, files, session.session_id)
    words = [item["content"] for item in await patient.get_items()]
    assert words in (["one"], ["one", "two"])  # its outcome was not known; twice it is never
    await patient.close()
    await session.close()


async def test_a_server_that_nobody_vouches_for_is_refused_with_a_remedy(front: Front):
    session = RedisSession.from_url("s", url=f"rediss://127.0.0.1:{front.port}/0", timeout_s=60.0)
    with pytest.raises(StoreUnavailableError, match=r"(?i)certificate") as caught:
        await session.add_items([{"role": "user", "content": "one"}])
    assert "ssl_ca_certs" in caught.value.remedy  # and it was said at once: nobody waits for the deadline
    await session.close()


async def test_a_client_of_the_users_own_may_speak_tls(front: Front, files: tuple[Path, Path]):
    client = redis.asyncio.Redis(host="127.0.0.1", port=front.port, ssl=True, ssl_ca_certs=str(files[0]), protocol=3)
    session = RedisSession(uuid.uuid4().hex, redis_client=client)
    await session.add_items([{"role": "user", "content": "one"}])
    assert [item["content"] for item in await session.get_items()] == ["one"]
    await session.close()
    await client.aclose()
