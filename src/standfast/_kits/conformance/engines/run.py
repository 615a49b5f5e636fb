"""Runner of the checks of engines."""

from __future__ import annotations

import asyncio
import copy
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from standfast._kits.conformance.engines.checks import CHECKS, EngineCheck
from standfast._kits.conformance.engines.engine import Engine
from standfast._kits.conformance.engines.fated_agent import Book, fated_agent
from standfast._kits.conformance.engines.trial import EngineBroken, Trial
from standfast._kits.conformance.engines.worker import config_of
from standfast._kits.conformance.results import BROKEN, KEPT, LEFT_OUT
from standfast._kits.workers.jobs import RunJobs
from standfast._src.base.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class EngineResult:
    """Outcome of a check of an engine: kept, broken or left out; `detail` is the observation or the reason."""

    sentence: str
    check: str
    value: str
    detail: str = ""


def check_engine(
    engine: Engine, *names: str, watch: Callable[[EngineResult], object] | None = None
) -> list[EngineResult]:
    """Make checks of an engine's adapter in order, all without a name; call `watch` with each result."""
    found = []
    for one in checks_named(*names):
        result = _make(engine, one)
        found.append(result)
        if watch is not None:
            watch(result)
    return found


def checks_named(*names: str) -> list[EngineCheck]:
    """Return these checks, or all; raise NotFoundError for an unknown name."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise NotFoundError(f"there is no check of engines {unknown[0]!r}", f"There are {', '.join(CHECKS)}.")
    return [CHECKS[name] for name in names] or list(CHECKS.values())


def _make(engine: Engine, found: EngineCheck) -> EngineResult:
    if found.needs and not engine.can(found.needs):
        reason = f"the description has no method {found.needs}()"
        return EngineResult(found.sentence, found.name, LEFT_OUT, reason)
    try:
        make_check(engine, found)
    except EngineBroken as broken:
        return EngineResult(found.sentence, found.name, BROKEN, broken.seen)
    return EngineResult(found.sentence, found.name, KEPT)


def make_check(engine: Engine, found: EngineCheck) -> None:
    """Make one check; raise EngineBroken for a broken sentence of G1."""
    if not engine.name:
        raise ValueError(f"{type(engine).__name__} has no name. Set `name`: it is the column of the scorecard.")
    with tempfile.TemporaryDirectory(prefix="standfast-engine-", ignore_cleanup_errors=True) as folder:
        live = copy.copy(engine)
        live.folder, live.unique = Path(folder), f"k{uuid.uuid4().hex[:10]}"
        live.setup()
        try:
            asyncio.run(_body(live, found))
        finally:
            live.teardown()


async def _body(engine: Engine, found: EngineCheck) -> None:
    try:
        # The process of the check has the agents too, as a web process has that reads results; it works nothing off.
        agent = fated_agent(Book(engine.folder), lambda **_: None)
        async with (
            RunJobs([agent], engine.store_url, run_config=config_of(engine), max_turns=None) as jobs,
            engine.open([agent], config_of(engine), works=False) as client,
        ):
            trial = Trial(engine, client, jobs, found.sentence, found.name)
            try:
                await found.body(trial)
            finally:
                trial.staff.kill_all()
    except EngineBroken:
        raise
    except Exception as error:
        seen = f"it raised {type(error).__name__}: {error}"
        raise EngineBroken(found.sentence, engine.name, found.name, seen) from error
