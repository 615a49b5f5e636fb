"""Session protocol: five methods, and optional abilities declared by a backend.

The five methods are the OpenAI Agents SDK's, so that foreign sessions work here and ours work there. Abilities
(CONTRACT part B) are small protocols. A session declares its abilities in `declared_abilities`; `abilities(session)`
reads only that declaration on the session's own class or instance, never an attribute found by lookup, so a wrapper
cannot be bypassed by delegation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, Self, get_args, overload, runtime_checkable

from standfast._src.base.errors import AbilityMissingError, InvalidLimitError, InvalidSessionIdError
from standfast._src.base.identifiers import is_name
from standfast._src.base.json_values import Item
from standfast._src.sessions.item_sizes import item_bytes_max

NO_LIMIT = 2**31 - 1
"""A limit for `get_items` that means the whole history: an explicit one beats a session's default (A3)."""
# The largest that every SQL database takes.

TResponseInputItem = Item
"""The SDK's name for an item."""


# --- settings --------------------------------------------------------------------------------------------------------


@dataclass
class SessionSettings:
    """Defaults of one session.

    `limit` is the number of latest items returned by `get_items()` (None: all). `max_item_bytes` bounds each item that
    is stored, as JSON (None: 64 MiB).
    """

    limit: int | None = None
    max_item_bytes: int | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)
        item_bytes_max(self)

    def resolve(self, override: SessionSettings | dict[str, Any] | None) -> SessionSettings:
        """Return the settings merged with the override's non-None values; for None, the object itself."""
        if override is None:
            return self
        values = override if isinstance(override, dict) else override.to_dict()
        merged = {**self.to_dict(), **{name: value for name, value in values.items() if value is not None}}
        return coerce_session_settings(merged, kind=type(self))

    def to_dict(self) -> dict[str, Any]:
        """The settings as a plain dict."""
        # As the SDK's, where nothing else is set.
        return {"limit": self.limit} | ({} if self.max_item_bytes is None else {"max_item_bytes": self.max_item_bytes})


def coerce_session_settings(
    value: SessionSettings | dict[str, Any] | None, kind: type[SessionSettings] = SessionSettings
) -> SessionSettings:
    """`value` as SessionSettings: an instance is kept, a dict is read, None gives fresh defaults."""
    if value is None:
        return kind()
    if isinstance(value, SessionSettings):
        return value
    if not isinstance(value, dict):
        raise TypeError(f"session_settings must be a SessionSettings instance or a dict, not {type(value).__name__}")
    unknown = sorted(set(value) - {"limit", "max_item_bytes"})
    if unknown:
        raise TypeError(f"Unknown session settings: {', '.join(map(str, unknown))}")
    return kind(**value)


def resolve_session_limit(explicit_limit: int | None, settings: SessionSettings | dict[str, Any] | None) -> int | None:
    """Return the limit in force: the explicit one, else the settings'; None for no limit."""
    if explicit_limit is not None:
        return explicit_limit
    return None if settings is None else coerce_session_settings(settings).limit


def check_limit(limit: object) -> None:
    """Raise InvalidLimitError for a limit that is not None or a whole number of zero or more (A2)."""
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidLimitError(
            f"a limit of {limit!r} is not a whole number", "Give the number of latest items wanted, or None for all."
        )
    if limit < 0:
        raise InvalidLimitError(
            f"a limit of {limit} is negative", "Give 0 for none, a positive number, or None for all items."
        )


LIMIT_MAX = 2**40
"""A larger limit asks for no more than this one: no history is as long, and a server has no number that is larger."""


def page_size(limit: int | None) -> int:
    """Return the limit of a page as a whole number accepted by every store."""
    if limit is None:
        raise InvalidLimitError("a page without a limit is no page", "Give the number of items wanted.")
    check_limit(limit)
    return min(int(limit), LIMIT_MAX)


def effective_limit(limit: int | None, settings: SessionSettings | None) -> int | None:
    """Return the limit of one read: the explicit one, else the session's default (A3)."""
    if limit is None and settings is not None:
        limit = settings.limit  # checked here: the attribute can be assigned to after construction
    return None if limit is None else page_size(limit)


def check_session_id(session_id: object) -> str:
    """The id itself, if it is a non-empty string (A18)."""
    if not isinstance(session_id, str) or not session_id:
        raise InvalidSessionIdError(
            f"{session_id!r} is not a session id", "Use any non-empty string; it is taken exactly as given."
        )
    return session_id


def check_text_id(session_id: object) -> str:
    """Return the id itself, if a database of text can store it exactly (A18)."""
    found = check_session_id(session_id)
    if "\0" in found or not is_name(found):
        raise InvalidSessionIdError(
            f"{session_id!r} holds a NUL or half of a surrogate pair, which a database of text cannot store",
            "Use an id that is valid Unicode, without NUL.",
        )
    return found


# --- the five methods ------------------------------------------------------------------------------------------------


