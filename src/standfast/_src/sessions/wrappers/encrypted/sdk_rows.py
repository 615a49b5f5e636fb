"""Reading what the OpenAI Agents SDK's `EncryptedSession` has written, with the same key. Nothing is written so.

Its records are Fernet tokens that name no writer and no place: one that was moved, repeated or taken out is not
noticed. So they are read only on request, and refused otherwise: a history that is there must not look empty.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypedDict

from standfast._src.base.errors import SealKeyError
from standfast._src.sessions.storage import Name
from standfast._src.sessions.wrappers.encrypted.sealed_records import ALTERED, NOT_SEALED, Foreign, mark_unopened

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


class EncryptedEnvelope(TypedDict):
    """Record in the SDK's encrypted format: sealed payload, version and key id."""

    __enc__: Literal[1]
    v: int
    kid: str
    payload: str


INFO = b"agents.session-store.hkdf.v1"


def refuse(name: Name, data: bytes) -> bytes:
    """Raise SealKeyError for a record in the SDK's format; any other record is marked as not sealed."""
    if _payload(data) is None:
        return mark_unopened(data, NOT_SEALED)
    raise SealKeyError(
        f"{name.kind} {name.id!r} has records that the OpenAI Agents SDK encrypted; nothing was changed",
        "Open it with reads_sdk_data=True and the SDK's key to read them. If they are not needed, open it with "
        "unreadable='leave_out', and call repair().",
    )


def _payload(data: bytes) -> bytes | None:
    """Return the token in a record of the SDK; None if the record has another format."""
    try:
        record = json.loads(data)
        token: bytes | None = record["payload"].encode() if record["__enc__"] == 1 else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return token


def reader(secrets: Iterable[bytes], ttl_s: float | None) -> Foreign:
    """Return a reader of the SDK's records with any of these secrets; with a `ttl_s`, older records are left out."""
    masters = list(secrets)
    ciphers: dict[str, list[Fernet]] = {}

    def open_record(name: Name, data: bytes) -> bytes | None:
        from cryptography.fernet import InvalidToken

        token = _payload(data)
        if token is None:
            return mark_unopened(data, ALTERED)
        if name.id not in ciphers:
            ciphers.clear()  # a reader belongs to one session; forks are read through their own
            ciphers[name.id] = [_cipher(master, name.id) for master in masters]
        for cipher in ciphers[name.id]:
            try:
                plain = cipher.decrypt(token)
            except InvalidToken:
                continue
            is_old = ttl_s is not None and cipher.extract_timestamp(token) < time.time() - ttl_s
            return None if is_old else plain
        return mark_unopened(data, "encrypted by the OpenAI Agents SDK, with another key")

    return open_record


def _cipher(master: bytes, session_id: str) -> Fernet:
    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(hashes.SHA256(), 32, salt=session_id.encode(), info=INFO).derive(master)
    return Fernet(base64.urlsafe_b64encode(derived))
