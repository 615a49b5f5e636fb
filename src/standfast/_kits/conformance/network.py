"""A faulty TCP proxy, for stores on a network.

A backend puts it between its clients and the server, and mixes in `Networked` to give the kit a store that stalls and
one whose answers are lost. The proxy does not know any protocol: a function decides whether the data that a client has
sent since the last answer contain a write.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from standfast._kits.conformance.backend import Backend

CHUNK = 65536


class Proxy:
    """Forward connections to `target`, subject to a fault.

    "forward": unchanged. "stall": nothing is forwarded, in either direction. "lose": a write is forwarded, and after
    the server's answer the connection is cut instead. "cut": the connection is cut instead of forwarding a write.
    "drip": answers arrive byte by byte.
    """

    def __init__(self, target: tuple[str, int], is_write: Callable[[bytes], bool] = lambda sent: True) -> None:
        self._target, self._is_write = target, is_write
        self.fault = "forward"
        self.cut_count = 0
        """Number of connections cut by a fault."""
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listening.getsockname()[1])
        self._links: set[_Link] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, client, server)
            self._links.add(link)
            threading.Thread(target=link.run, daemon=True, name="proxy-link").start()

    @contextmanager
    def faulty(self, fault: str) -> Iterator[None]:
        """Behave so while the context is entered."""
        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before

    def close(self) -> None:
        """Cut every connection and accept no more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # a close alone leaves a thread that waits in accept()
        self._listening.close()
        for link in list(self._links):
            link.cut()


class _Link:
    """A connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._sent = b""  # by the client, since it was last answered

    def run(self) -> None:
        try:
            while self._pass_on():
                pass
        except OSError:
            pass
        finally:
            self.cut()
            self._client.close()
            self._server.close()
            self._proxy._links.discard(self)

    def _pass_on(self) -> bool:
        if self._proxy.fault == "stall":
            time.sleep(0.005)
            return not self._proxy._closed
        ready, _, _ = select.select([self._client, self._server], [], [], 0.05)
        if self._proxy.fault == "stall":
            return True  # it began while this waited: what is there stays there
        if self._client in ready and not self._from_client():
            return False
        return self._server not in ready or self._from_server()

    def _from_client(self) -> bool:
        data = self._client.recv(CHUNK)
        self._sent += data
        if data and self._proxy.fault == "cut" and self._proxy._is_write(self._sent):
            self._proxy.cut_count += 1
            return False
        self._server.sendall(data)
        return bool(data)

    def _from_server(self) -> bool:
        data = self._server.recv(CHUNK)
        if data and self._proxy.fault == "lose" and self._proxy._is_write(self._sent):
            self._proxy.cut_count += 1
            return False
        self._sent = b""
        if self._proxy.fault == "drip":
            for place in range(len(data)):
                self._client.sendall(data[place : place + 1])
        else:
            self._client.sendall(data)
        return bool(data)

    def cut(self) -> None:
        # Closing is for the link's own thread, which may be waiting on these descriptors.
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Networked(Backend):
    """A backend with sessions that connect through `proxy`."""

    remote = True
    proxy: Proxy

    def stall(self) -> AbstractContextManager[None]:
        """Block all data between the store's clients and its server."""
        return self.proxy.faulty("stall")

    def lose_acknowledgement(self) -> AbstractContextManager[None]:
        """Writes arrive at the server, and their answers are lost with the connection."""
        return self.proxy.faulty("lose")