@runtime_checkable
class Session(Protocol):
    """History store for one conversation: the five methods needed by the runner and written by third parties."""

    session_id: str
    session_settings: SessionSettings | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The whole history, or the latest `limit` items; oldest first."""
        ...

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append one batch, in order, whole or not at all."""
        ...

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the newest item; None when there is none."""
        ...

    async def clear_session(self) -> None:
        """Remove everything stored for this session id."""
        ...


class SessionABC(ABC):
    """Base class for sessions: the four history methods, and a `close` that does nothing."""

    session_id: str
    session_settings: SessionSettings | None = None

    @abstractmethod
    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The whole history, or the latest `limit` items; oldest first."""

    @abstractmethod
    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append one batch, in order, whole or not at all."""

    @abstractmethod
    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the newest item; None when there is none."""

    @abstractmethod
    async def clear_session(self) -> None:
        """Remove everything stored for this session id."""

    async def close(self) -> None:  # noqa: B027 — a session that opened nothing has nothing to release
        """Release what the session opened."""


# --- values of part B ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """End of a history. Opaque; equal heads mean equal histories, from any writer (B2). `Head()` is the empty one."""

    value: str = ""

    def __str__(self) -> str:
        return self.value or "empty"


@dataclass(frozen=True, slots=True)
class Generation:
    """A replaced part of the history that is kept and can be restored (B3, B4)."""

    id: str
    created_at: datetime
    item_count: int
    by: str | None = None
    """Who put something else in its place, where they said so: a person who undid a compaction."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place to fork from: after the first `index` items of the history now, or of a kept generation (B6)."""

    index: int
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Items in chronological order; `before` is the cursor of the earlier page, None on the first (B8)."""

    items: list[Item]
    before: str | None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One row of a listing (B9)."""

    session_id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest change first; `after` is the cursor of the next page, None on the last (B9)."""

    sessions: list[SessionInfo]
    after: str | None


@dataclass(frozen=True, slots=True)
class CorruptRecord:
    """Stored record that is not a JSON object; it remains until a clear or a repair (A14)."""

    record_id: str
    reason: str
    data: bytes


class Lease(Protocol):
    """The right to be the only run on a session, until it expires by the store's clock (B7)."""

    @property
    def number(self) -> int:
        """Number raised by every acquisition; a write with a lower number than the store's is refused."""
        ...

    async def renew(self) -> None:
        """Hold the lease for `ttl_s` more seconds; raises LeaseLostError after a loss."""
        ...

    async def release(self) -> None:
        """Release the lease. A second call, or one after a loss, does nothing."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


# --- abilities -------------------------------------------------------------------------------------------------------

Ability = Literal[
    "append",
    "written",
    "record",
    "head",
    "replace",
    "rewind",
    "fork",
    "lease",
    "page",
    "list",
    "corrupt",
    "runs",
    "times",
    "records",
    "watch",
    "search",
    "holder",
    "origin",
    "usage",
    "send",
]
"""The names of the abilities a session may declare."""


@runtime_checkable
class CanAppend(Protocol):
    """B1 and B2: exactly-once append, with compare-and-set."""

    async def head(self) -> Head:
        """Return the present end of the history."""
        ...

    async def append(
        self,
        items: Sequence[Item],
        *,
        writer: str,
        start: int,
        expect: Head | None = None,
        lease: Lease | None = None,
        digests: Sequence[bytes] | None = None,
    ) -> Head:
        """Store items as this writer's items number `start`, `start` + 1, …, exactly once over all repeats.

        All of them are stored, or none. Items already stored by this writer are unchanged if their digest is the same;
        another digest raises SessionConflictError and a gap AppendGapError, and nothing is written. A repeat without
        new items succeeds for any `expect`: a lost acknowledgement must not look like a conflict. Raises
        SessionConflictError if `expect` is not the head and there is something to write; LeaseLostError if `lease` is
        not the newest. Returns the head after the append.
        """
        ...

    async def accepted(self, writer: str) -> int:
        """Return the number of items written by this writer; popping, replacing and clearing do not lower it (B1)."""
        ...

    async def written(self, writer: str) -> list[Item]:
        """Return this writer's kept items, in order, also those in a kept generation (B1)."""
        ...


@runtime_checkable
class CanReplace(Protocol):
    """B3 and B4: atomic replace with kept generations, and undo."""

    async def replace(self, items: Sequence[Item], *, upto: Head, lease: Lease | None = None) -> Head:
        """Replace the history up to `upto` by `items`; later items stay behind them, in order."""
        ...

    async def generations(self) -> list[Generation]:
        """The kept generations, newest first."""
        ...

    async def read_generation(self, generation_id: str) -> list[Item]:
        """The items of a kept generation."""
        ...

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        """Restore a generation in place of its replacement. The displaced items become a generation."""
        ...


