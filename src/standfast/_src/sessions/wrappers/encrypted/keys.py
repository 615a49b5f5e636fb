"""Keys for sealing: secrets by key id, and one derived key for each session.

A key is derived (HKDF-SHA256) from a secret and, if there is a `SessionKeys`, from a random key of the session's own.
Then reading needs both: destroying the session's own key erases the session in every copy of the store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from standfast._src.base.errors import InvalidSettingError, SealKeyError
from standfast._src.base.logs import session_logger

KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
ONLY_KEY_ID = "default"
"""The id of a key that is given alone, as `encryption_key`."""

CHECK_BYTES = 4
# What a record says of its key: enough to tell a wrong key from an altered record, and nothing that helps to find it.

SECRET_BYTES = 32
"""The length of a random key. HKDF does not slow an attacker who guesses a shorter one."""

SALT_BYTES_MIN = 16
SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_BYTES_MAX = 2**17, 8, 2**28
# 128 MiB and some tenths of a second for each guess. The result is a key of stored data, so these never change.

CACHED_MAX = 1024
# Deriving takes some twenty microseconds; a store-wide reader of runs may meet many sessions.


class ErasureReceipt(NamedTuple):
    """Receipt for a destroyed key: the session, the time, and the fingerprint of the key."""

    session_id: str
    tenant: str
    key_fingerprint: str
    """SHA-256 of the destroyed key, in hex: proves which key it was to whoever noted it, and opens nothing."""
    erased_at: datetime


class SessionKeys(Protocol):
    """Keeps a random key for each session, apart from the store, and can destroy it. Calls are short and blocking.

    `scope` names what a key is for; it begins with "session/" or, for a run that no session owns, with "run/".
    """

    def key_of(self, tenant: str, scope: str, *, make: bool) -> bytes | None:
        """Return the key: 32 random bytes, stored before the return; None if missing and `make` is False.

        Raises SessionErasedError for ever once the key was destroyed.
        """
        ...

    def destroy(self, tenant: str, scope: str) -> ErasureReceipt:
        """Destroy the key, and keep the receipt; the same receipt if it was destroyed before."""
        ...


class Key(NamedTuple):
    """Cipher for sealing and opening, and the check value that tells a wrong key from an altered record."""

    cipher: AESGCM
    check: bytes


class KeyRing:
    """The secrets a session was given, and the keys derived from them."""

    def __init__(
        self, secrets: Mapping[str, bytes], current: str, tenant: str = "", session_keys: SessionKeys | None = None
    ) -> None:
        self.secrets, self.current, self.tenant, self.session_keys = dict(secrets), current, tenant, session_keys
        self._derived: dict[tuple[str, str, bytes], Key] = {}

    @classmethod
    def of(
        cls,
        encryption_key: str | bytes | None,
        keys: Mapping[str, str | bytes] | None,
        current: str | None,
        tenant: str,
        session_keys: SessionKeys | None,
    ) -> KeyRing:
        """Return a checked ring of the caller's keys: one key, or several by id and the id of the sealing one."""
        if (encryption_key is None) == (keys is None):
            raise InvalidSettingError(
                "an encrypted session needs either encryption_key or keys",
                "Give one key as encryption_key=..., or several as keys={'2026-11': ...}, current='2026-11'.",
            )
        if keys is None:
            if current is not None:
                raise InvalidSettingError("current was given without keys", "Give keys={...} with it.")
            return cls({ONLY_KEY_ID: _secret(ONLY_KEY_ID, encryption_key)}, ONLY_KEY_ID, tenant, session_keys)
        wrong = [key_id for key_id in keys if not isinstance(key_id, str) or not KEY_ID.match(key_id)]
        if wrong:
            raise InvalidSettingError(
                f"{wrong[0]!r} is no key id", "Use 1 to 64 letters, digits, dots, dashes and underscores."
            )
        if current is None or current not in keys:
            raise InvalidSettingError(
                f"current={current!r} is none of the keys {sorted(keys)}", "Name the key that new records get."
            )
        return cls({key_id: _secret(key_id, key) for key_id, key in keys.items()}, current, tenant, session_keys)

    def sealing_key(self, scope: str) -> Key:
        """The key that new records of a scope get."""
        own = b"" if self.session_keys is None else self.session_keys.key_of(self.tenant, scope, make=True)
        assert own is not None
        return self._key(self.current, scope, own)

    def opening_key(self, key_id: str, scope: str) -> Key | None:
        """Return the key with an id for a scope; None without a secret for the id."""
        if key_id not in self.secrets:
            return None
        own = b"" if self.session_keys is None else self.session_keys.key_of(self.tenant, scope, make=False)
        if own is None:
            raise SealKeyError(
                f"there is no key of its own for {scope!r}, and its records are sealed with one",
                "Open it with the session_keys it was written with.",
            )
        return self._key(key_id, scope, own)

    def _key(self, key_id: str, scope: str, own: bytes) -> Key:
        found = self._derived.get((key_id, scope, own))
        if found is None:
            if len(self._derived) >= CACHED_MAX:
                self._derived.clear()
            found = self._derived[key_id, scope, own] = _derive_key(self.secrets[key_id], own, self.tenant, scope)
        return found

    def forget(self) -> None:
        """Drop what was derived: a key of a session was destroyed."""
        self._derived.clear()


