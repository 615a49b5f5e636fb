"""Opening of a store by its URL: choice of backend and options.

A third-party backend registers its scheme with `register_store`. Nothing is made unless it is asked for: a path that
does not exist is an error.
"""

from __future__ import annotations

import os

from standfast._kits.operators import url_schemes
from standfast._kits.operators.store import Store
from standfast._kits.operators.store_url import parse_url
from standfast._kits.operators.url_schemes import Opener, Opening
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import InvalidSettingError, UnknownSchemeError
from standfast._src.base.extras import needed_by

_openers: dict[str, Opener] = dict(url_schemes.BUILT_IN)


def register_store(scheme: str, opener: Opener) -> None:
    """Let `open_store` open URLs of a scheme; a later registration replaces an earlier one."""
    if not isinstance(scheme, str) or not scheme or not scheme[0].isalpha() or not scheme.isascii():
        raise InvalidSettingError(f"{scheme!r} is no scheme of a URL", "Give a word like 'sqlite'.")
    _openers[scheme.lower()] = opener


def open_store(
    url: str | os.PathLike[str], *, read_only: bool = False, create: bool = False, timeout_s: float = 30.0
) -> Store:
    """The store of a URL or of a database file: `sqlite:///talks.db`, `talks.db`, `redis://…`, `postgresql://…`.

    `sqlite:///talks.db` is relative, `sqlite:////srv/talks.db` is not. Further names follow a question mark:
    `?sessions_table=…&messages_table=…` (files and PostgreSQL), `schema=…` (PostgreSQL), `key_prefix=…`, `layout=…`,
    `cluster=1` (Redis). With the name of a driver, as in `postgresql+asyncpg://…` or `sqlite+aiosqlite:///…`, it is
    what `SQLAlchemySession` keeps there. `read_only`: every change is refused, and a file is read without leaving a
    trace. A missing file is made only with `create`. Raises StoreNotFoundError for a path that does not exist and
    UnknownSchemeError for a scheme that is not registered; `async with` also finds out at once whether the store can be
    reached and read.
    """
    found = parse_url(url)
    opener = (
        url_schemes.sqlalchemy
        if found.driver and found.scheme in url_schemes.SQLALCHEMY
        else _openers.get(found.scheme)
    )
    if opener is None:
        raise UnknownSchemeError(
            f"{found.scheme}:// is no kind of store that is known here",
            f"Known are {', '.join(sorted(_openers))}, and the path of an SQLite file; others are registered with "
            "register_store().",
        )
    if read_only and create:
        raise InvalidSettingError("a store that is only looked at is not made", "Give read_only or create, not both.")
    opening = Opening(found, read_only, create, check_seconds("timeout_s", timeout_s, is_ttl=True))
    with needed_by(f"a store at {found.scheme}://"):
        return opener(opening)