@runtime_checkable
class CanRewind(Protocol):
    """B5: exact rewind."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        """Remove this writer's items from number `to` on, if they are the whole tail; else change nothing.

        Raises RunStateError if the writer is an unfinished run: it would continue behind the removed items.
        """
        ...


@runtime_checkable
class CanFork(Protocol):
    """B6: a new session from any position of an existing one."""

    async def fork(
        self, new_id: str, *, at: Position | None = None, recode: Callable[[Item], Item] | None = None
    ) -> Session:
        """Make session `new_id` in the same store, in one step; it must be empty, and is independent from then on.

        `recode` rewrites each item on the way; its writer and number are kept.
        """
        ...


@runtime_checkable
class CanLease(Protocol):
    """B7: at most one holder across processes."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Lease:
        """Acquire the lease, waiting at most `wait_s` for its holder; then raise SessionBusyError."""
        ...


@runtime_checkable
class CanPage(Protocol):
    """B8: history in pages."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        """Return the `limit` items before a cursor (None: the latest), in time proportional to the page."""
        ...


@runtime_checkable
class CanList(Protocol):
    """B9: the sessions of a store."""

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        """Sessions of this session's store, newest change first."""
        ...

    async def count_sessions(self) -> int:
        """Return the number of sessions in the store."""
        ...


@runtime_checkable
class CanReportCorrupt(Protocol):
    """A14: records that are not JSON objects are listed, never hidden or deleted."""

    async def corrupt_records(self) -> list[CorruptRecord]:
        """Every corrupt record of this session, oldest first."""
        ...


@runtime_checkable
class HasTimes(Protocol):
    """A16: when the session was created and last changed."""

    async def info(self) -> SessionInfo | None:
        """Return the session's times; None if nothing is stored."""
        ...


ALL_ABILITIES: frozenset[str] = frozenset(get_args(Ability))

LOOKING_ABILITIES: frozenset[str] = frozenset({"records", "watch", "search", "holder", "origin", "usage"})
"""What shows people a stored conversation; no run needs them."""


_METHODS: dict[str, tuple[str, ...]] = {
    "append": ("append",),
    "written": ("written",),
    "record": ("record",),
    "replace": ("replace", "restore"),
    "rewind": ("rewind",),
    "page": ("page",),
    "records": ("records",),
    "watch": ("watch",),
    "search": ("search",),
    "corrupt": ("corrupt_records",),
    "runs": ("run_store",),
    "send": ("send",),
}
_GONE_AROUND: dict[str, tuple[str, ...]] = {
    "add_items": ("append", "record", "replace", "runs", "send"),  # a saved run holds the items
    "append": ("record",),
    "get_items": ("written", "page", "corrupt", "replace", "records", "watch", "search"),
    "pop_item": ("rewind",),
}
"""Which abilities reach the history without going through a history method."""


def abilities(session: object) -> frozenset[str]:
    """The abilities a session declares and still has: found on its class and instance, never by delegation.

    A history method that is overridden ends the abilities that go around it, unless the class that overrides it, or one
    below, defines the ability's method too, or says `declared_abilities` in its own body.
    """
    declared = declared_by(session)
    return declared - ended_abilities(session).keys()


def declared_by(session: object) -> frozenset[str]:
    """Return the abilities declared by a session's class, without regard to overridden methods."""
    declared = getattr(type(session), "declared_abilities", None)
    if isinstance(declared, property):  # a wrapper whose abilities depend on what it wraps computes them
        declared = declared.fget(session) if declared.fget else None
    return frozenset(declared or ())


def ended_abilities(session: object) -> dict[str, str]:
    """Return the declared abilities ended by an overridden history method, each with the method's name."""
    declared = declared_by(session)
    own = _place_of(session, "declared_abilities")
    ended: dict[str, str] = {}
    for history_method, names in _GONE_AROUND.items():
        place = _place_of(session, history_method)
        if own <= place:
            continue
        for ability in declared.intersection(names):
            if any(_place_of(session, method) > place for method in _METHODS[ability]):
                ended.setdefault(ability, history_method)
    return ended


def _place_of(session: object, attribute: str) -> int:
    """Return the place of a definition: -1 on the instance itself, then along the method resolution order."""
    if attribute in getattr(session, "__dict__", {}):
        return -1
    order = type(session).__mro__
    return next((place for place, kind in enumerate(order) if attribute in vars(kind)), len(order))


@overload
def with_ability(session: object, ability: Literal["append"]) -> CanAppend | None: ...


@overload
def with_ability(session: object, ability: Literal["lease"]) -> CanLease | None: ...


@overload
def with_ability(session: object, ability: Literal["corrupt"]) -> CanReportCorrupt | None: ...


def with_ability(session: object, ability: Ability) -> object | None:
    """Return the session if the ability is declared, else None."""
    return session if ability in abilities(session) else None


def require(session: object, ability: Ability) -> Any:
    """Return the session if it declares the ability; raise AbilityMissingError with a remedy if not."""
    if ability not in abilities(session):
        raise AbilityMissingError(
            f"{type(session).__name__} does not declare the ability {ability!r}",
            "Use a standfast session (SQLiteSession, InMemorySession), or write it and name it in declared_abilities.",
        )
    return session
