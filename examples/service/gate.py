"""Checks of a request before anything else sees it: the host that it names, and the length of its body.

FastAPI reads a whole body before it asks a dependency such as `check_token`. A caller without the token could fill the
memory of a worker. And a web page may let its own host name point at 127.0.0.1: a browser on this computer then sends
its requests here, with that name as `Host`.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import refusal

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A text of 100,000 characters has 1.2 MB if each is two JSON escapes. The rest is for the arguments of a decision."""
ANY_HOST = "*"


class BodyTooLongError(Exception):
    """A body of more than BODY_BYTES_MAX."""


class Gate:
    """Middleware that refuses requests to other hosts with 421, and bodies above BODY_BYTES_MAX with 413."""

    def __init__(self, app: ASGIApp, hosts: str) -> None:
        self._app = app
        self._hosts = frozenset(_bare(name.strip()) for name in hosts.split(",") if name.strip())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_ours(headers):
            what, remedy = "this service is not known by the host name of the request", "Add it to SERVICE_HOSTS."
            await refusal(421, "WrongHostError", what, remedy)(scope, receive, send)
            return
        try:
            body = await _read(headers, receive)
        except BodyTooLongError:
            what, remedy = f"the body has more than {BODY_BYTES_MAX} bytes", "Send a shorter one."
            answer = refusal(413, "BodyTooLongError", what, remedy)
            answer.headers["connection"] = "close"  # the rest of the body is not read
            await answer(scope, receive, send)
            return
        # Once; then the server's own messages, which say when the client has disconnected.
        messages = iter([body])

        async def replay() -> Message:
            return next(messages, None) or await receive()

        await self._app(scope, replay, send)

    def _is_ours(self, headers: Headers) -> bool:
        named = headers.getlist("host")
        return ANY_HOST in self._hosts or (len(named) == 1 and _bare(named[0]) in self._hosts)


def _bare(host: str) -> str:
    """A host without its port, in small letters: `[::1]:8000` is `[::1]`. What is none is left as it is."""
    return re.sub(r"\.?(:[0-9]*)?$", "", host.lower())


async def _read(headers: Headers, receive: Receive) -> Message:
    """Read the whole body into one message; raises BodyTooLongError as soon as it is too long, whatever headers say."""
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and (len(announced) > 20 or int(announced) > BODY_BYTES_MAX):
        raise BodyTooLongError
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return message
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise BodyTooLongError
        if not message.get("more_body", False):
            return {"type": "http.request", "body": bytes(body), "more_body": False}
