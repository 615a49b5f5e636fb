"""Server of the inspector: an address, a token, and an end on request."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from standfast._kits.inspector.access_control import Rules, is_loopback, our_hosts
from standfast._kits.inspector.app import make_app
from standfast._kits.operators.store import Store
from standfast._src.base.errors import CallerError, InvalidSettingError

TOKEN_MIN = 16


class PortInUseError(CallerError, OSError):
    """The address to listen at belongs to another program."""


def rules_for(
    host: str, port: int, *, token_file: Path | None = None, names: tuple[str, ...] = (), write: bool = False
) -> Rules:
    """Return the rules of the gate. A server reachable by other computers must be given its token and names."""
    if not is_loopback(host) and token_file is None:
        raise InvalidSettingError(
            f"{host} can be reached from other computers",
            "Give --token-file with a token of your own (and put TLS in front), or leave --host out.",
        )
    token = secrets.token_urlsafe(32)
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidSettingError(
                f"the token in {str(token_file)!r} cannot be sent in a header",
                "Use ASCII letters, digits and signs, without spaces.",
            )
        if len(token) < TOKEN_MIN:
            raise InvalidSettingError(
                f"the token in {str(token_file)!r} is shorter than {TOKEN_MIN} characters", "Put a random one there."
            )
    listening = () if is_loopback(host) or host in ("0.0.0.0", "::") else (f"{host}:{port}",)
    return Rules(token, our_hosts(port, *listening, *names), write)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket at this address; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise PortInUseError(
            f"nothing can listen at {host} port {port} ({error.strerror or error})",
            "Choose another --port; 0 takes any that is free.",
        ) from error
    found.set_inheritable(True)
    return found


async def serve(store: Store, rules: Rules, sock: socket.socket, *, who: str, ready: Callable[[], None]) -> None:
    """Serve the page until the process is asked to stop; open pages do not delay the stop."""
    app: Any = make_app(store, rules, who=who)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    server = _Server(config)
    server.when_ready = ready
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:  # let it close its connections, which takes a second at most
        server.should_exit = True
        await asyncio.wait({serving})
        raise


class _Server(uvicorn.Server):
    when_ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.when_ready()
