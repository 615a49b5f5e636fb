"""Questions to a server before the first read and before the first write."""

from __future__ import annotations

from collections.abc import Sequence

from standfast._src.base.errors import NotADatabaseError, SchemaTooNewError
from standfast._src.base.logs import session_logger as _log
from standfast._src.base.new_layouts import version_to_write
from standfast._src.sessions.backends.redis.eviction import ASKED, EvictionPolicy
from standfast._src.sessions.backends.redis.keys import Keys, to_bytes, to_text
from standfast._src.sessions.backends.redis.sansio import Exchange, answers

LAYOUT, BEFORE = 1, 1
"""The newest layout that this release reads, and the newest that the release before it reads."""


class Handshake:
    """Check of one store's keys: may they be read and written by the present release?"""

    def __init__(self, keys: Keys, where: str, *, expires: bool) -> None:
        self._keys, self._policy = keys, EvictionPolicy(where, expires=expires)
        self.is_readable = self.is_writable = False
        self.has_one_layout = False
        """Whether no other layout can be there: on a cluster."""
        self._layout = 1

    def before_reading(self) -> Exchange[None]:
        """Refuse a layout of a newer release."""
        (layout,) = yield from answers([("GET", layout_key(self._keys))])
        self._layout = _checked_layout(layout, self._keys.prefix)
        self.is_readable = True

    def before_writing(self) -> Exchange[None]:
        """Refuse a mixed layout or a prefix that continues a used prefix, and warn of a server that evicts keys."""
        if not self.has_one_layout:
            other = Keys(self._keys.prefix, "sdk" if self._keys.layout == "tagged" else "tagged")
            indexes = [keys.index(bucket, "session") for keys in (self._keys, other) for bucket in keys.buckets]
            # A command for each: a server that is a whole cluster takes none whose keys are in several slots.
            there = yield from answers([("EXISTS", index) for index in indexes])
            count = len(self._keys.buckets)
            _check_not_mixed(sum(there[:count]), sum(there[count:]), self._keys)
            if shorter := self._keys.shorter_prefixes:
                # An error is not an answer: this user may be allowed to see the keys below its own prefix only.
                found = yield [("EXISTS", Keys(prefix, "sdk").index(0, "session")) for prefix in shorter], True
                met = [prefix for prefix, is_used in zip(shorter, found, strict=True) if is_used == 1]
                _check_not_continued(met, sum(there[:count]), self._keys.prefix)
        if self._policy.is_unknown:
            (about,) = yield [ASKED], True
            self._policy.take_answer(about)
        target = version_to_write(LAYOUT, BEFORE)
        if self._layout < target:
            yield from answers([("SET", layout_key(self._keys), target)])
            self._layout = target
        self.is_writable = True


def layout_key(keys: Keys) -> bytes:
    """Return the key for the number of a newer layout. Layout 1 stores nothing there."""
    return to_bytes(f"{keys.root()}layout")


def _check_not_mixed(own: int, others: int, keys: Keys) -> None:
    """Refuse the first session of a layout below a prefix in use by the other layout.

    One id would be two conversations, and each worker would see its own. If both layouts are in use already, nothing is
    refused: stored sessions must stay within reach.
    """
    if others and not own:
        raise NotADatabaseError(
            f"sessions below {keys.prefix!r} are kept in the other layout, and none in layout {keys.layout!r}",
            "Give all workers the same layout=, or choose another key_prefix for this one.",
        )


def _check_not_continued(shorter: Sequence[str], own: int, prefix: str) -> None:
    """Refuse the first session below a prefix that continues a prefix in use: an id below the shorter prefix could name
    these keys.

    Where both are in use already this is logged: what is there must stay within reach.
    """
    if not shorter:
        return
    what = f"sessions are kept below {shorter[0]!r}, which {prefix!r} continues: an id there can name a session here"
    if own:
        _log.warning("%s; move one of the two to a prefix that does not begin the other", what)
        return
    raise NotADatabaseError(what, "Choose a key_prefix that neither continues nor begins another one.")


def _checked_layout(found: bytes | str | None, prefix: str) -> int:
    """Return the layout of the keys; refuse a layout newer than the release."""
    said = to_text(found) if isinstance(found, bytes) else found or "1"
    layout = int(said) if said.isdecimal() and len(said) < 10 else LAYOUT + 1
    if layout > LAYOUT:
        raise SchemaTooNewError(
            f"a newer standfast keeps the sessions below {prefix!r} in layout {said[:20]!r}; this one knows {LAYOUT}",
            "Upgrade standfast in this process, or choose another key_prefix.",
        )
    return layout
