"""`EncryptedSession`: any session, with all contents sealed before the store sees them.

The session works on the store of the wrapped session, with a separate executor for plans (`plans`). Only `close` of the
wrapped session is called, so no method can bypass the sealing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Hashable, Mapping
from functools import partial
from typing import Any, ClassVar, Self

from standfast._src.base.errors import (
    AbilityMissingError,
    CallerError,
    InvalidSettingError,
    ReadBudgetError,
    SealBrokenError,
    SealKeyError,
)
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.session_wrapper import SessionWrapper
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import (
    ALL_ABILITIES,
    CorruptRecord,
    Session,
    SessionSettings,
    check_session_id,
    effective_limit,
)
from standfast._src.sessions.rules.history import runs_of
from standfast._src.sessions.storage import Name, Row
from standfast._src.sessions.wrappers.encrypted import sdk_rows
from standfast._src.sessions.wrappers.encrypted.encrypting_executor import EncryptingExecutor
from standfast._src.sessions.wrappers.encrypted.keys import ErasureReceipt, KeyRing, SessionKeys
from standfast._src.sessions.wrappers.encrypted.plain_session import EncryptedPlainSession
from standfast._src.sessions.wrappers.encrypted.rotate_keys import reseal_session, resealed_run
from standfast._src.sessions.wrappers.encrypted.sealed_records import Records, Unreadable, fault_in, scope_of

__all__ = ["EncryptedSession"]


class EncryptedSession(StoredSession):
    """A conversation whose contents the store cannot read, change or move unnoticed.

    Around a compacting session the result is a compacting session around the encryption. Around a plain session (a
    class of the program) the result is a plain session with sealed items: no abilities, and a cut history stays
    unnoticed.

    Args:
        session_id: The name of the conversation.
        underlying_session: The session with the sealed records.
        encryption_key: One secret; or else `keys`.
        ttl: In seconds: items are not shown longer than that after they were written.
        max_scan_items: The number of stored records that one read may take; beyond it ReadBudgetError is raised.
        keys: Several secrets by their ids. All of them read.
        current: The id of the sealing key.
        tenant: A name, authenticated with every record.
        session_keys: A `KeyFile`: a session can be erased by destroying its own key.
        reads_sdk_data: True to show items that the OpenAI Agents SDK has encrypted with the same key; without it, a
            record in the SDK's format is a SealKeyError.
        unreadable: "leave_out": records whose key is missing are corrupt records, in place of an error.
    """

    declared_abilities: ClassVar[frozenset[str]] = ALL_ABILITIES

    def __new__(
        cls, session_id: str = "", underlying_session: Session | None = None, *given: Any, **options: Any
    ) -> Any:
        """Make the fitting session: around a plain session a plain one, and for a compacting session its new inside.

        A subclass has a constructor of its own, and methods that neither of the two would have.
        """
        if cls is not EncryptedSession or underlying_session is None:  # without one: copied or unpickled
            return super().__new__(cls)
        if isinstance(underlying_session, SessionWrapper) and hasattr(underlying_session, "run_compaction"):
            return underlying_session._rewrap(cls(session_id, underlying_session.underlying_session, *given, **options))
        if isinstance(underlying_session, StoredSession | EncryptedPlainSession) or not _has_history(
            underlying_session
        ):
            return super().__new__(cls)
        return _make_plain(session_id, underlying_session, *given, **options)

    def __init__(
        self,
        session_id: str,
        underlying_session: Session,
        encryption_key: str | bytes | None = None,
        ttl: float | None = None,
        max_scan_items: int | None = None,
        *,
        keys: Mapping[str, str | bytes] | None = None,
        current: str | None = None,
        tenant: str = "",
        session_keys: SessionKeys | None = None,
        reads_sdk_data: bool = False,
        unreadable: Unreadable = "raise",
    ) -> None:
        self.underlying_session = _checked_session(session_id, underlying_session)
        ring = KeyRing.of(encryption_key, keys, current, tenant, session_keys)
        self.ttl, self.max_scan_items = _positive("ttl", ttl), _positive("max_scan_items", max_scan_items)
        self._given: dict[str, Any] = {
            "encryption_key": encryption_key, "ttl": ttl, "max_scan_items": max_scan_items, "keys": keys,
            "current": current, "tenant": tenant, "session_keys": session_keys, "reads_sdk_data": reads_sdk_data,
            "unreadable": unreadable,
        }  # fmt: skip
        self._records = _make_records(ring, ttl, reads_sdk_data, unreadable)
        self._found: EncryptingExecutor | None = None
        super().__init__(
            session_id,
            session_settings=self.underlying_session.session_settings,
            timeout_s=self.underlying_session.timeout_s,
        )

    @property
    def session_settings(self) -> SessionSettings | None:
        """The wrapped session's settings; assigning changes them there."""
        return self.underlying_session.session_settings

    @session_settings.setter
    def session_settings(self, settings: SessionSettings | None) -> None:
        self.underlying_session.session_settings = settings

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session and the wrapped one, now; awaiting the result is allowed and not needed."""
        done = super().close()
        self._found = None  # connections end with the last session that uses them
        done.close()  # there is nothing left to wait for
        return self.underlying_session.close()

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The whole history, or the latest `limit` items; oldest first. Expired ones are not shown.

        Raises ReadBudgetError where more than `max_scan_items` records would have to be read.
        """
        budget = self.max_scan_items
        if budget is None:
            return await super().get_items(limit)
        wanted = effective_limit(limit, self.session_settings)
        page = await self.page(limit=int(budget) if wanted is None else min(wanted, int(budget)))
        if page.before is not None and (wanted is None or len(page.items) < wanted):
            raise ReadBudgetError(
                f"session {self.session_id!r} has more than the {budget} records that one read may take",
                "Raise max_scan_items, give a limit, or read it in pages.",
            )
        return page.items

    # --- keys --------------------------------------------------------------------------------------------------------

    async def reseal(self) -> int:
        """Seal all stored data with the current key, so that older keys can be retired. Return the number of runs.

        The history stays the same, in one step; its head changes. Kept generations cannot be sealed again: they are
        deleted, and earlier replacements can no longer be restored.
        """
        await self._write(partial(reseal_session, self._name, self._lane()))
        runs = await self._read(partial(runs_of, self._name))
        for run in runs:
            await self._write(partial(resealed_run, Name("run", run)))
        return len(runs)

    async def erase(self) -> ErasureReceipt:
        """Destroy this session's key, and then remove its data. The id cannot be used again.

        Any copy of the store becomes unreadable: this session, its generations and its runs. Forks have keys of their
        own, and stay readable. If the store cannot be reached the key is destroyed all the same: call this again.
        """
        ring = self._records.ring
        if ring.session_keys is None:
            raise AbilityMissingError(
                "this session's key is derived from a secret that others share, and cannot be destroyed alone",
                "Give EncryptedSession(..., session_keys=KeyFile(path)) from the beginning, and erase that.",
            )
        self._check_open()
        receipt = await asyncio.to_thread(ring.session_keys.destroy, ring.tenant, scope_of(self._name))
        ring.forget()
        await self.underlying_session.clear_session()
        return receipt

    async def clear_session(self) -> None:
        """Remove everything stored for this id, except how much each writer wrote and the lease's number."""
        try:
            await super().clear_session()
        except (SealBrokenError, SealKeyError):
            # A writer's cell does not open, and nothing was done. It stays as it is; whether the key fits to what was
            # said is looked at once more, and refused if it must not be cleared.
            await self._clear(None)

    # --- records that do not open -------------------------------------------------------------------------------------

    async def corrupt_records(self) -> list[CorruptRecord]:
        """Return every record that is not an item or does not open, in its stored form, oldest first (A14)."""
        return [_as_stored(record) for record in await super().corrupt_records()]

    async def repair(self) -> list[CorruptRecord]:
        """Remove the records listed by `corrupt_records`, and return them."""
        return [_as_stored(record) for record in await super().repair()]

    def _report(self, row: Row, fault: str) -> None:
        super()._report(row, fault_in(row.data)[0] or fault)

    # --- what StoredSession asks --------------------------------------------------------------------------------------

    def conversation_key(self) -> Hashable:
        """Return the wrapped session's key: sealing does not make another conversation."""
        return self.underlying_session.conversation_key()

    def _carrier(self) -> Executor:
        carrier, found = self.underlying_session._get_executor(), self._found
        if found is None or found.carrier is not carrier:
            found = self._found = EncryptingExecutor(carrier, self._records)
        return found

    def _store_key(self) -> Hashable:
        return ("sealed", self._records.ring.tenant, self.underlying_session._store_key())

    def _another(self, new_id: str) -> Self:
        return type(self)(new_id, self.underlying_session._another(new_id), **self._given)

    def _check_id(self, session_id: str) -> str:
        return self.underlying_session._check_id(session_id)

    def _process(self) -> str:
        return self.underlying_session._process()

    def _is_gone(self, process: str) -> bool:
        return self.underlying_session._is_gone(process)


