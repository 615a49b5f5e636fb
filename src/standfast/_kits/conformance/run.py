"""Runner of checks.

Each check runs in a thread of its own with a time limit, so that a backend that hangs is reported like any other that
breaks its promise. `check` is the whole kit as a function; the pytest suite calls the same `run_check`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import partial

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.catalogue import checks_of
from standfast._kits.conformance.check_context import Lab, Options, fresh
from standfast._kits.conformance.registry import Check, ClauseBroken
from standfast._kits.conformance.results import BROKEN, KEPT, LEFT_OUT, Result, excuse
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import abilities


def check(backend: Backend, *clause_ids: str, only: str = "", options: Options | None = None) -> list[Result]:
    """Run every check of these clauses (none named: all) that the backend supports; `only` names a single check."""
    return [make() for make in prepare_checks(backend, *clause_ids, only=only, options=options)]


def prepare_checks(
    backend: Backend, *clause_ids: str, only: str = "", options: Options | None = None
) -> list[Callable[[], Result]]:
    """Return each check of `check` as a function, for a caller that acts between them."""
    backend.check_description()
    declared = declared_abilities(backend)
    found: list[Callable[[], Result]] = []
    for one in checks_of(*clause_ids):
        if only not in ("", one.name):
            continue
        missing = excuse(backend, one.clause_id) or one.missing(backend, declared)
        if missing:
            found.append(partial(Result, one.clause_id, one.name, LEFT_OUT, missing))
        else:
            found.append(partial(_run_one, backend, one, options))
    return found


def _run_one(backend: Backend, found: Check, options: Options | None) -> Result:
    try:
        run_check(backend, found, options or Options())
    except ClauseBroken as broken:
        return Result(found.clause_id, found.name, BROKEN, broken.seen, isinstance(broken.__cause__, _Hung))
    return Result(found.clause_id, found.name, KEPT)


def declared_abilities(backend: Backend) -> frozenset[str]:
    """Return the abilities declared by the backend's sessions, "close" if they have it, and "port" if they use a store
    of the port.

    They are read from a session of an empty store. A suite asks for them when it is imported, so a backend that can
    open a session before its `setup` is not set up here: collecting tests then starts no server.
    """
    with fresh(backend, prepare=not backend.opens_before_setup) as live:
        lab = Lab(live, Check("A1", "declared_abilities", lambda lab: None, ()), Options())
        probe = lab.open("probe")
        _in_thread(lambda: asyncio.run(lab.close()), backend.patience_s)  # a thread, as a loop may be running here
        more = {"close": hasattr(probe, "close"), "port": isinstance(probe, StoredSession)}
        return abilities(probe) | {name for name, has in more.items() if has}


def run_check(backend: Backend, found: Check, options: Options) -> None:
    """Make one check; raises ClauseBroken, and nothing else, if the clause is not kept."""
    try:
        _in_thread(lambda: _body(backend, found, options), backend.patience_s)
    except ClauseBroken:
        raise
    except (Exception, asyncio.CancelledError) as error:  # a cancellation that the check did not ask for went astray
        raise ClauseBroken(found.clause_id, backend.name, found.name, _describe_error(error)) from error


class _Hung(Exception):
    """A check did not return in time; its thread is abandoned."""


def _describe_error(error: BaseException) -> str:
    if isinstance(error, _Hung):
        return str(error)
    if isinstance(error, ExceptionGroup):
        return "; ".join(_describe_error(inner) for inner in error.exceptions)
    return f"it raised {type(error).__name__}: {error}"


def _body(backend: Backend, found: Check, options: Options) -> None:
    with fresh(backend) as live:
        lab = Lab(live, found, options)
        if not inspect.iscoroutinefunction(found.body):
            try:
                found.body(lab)
            finally:
                asyncio.run(lab.close())
            return
        body = found.body

        async def whole() -> None:
            try:
                await body(lab)
            finally:
                await lab.close()

        asyncio.run(whole())


def _in_thread(work: Callable[[], object], patience_s: float) -> None:
    """Run work in a thread with a time limit: a hanging thread cannot be stopped, only abandoned."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="conformance-check", daemon=True)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        raise _Hung(f"it did not come back within {patience_s:g} s")
    if failures:
        raise failures[0]
