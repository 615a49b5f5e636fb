"""Access control of the inspector: only this computer's own browser, with the token, on a page of ours.

Any web page open in a browser can send requests to localhost. So every request, reads included, must name a host of
ours (else a foreign name pointed at 127.0.0.1 could read everything), must not come from a page of another origin, and
must carry the token in a header. Only the page itself, which holds nothing of a store, is sent without: a browser that
opens an address sends no header. There is no cookie, because cookies ignore ports: a browser sends them to every other
server of this computer. A change must also be switched on, and be sent as JSON with a header of ours: a form or a
plain-text request of another page needs no consent of the browser's, this does.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-standfast"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Rules:
    """Rules of the gate. `hosts` are the accepted values of the Host header, ports included."""

    token: str
    hosts: frozenset[str]
    allows_writing: bool = False


def our_hosts(port: int, *others: str) -> frozenset[str]:
    """Return the Host headers of a server on this port of this computer, and of its other names."""
    return frozenset({f"{name}:{port}" for name in LOOPBACK} | {name.lower() for name in others})


@dataclass(frozen=True)
class RequestRefused(Exception):
    """A request that goes no further, and why."""

    status: int
    why: str


class Gate:
    """Middleware around the application; `open_paths` are the paths of the page itself, sent without a token."""

    def __init__(self, app: ASGIApp, rules: Rules, *, open_paths: Iterable[str] = ()) -> None:
        self.app, self.rules, self.open_paths = app, rules, frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, answer it, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message.get("headers", [])}
                extra = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in known]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        try:
            self._check_sender(scope)
            if scope["path"] not in self.open_paths:
                self._check_token(scope)
            if scope["method"] not in ("GET", "HEAD"):
                self._check_write(scope)
        except RequestRefused as refused:
            body = refused.why.encode()
            await _answer(send_with_headers, refused.status, [("content-type", "text/plain; charset=utf-8")], body)
            return
        await self.app(scope, receive, send_with_headers)

    def _check_sender(self, scope: Scope) -> None:
        host = _header(scope, "host")
        if host is None or host.lower() not in self.rules.hosts:
            raise RequestRefused(403, "This host name is not the inspector's. Open the address that it printed.")
        origin = _header(scope, "origin")
        if origin is not None and not any(origin in (f"http://{h}", f"https://{h}") for h in self.rules.hosts):
            raise RequestRefused(403, "A page of another origin may not ask the inspector.")
        if _header(scope, "sec-fetch-site") not in (None, "same-origin", "none"):
            raise RequestRefused(403, "A page of another site may not ask the inspector.")

    def _check_token(self, scope: Scope) -> None:
        kind, _, given = (_header(scope, "authorization") or "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.encode(), self.rules.token.encode()):
            raise RequestRefused(
                401, "The token is missing or another one. Open the address that the inspector printed."
            )

    def _check_write(self, scope: Scope) -> None:
        if not self.rules.allows_writing:
            raise RequestRefused(403, "The inspector was started to look only; --write lets it decide, fork and undo.")
        if (_header(scope, "content-type") or "").partition(";")[0].strip().lower() != "application/json":
            raise RequestRefused(415, "Send application/json.")
        if _header(scope, HEADER) is None:
            raise RequestRefused(
                403, f"The header {HEADER} is missing: only the inspector's own page changes something."
            )


def is_loopback(host: str) -> bool:
    """Return True if an address for listening can be reached from this computer only."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _header(scope: Scope, name: str) -> str | None:
    found: Iterable[tuple[bytes, bytes]] = scope["headers"]
    values = [value.decode("latin-1") for key, value in found if key.lower() == name.encode()]
    # Two Host or Origin headers are what nobody sends who means well: joined, they are ours no longer.
    return ", ".join(values) if values else None


async def _answer(send: Send, status: int, headers: list[tuple[str, str]], body: bytes = b"") -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