# `__new__` only chooses the class: editors and `inspect` show the arguments that are documented.
vars(EncryptedSession.__new__)["__signature__"] = inspect.signature(EncryptedSession.__init__)


def _make_records(ring: KeyRing, ttl: float | None, reads_sdk_data: bool, unreadable: Unreadable) -> Records:
    if unreadable not in ("raise", "leave_out"):
        raise InvalidSettingError(f"unreadable={unreadable!r} is unknown", "Use 'raise' or 'leave_out'.")
    foreign = sdk_rows.reader(ring.secrets.values(), ttl) if reads_sdk_data else None
    if foreign is None and unreadable == "raise":
        foreign = sdk_rows.refuse
    return Records(ring, ttl_s=ttl, unreadable=unreadable, foreign=foreign)


def _make_plain(
    session_id: str,
    underlying_session: Session,
    encryption_key: str | bytes | None = None,
    ttl: float | None = None,
    max_scan_items: int | None = None,
    *,
    keys: Mapping[str, str | bytes] | None = None,
    current: str | None = None,
    tenant: str = "",
    reads_sdk_data: bool = False,
    unreadable: Unreadable = "raise",
) -> EncryptedPlainSession:
    """Make the sealed session around a plain one. A key of its own (`session_keys`) needs a store of ours."""
    ring = KeyRing.of(encryption_key, keys, current, tenant, None)
    records = _make_records(ring, _positive("ttl", ttl), reads_sdk_data, unreadable)
    budget = _positive("max_scan_items", max_scan_items)
    _check_same_id(session_id, underlying_session)
    return EncryptedPlainSession(check_session_id(session_id), underlying_session, records, budget)


