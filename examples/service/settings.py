"""Everything that can be set, from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from standfast import Agent, InvalidSettingError


@dataclass(frozen=True, slots=True)
class Settings:
    """Each is read from `SERVICE_` and its name in capitals."""

    store: str = "sqlite:///service.db"
    """Where conversations and runs are kept: `sqlite:///file.db`, or `postgresql://…` for several machines."""
    agent: str = "service.agent:clerk"
    """The agent that answers, as `module:name`."""
    token: str = ""
    """What callers must show as `Authorization: Bearer …`; empty: nobody is asked."""
    hook_url: str = ""
    """Who is told that a call waits for a person; empty: nobody, and people look for themselves."""
    hook_secret: str = ""
    """What both sides sign with. Without one, whoever has the token decides."""
    tend_s: float = 1.0
    """How often each worker looks for runs that others have left, and for people who must be asked."""
    lease_s: float = 10.0
    """How long the runs of a dead worker stay its own. SQLite sees at once that a process is gone."""
    stop_s: float = 8.0
    """How long what has begun may take to end on SIGTERM: less than what the machine allows (containers: 10)."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """What the environment says; a number that is none is refused by name."""
        given: dict[str, Any] = {}
        for one in fields(cls):
            name = f"SERVICE_{one.name.upper()}"
            value = environment.get(name)
            if value is None:
                continue
            try:
                given[one.name] = float(value) if isinstance(one.default, float) else value
            except ValueError:
                raise InvalidSettingError(f"{name}={value!r} is no number", "Give seconds, such as 1.5.") from None
        return cls(**given)


def agent_named(place: str) -> Agent[Any]:
    """The agent that `module:name` is."""
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSettingError(f"there is no agent at {place!r}: {error}", "Name it as module:name.") from error
    if not isinstance(found, Agent):
        raise InvalidSettingError(f"{place!r} is a {type(found).__name__}", "Name an Agent.")
    return found
