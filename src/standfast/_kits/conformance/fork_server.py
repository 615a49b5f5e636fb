"""Fork server of child processes for checks: it has imported the backend and opened nothing.

Forking it takes a few milliseconds where starting Python takes half a second, so hundreds of processes can be killed in
a test; and unlike the test's own process it has no threads and no open store that a fork would copy. It gets orders
over a socket: a pickled order with two descriptors, one for reports and one for the signal to continue.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance import child_jobs as jobs
from standfast._kits.conformance.pipe import JobPipe

if TYPE_CHECKING:
    from types import ModuleType

    from standfast._kits.conformance.backend import Backend

LENGTH = struct.Struct("!I")


def backend_from(order: dict[str, Any]) -> Backend:
    """Build the backend of an order in this process."""
    kind: Any = _module(order["module"], order["file"])
    for name in order["class"].split("."):
        kind = getattr(kind, name)
    backend: Backend = kind.__new__(kind)
    backend.__dict__.update(order["state"])
    backend.folder, backend.unique = Path(order["folder"]), order["unique"]
    return backend


def _module(name: str, file: str | None) -> ModuleType:
    if name in sys.modules and name != "__main__":
        return sys.modules[name]
    if name != "__main__":
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    spec = importlib.util.spec_from_file_location(name if name != "__main__" else "conformance_backend", str(file))
    assert spec is not None, f"{name} cannot be imported from {file}"
    assert spec.loader is not None, f"{name} cannot be imported from {file}"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def serve(sock: socket.socket) -> None:
    """Fork a child for each order until the test has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried at once; the test learns it from the pipe
    while True:
        header, descriptors, _, _ = socket.recv_fds(sock, LENGTH.size, 2)
        if len(header) < LENGTH.size:
            return
        order = pickle.loads(_exactly(sock, LENGTH.unpack(header)[0]))
        backend = backend_from(order)  # here, so that the children do not each import it
        if ":" in order["job"]:
            importlib.import_module(order["job"].partition(":")[0])
        child = os.fork()
        if child == 0:
            sock.close()
            _live(backend, order, JobPipe(*descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        sock.sendall(LENGTH.pack(child))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def _live(backend: Backend, order: dict[str, Any], wire: JobPipe) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        module, _, function = order["job"].rpartition(":")
        getattr(importlib.import_module(module) if module else jobs, function)(backend, wire, **order["with"])
    except BaseException as error:
        wire.tell(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