def _derive_key(secret: bytes, own: bytes, tenant: str, scope: str) -> Key:
    info = join_parts(b"standfast sealed 1", text_bytes(tenant), text_bytes(scope))
    made = HKDF(hashes.SHA256(), 32 + CHECK_BYTES, salt=own or None, info=info).derive(secret)
    return Key(AESGCM(made[:32]), made[32:])


def key_from_password(password: str, *, salt: bytes) -> bytes:
    """Derive a key of 32 bytes from a password by scrypt (N=2**17, r=8, p=1), which makes each guess expensive.

    `salt` is at least 16 random bytes, made once and kept: the same password with another salt is another key. The
    salt is not a secret. A call takes some tenths of a second and 128 MiB, so call this function once, at the start
    of the program. Prefer a random key: the password stays the weakest part.
    """
    if not isinstance(password, str) or not password:
        raise InvalidSettingError("the password is empty or not text", "Give a long password, or use a random key.")
    if not isinstance(salt, bytes) or len(salt) < SALT_BYTES_MIN:
        raise InvalidSettingError(
            f"the salt is shorter than {SALT_BYTES_MIN} bytes, or not bytes",
            f"Make it once with os.urandom({SALT_BYTES_MIN}), and store it beside the program's settings.",
        )
    return hashlib.scrypt(
        text_bytes(password), salt=salt, n=SCRYPT_COST, r=SCRYPT_BLOCK, p=1, maxmem=SCRYPT_BYTES_MAX, dklen=SECRET_BYTES
    )


def secret_bytes(key: object) -> bytes:
    """A key as the OpenAI Agents SDK reads it: 32 bytes in URL-safe base64, or else the text itself.

    A text that decodes to 32 bytes only when some of its characters are skipped is refused: otherwise several texts
    would be one key.
    """
    if isinstance(key, str):
        try:
            found = base64.urlsafe_b64decode(key)
        except (binascii.Error, ValueError):
            found = b""
        if len(found) != SECRET_BYTES:
            key = key.encode()
        elif base64.urlsafe_b64encode(found).decode() != key.replace("+", "-").replace("/", "_"):
            raise InvalidSettingError(
                "an encryption key is not exact base64: it has further characters, such as a line end, or stray bits",
                "Strip the text, or encode the key anew: base64.urlsafe_b64encode(key).",
            )
        else:
            key = found
    if not isinstance(key, bytes) or not key:
        raise InvalidSettingError(
            "an encryption key is empty or no text", "Give 32 random bytes, for example base64 of os.urandom(32)."
        )
    return key


def _secret(key_id: str, key: object) -> bytes:
    """A key as bytes, with a warning if it can be guessed."""
    secret = secret_bytes(key)
    if len(secret) < SECRET_BYTES:
        _warn_of_short_key(key_id, len(secret))
    return secret


@cache
def _warn_of_short_key(key_id: str, length: int) -> None:
    """Log the warning once in a process for each key id and length: sessions are opened for every request."""
    session_logger.warning(
        "encryption key %r has %d bytes and can be guessed by a reader of the store; use 32 random bytes, or derive "
        "the key with standfast.key_from_password",
        key_id,
        length,
    )


def text_bytes(text: str) -> bytes:
    """Text as bytes, half surrogate pairs included: ids are data (A18)."""
    return text.encode("utf-8", "surrogatepass")


def join_parts(*parts: bytes) -> bytes:
    """Parts with their lengths, so that no two different lists of parts are the same bytes."""
    return b"".join([struct.pack(">I", len(part)) + part for part in parts])