def _has_history(session: object) -> bool:
    # A server's conversation takes no sealed items. By name: the SDK's class is meant as much as ours.
    if any(kind.__name__ == "OpenAIConversationsSession" for kind in type(session).__mro__):
        return False
    methods = ("get_items", "add_items", "pop_item", "clear_session")
    return all(callable(getattr(session, name, None)) for name in methods)


def _checked_session(session_id: str, session: object) -> StoredSession:
    if not isinstance(session, StoredSession) or isinstance(session, EncryptedSession):
        raise CallerError(
            f"{describe_type(session)} cannot be sealed",
            "Wrap a session of standfast (SQLiteSession, RedisSession, ...), or any object with a session's methods.",
        )
    _check_same_id(session_id, session)
    return session


def _check_same_id(session_id: str, session: object) -> None:
    try:
        inner = getattr(session, "session_id", None)
    except ValueError:  # one of the program's own may have none before its first use
        return
    if isinstance(inner, str) and inner != session_id:
        raise InvalidSettingError(
            f"session {session_id!r} would seal records of session {inner!r}", "Give both the same id."
        )


def _positive(setting: str, value: float | None) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
        return value
    raise InvalidSettingError(f"{setting}={value!r} means nothing", "Give a positive number, or None.")


def _as_stored(record: CorruptRecord) -> CorruptRecord:
    reason, data = fault_in(record.data)
    return CorruptRecord(record.record_id, reason or record.reason, data)
