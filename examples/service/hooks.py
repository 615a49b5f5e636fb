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
import json
import logging
import time
import urllib.request
from collections.abc import Mapping

from standfast import (
    CallerError,
    CallView,
    Lease,
    LeaseLostError,
    NotFoundError,
    RunSummary,
    SessionBusyError,
    Store,
)

logger = logging.getLogger("service")

TOLD = "service:told"
"""The session of the notes; `app` lets no conversation have such a name."""
AGAIN_S_MAX = 60.0
ANSWER_S_MAX = 5.0
LEASE_S = 10.0
AT_ONCE = 8
AGE_S_MAX = 300
"""How old a signed request may be: one that somebody has recorded is of no use later."""


class SignatureError(CallerError):
    """A request that was not signed with the secret that both sides have, or too long ago."""


def signature(secret: str, message_id: str, at: str, body: bytes) -> str:
    """The signature of a request: one secret, so whoever can check it can make it."""
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    digest = hmac.new(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def signed(secret: str, message_id: str, body: bytes) -> dict[str, str]:
    """The headers of a request that is sent now."""
    at = str(int(time.time()))
    made = {"webhook-id": message_id, "webhook-timestamp": at, "content-type": "application/json"}
    return made | ({"webhook-signature": signature(secret, message_id, at, body)} if secret else {})


def check_signature(secret: str, headers: Mapping[str, str], body: bytes) -> None:
    """Raise SignatureError if this request was not signed with the secret, just now."""
    at, given = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
    is_fresh = at.isdecimal() and abs(time.time() - int(at)) <= AGE_S_MAX
    expected = signature(secret, headers.get("webhook-id", ""), at, body)
    if not is_fresh or not any(hmac.compare_digest(expected.encode(), one.encode()) for one in given.split()):
        raise SignatureError(
            "the request is not signed with the secret of this service, or was signed long ago",
            "Sign webhook-id, webhook-timestamp and the body with SERVICE_HOOK_SECRET, as Standard Webhooks says.",
        )


class Hooks:
    """Tells one address of every call that waits for a person."""

    def __init__(self, store: Store, url: str, secret: str) -> None:
        self._store, self._url, self._secret = store, url, secret
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
        while self._url:
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
        message_id = f"{run.run_id} {call.call_id}"
        if await self._told.accepted(message_id):
            return True
        failures, again_at = self._failed.get(message_id, (0, 0.0))
        if time.monotonic() < again_at:
            return False
        about = {
            "type": "call.waiting",
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
                await asyncio.to_thread(self._post, message_id, json.dumps(about).encode())
        except OSError as error:
            wait_s = min(2.0**failures, AGAIN_S_MAX)
            logger.warning(
                "%s did not take that call %s waits; again in %.0f s: %s", self._url, message_id, wait_s, error
            )
            self._failed[message_id] = failures + 1, time.monotonic() + wait_s
            return False
        self._failed.pop(message_id, None)
        await self._told.append([about], writer=message_id, start=0, lease=lease)
        return True

    def _post(self, message_id: str, body: bytes) -> None:
        """Send it; raises an OSError unless the other side says that it has it."""
        asked = urllib.request.Request(self._url, body, signed(self._secret, message_id, body), method="POST")
        with urllib.request.urlopen(asked, timeout=ANSWER_S_MAX):
            pass
