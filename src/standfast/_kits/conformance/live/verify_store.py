"""`verify_store`: check a live store against the contract.

The conformance kit is run in a scratch name space of the store. Only checks harmless to other users are made. Each
check declares its needs, and `Backend.permitted` decides by them, so that a new check of the kit is left out until its
needs are permitted. `plan_verification` announces the writes beforehand.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from standfast._kits.conformance.catalogue import checks_of
from standfast._kits.conformance.check_context import Options
from standfast._kits.conformance.live.scratch_space import Leftover, Site
from standfast._kits.conformance.results import BROKEN, LEFT_OUT, Result
from standfast._kits.conformance.run import declared_abilities, prepare_checks
from standfast._kits.conformance.scorecard import Scorecard
from standfast._kits.contract.clauses import clause
from standfast._kits.operators.store_url import StoreURL, parse_url
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import InvalidSettingError, StoreError, UnknownSchemeError
from standfast._src.base.extras import needed_by
from standfast.version import __version__

if TYPE_CHECKING:
    from standfast._kits.conformance.backends.postgres import OnPostgres
    from standfast._kits.conformance.backends.sqlite import SQLiteBackend

T = TypeVar("T")
Progress = Callable[[Result, int, int], None]
"""Called with a result, its number, and the number of all results."""

AMOUNT = Options(rounds=3, examples=10, objects=400, soon_s=30)
"""How much is done on a live store: enough to see a broken store, and no load that another client would feel."""


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """Plan of a verification; making one changes nothing."""

    url: str
    """Without a password."""
    backend: str
    where: str
    writes: tuple[str, ...]
    """What will be written, and what stays of it, in sentences."""
    leftovers: tuple[Leftover, ...]
    """What other verifications have there: dead ones will be removed."""
    made: int
    """How many checks will be made."""
    left_out: int
    """How many will not, because they could harm other clients or need something that is not there."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Results of a verification."""

    plan: VerificationPlan
    card: Scorecard
    results: tuple[Result, ...]
    removed: tuple[str, ...]
    """Scratch names of verifications that had been killed, removed before this one began."""
    not_removed: tuple[str, ...]
    """Scratch names that could not be removed; a later verification tries again."""
    at: datetime
    took_s: float

    @property
    def broken(self) -> tuple[Result, ...]:
        """Return the checks of broken clauses; none means that the store keeps the checked part."""
        return tuple(result for result in self.results if result.value == BROKEN)

    def facts(self) -> dict[str, str]:
        """Return the facts above a report's table."""
        made = sum(result.value != LEFT_OUT for result in self.results)
        return {
            "store": self.plan.url,
            "checked in": self.plan.where,
            "when": f"{self.at:%Y-%m-%d %H:%M:%S} UTC, in {self.took_s:.0f} s",
            "with": f"standfast {__version__}, Python {platform.python_version()}",
            "checks": f"{made} made, {len(self.results) - made} left out",
        }

    def markdown(self) -> str:
        """The scorecard as a Markdown page."""
        facts = "\n".join(f"- {name}: `{_in_code(text)}`" for name, text in self.facts().items())
        return self.card.markdown("Verification of a store", facts)

    def html(self) -> str:
        """The scorecard as an HTML page, which loads nothing from elsewhere."""
        return self.card.html("Verification of a store", self.facts())


async def plan_verification(
    url: str | os.PathLike[str], *, clauses: Sequence[str] = (), in_place: bool = False, timeout_s: float = 30.0
) -> VerificationPlan:
    """Look at a store and say what `verify_store` would write there. Nothing is written.

    Raises UnknownSchemeError, StoreNotFoundError and StoreUnavailableError as `open_store` does.
    """
    site = _site(parse_url(url), clauses, in_place=in_place, timeout_s=timeout_s)
    try:
        return await asyncio.to_thread(_build_plan, parse_url(url), site, clauses)
    finally:
        site.close()


