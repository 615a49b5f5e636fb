"""Asking people: a signed request to whoever decides, repeated until it is taken, and the signature of the answer.

Requests are signed as Standard Webhooks says (`webhook-id`, `webhook-timestamp`, `webhook-signature`), both ways. Who
was told is kept in the store itself, in a session of its own: no call is forgotten with a worker, and a deploy does not
ask everybody again. A worker that dies between the answer of the other side and that note leaves a call that is told
twice, under one `webhook-id`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from standfast import (
    CallerError,
    CallView,
    InvalidSettingError,
    Lease,
    LeaseLostError,
    NotFoundError,
    RunSummary,
    SessionBusyError,
    Store,
)

logger = logging.getLogger("service")

WAITING, DECIDED = "call.waiting", "call.decided"
"""The types of the two bodies that are signed with one secret. Neither can be sent back as the other."""
TOLD = "service:told"
"""The session of the notes; `app` lets no conversation have such a name."""
AGAIN_S_MAX = 60.0
ANSWER_S_MAX = 5.0
LEASE_S = 10.0
AT_ONCE = 8
AGE_S_MAX = 300
"""How old a signed request may be: one that somebody has recorded is of no use later."""
ID_LENGTH_MAX = 400
TIMESTAMP_DIGITS_MAX = 20
"""Python refuses to make a number of several thousand digits, and any caller may send them."""


class SignatureError(CallerError):
    """A request that was not signed with the secret that both sides have, or too long ago."""


def signature(secret: str, message_id: str, at: str, body: bytes) -> str:
    """The signature of a request: one secret, so whoever can check it can make it."""
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    digest = hmac.new(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def message_id_of(run_id: str, call_id: str) -> str:
    """The `webhook-id` of a question. A call's id is the model's word: one that no header can hold is hashed.

    So is a run's id: another program with the same store may have made the run.
    """
    plain = f"{run_id} {call_id}"
    if _fits_header(plain):
        return plain
    return f"{run_id if _fits_header(run_id) else _hashed(run_id)} {_hashed(call_id)}"


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and len(text) <= ID_LENGTH_MAX


def _hashed(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def signed(secret: str, message_id: str, body: bytes) -> dict[str, str]:
    """The headers of a request that is sent now."""
    at = str(int(time.time()))
    made = {"webhook-id": message_id, "webhook-timestamp": at, "content-type": "application/json"}
    return made | ({"webhook-signature": signature(secret, message_id, at, body)} if secret else {})


def check_signature(secret: str, headers: Mapping[str, str], body: bytes) -> None:
    """Raise SignatureError if this request was not signed with the secret, just now."""
    at, given = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
    is_time = at.isdecimal() and len(at) <= TIMESTAMP_DIGITS_MAX
    is_fresh = is_time and abs(time.time() - int(at)) <= AGE_S_MAX
    expected = signature(secret, headers.get("webhook-id", ""), at, body)
    if not is_fresh or not any(hmac.compare_digest(expected.encode(), one.encode()) for one in given.split()):
        raise SignatureError(
            "the request is not signed with the secret of this service, or was signed long ago",
            "Sign webhook-id, webhook-timestamp and the body with SERVICE_HOOK_SECRET, as Standard Webhooks says.",
        )


class Address:
    """Where web hooks are sent. Only `host` may be logged: the rest of a URL can hold keys."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            # Without the URL, or the library's error about it, which quotes it.
            raise InvalidSettingError("SERVICE_HOOK_URL is not a URL of HTTP", "Give http://… or https://….")
        self.host = parts.netloc.rpartition("@")[2]
        self.url = parts._replace(netloc=self.host, fragment="").geturl()
        named = [urllib.parse.unquote(one or "") for one in (parts.username, parts.password)]
        secret = base64.b64encode(":".join(named).encode()).decode()
        self.headers = {"authorization": f"Basic {secret}"} if "@" in parts.netloc else {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises for a redirect: one would carry the headers to another host, and make a GET without a body of the POST."""

    def redirect_request(self, *args: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def _in_short(error: Exception) -> str:
    """Why a request failed, without the text of an error that quotes the URL (http.client's do)."""
    match error:
        case urllib.error.HTTPError():
            return f"HTTP {error.code}"
        case urllib.error.URLError():
            return str(error.reason)
        case _:
            return type(error).__name__


class Hooks:
    """Tells one address of every call that waits for a person."""

    def __init__(self, store: Store, url: str, secret: str) -> None:
        self._store, self._secret = store, secret
        self._address = Address(url) if url else None
        self._told = store.session(TOLD)
        self._known: dict[str, int] = {}
        """Runs of which everything was told, by the revision they were looked at in: not looked at again."""
        self._failed: dict[str, tuple[int, float]] = {}
        """How often a call was not taken, and when to try again."""
        self._room = asyncio.Semaphore(AT_ONCE)

    async def tell(self) -> None:
        """Call out for each call that waits and was not told yet; one worker at a time."""
        runs = [run for run in await self._paused() if self._known.get(run.run_id) != run.revision]
        if not runs:
            return
        try:
            # Renewed while this goes on. A worker that hangs loses it, and can then note nothing more.
            async with await self._told.lease(ttl_s=LEASE_S, wait_s=0.0, holder="tells who must decide") as lease:
                await asyncio.gather(*(self._tell_of(run, lease) for run in runs))
        except (SessionBusyError, LeaseLostError):
            pass  # another worker is at it

    async def close(self) -> None:
        """Give back what was opened."""
        await self._told.close()

    async def _paused(self) -> list[RunSummary]:
        found: list[RunSummary] = []
        after: str | None = None
        while self._address is not None:
            page = await self._store.runs(status="paused", after=after)
            found += page.runs
            after = page.after
            if after is None:
                break
        self._known = {run.run_id: self._known[run.run_id] for run in found if run.run_id in self._known}
        return found

    async def _tell_of(self, run: RunSummary, lease: Lease) -> None:
        try:
            waiting = (await self._store.run(run.run_id)).waiting
        except NotFoundError:
            return  # it was forgotten meanwhile
        if all([await self._is_told(run, call, lease) for call in waiting]):
            self._known[run.run_id] = run.revision

    async def _is_told(self, run: RunSummary, call: CallView, lease: Lease) -> bool:
        assert self._address is not None  # else no run was looked at
        message_id = message_id_of(run.run_id, call.call_id)
        if await self._told.accepted(message_id):
            return True
        failures, again_at = self._failed.get(message_id, (0, 0.0))
        if time.monotonic() < again_at:
            return False
        about = {
            "type": WAITING,
            "run": run.run_id,
            "conversation": run.session_id,
            "call": call.call_id,
            "tool": call.tool,
            "arguments": call.arguments,
            "prepared_arguments": call.prepared_arguments,
            "reason": call.reason,
            "decide": f"/runs/{run.run_id}/decisions",
        }
        try:
            async with self._room:
                await asyncio.to_thread(self._post, self._address, message_id, json.dumps(about).encode())
        except (OSError, http.client.HTTPException) as error:
            wait_s = min(2.0**failures, AGAIN_S_MAX)
            host, why = self._address.host, _in_short(error)
            logger.warning("%s did not take that call %s waits; again in %.0f s: %s", host, message_id, wait_s, why)
            self._failed[message_id] = failures + 1, time.monotonic() + wait_s
            return False
        self._failed.pop(message_id, None)
        await self._told.append([about], writer=message_id, start=0, lease=lease)
        return True

    def _post(self, address: Address, message_id: str, body: bytes) -> None:
        """Send it; raises an OSError or HTTPException unless the other side says that it has it."""
        headers = address.headers | signed(self._secret, message_id, body)
        asked = urllib.request.Request(address.url, body, headers, method="POST")
        with _opener.open(asked, timeout=ANSWER_S_MAX):
            pass