async def verify_store(
    url: str | os.PathLike[str],
    *,
    clauses: Sequence[str] = (),
    in_place: bool = False,
    options: Options = AMOUNT,
    progress: Progress | None = None,
    timeout_s: float = 30.0,
) -> Verification:
    """Run the conformance kit in a scratch name space of a live store; other data is neither read nor changed.

    `clauses`: only these ("A5", "B1"). An SQLite file is verified in a copy beside it; `in_place` does it in the file
    itself, with fewer checks. `progress` is called after each check, in the event loop. The remains of a killed
    verification are removed first, and everything of this one at the end, also if it is cancelled. Raises
    StoreUnavailableError if the store becomes unreachable: this proves nothing about the clauses.
    """
    where = parse_url(url)
    site = _site(where, clauses, in_place=in_place, timeout_s=timeout_s)
    started, at = time.monotonic(), datetime.now(UTC)
    removed: list[str] = []
    left: list[str] = []
    results: list[Result] = []
    try:
        plan = await _whole(asyncio.to_thread(_build_plan, where, site, clauses))
        await _whole(asyncio.to_thread(site.begin))
        removed, left = await _whole(asyncio.to_thread(site.remove_dead))
        checks = prepare_checks(site.backend, *clauses, options=options)
        for number, make in enumerate(checks, 1):
            seen = await _whole(asyncio.to_thread(make))
            result = replace(seen, detail=where.password_hidden_in(seen.detail))
            if result.value == BROKEN:
                # A check that could not reach the store has seen nothing broken: the error of the store is raised.
                await _whole(asyncio.to_thread(site.look))
            results.append(result)
            if progress is not None:
                progress(result, number, len(checks))
    finally:
        try:
            await _whole(asyncio.to_thread(site.end))
        except (StoreError, OSError):
            left.append(site.name)  # it is said to be dead soon, and the next verification removes it
        finally:
            site.close()
    card = Scorecard.of(site.backend, results, clause_ids=clauses)
    took_s = time.monotonic() - started
    return Verification(plan, card, tuple(results), tuple(removed), tuple(left), at, took_s)


def _site(found: StoreURL, clauses: Sequence[str], *, in_place: bool, timeout_s: float) -> Site:
    """Return the site for a store's verification."""
    for one in clauses:
        clause(one)
    check_seconds("timeout_s", timeout_s, is_ttl=True)
    if in_place and found.scheme != "sqlite":
        raise InvalidSettingError(
            f"a {found.scheme}:// store is always verified in place, in a name space of its own",
            "Leave in_place (--in-place) out.",
        )
    if in_place and found.driver:
        raise InvalidSettingError(
            "a file that is opened through SQLAlchemy is verified in a copy only", "Leave in_place (--in-place) out."
        )
    with needed_by(f"a store at {found.scheme}://"):
        return _open_site(found, in_place=in_place, timeout_s=timeout_s)


def _open_site(found: StoreURL, *, in_place: bool, timeout_s: float) -> Site:
    match found.scheme:
        case "sqlite":
            from standfast._kits.conformance.live.sqlite import FileSite

            return FileSite(found, _sqlite_backend(found.driver), in_place=in_place, timeout_s=timeout_s)
        case "redis" | "rediss":
            from standfast._kits.conformance.live.redis import RedisSite

            return RedisSite(found)
        case "postgresql" | "postgres":
            from standfast._kits.conformance.live.postgres import PostgresSite

            return PostgresSite(found, _postgres_backend(found.driver))
        case _:
            raise UnknownSchemeError(
                f"no scratch name space is known for {found.scheme}:// stores",
                "Run the kit on a store of its own: python -m standfast.conformance (docs/how-to/write-a-backend.md).",
            )


def _sqlite_backend(driver: str) -> SQLiteBackend:
    if not driver:
        from standfast._kits.conformance.backends.sqlite import SQLiteBackend

        return SQLiteBackend()
    from standfast._kits.conformance.backends.sqlalchemy import SQLAlchemySQLiteBackend

    through = SQLAlchemySQLiteBackend()
    through.driver = driver
    return through


def _postgres_backend(driver: str) -> OnPostgres:
    if not driver:
        from standfast._kits.conformance.backends.postgres import PostgresBackend

        return PostgresBackend()
    from standfast._kits.conformance.backends.sqlalchemy import SQLAlchemyPostgresBackend

    through = SQLAlchemyPostgresBackend()
    through.driver = driver
    return through


def _build_plan(url: StoreURL, site: Site, clauses: Sequence[str]) -> VerificationPlan:
    site.look()
    declared = declared_abilities(site.backend)
    checks = checks_of(*clauses)
    made = [one for one in checks if one.missing(site.backend, declared) is None]
    made = [one for one in made if one.clause_id not in site.backend.not_applicable]
    return VerificationPlan(
        url.shown,
        site.backend.name,
        site.where,
        site.writes,
        tuple(site.leftovers()),
        len(made),
        len(checks) - len(made),
    )


async def _whole(doing: Coroutine[Any, Any, T]) -> T:
    """Return the result of an uninterruptible act: a cancellation is raised at its end."""
    task = asyncio.ensure_future(doing)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break  # what it raised is raised below
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation is raised instead
        raise cancelled
    return task.result()


def _in_code(text: str) -> str:
    """Return a text that cannot leave its code span."""
    return " ".join(text.split()).replace("`", "'")
