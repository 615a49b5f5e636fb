"""Everything that can be set, from the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
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
    """What callers must show as `Authorization: Bearer …`. Without one the service starts only if `open` is set."""
    open: bool = False
    """Answer callers without a token: for a computer or a network on which every process may do everything."""
    hosts: str = "localhost,127.0.0.1,[::1]"
    """The names by which clients reach the service, with commas between them; `*` is any."""
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
        """What the environment says; a value that does not fit is refused by name."""
        given: dict[str, Any] = {}
        for one in fields(cls):
            name = f"SERVICE_{one.name.upper()}"
            value = environment.get(name)
            if value is None:
                continue
            if isinstance(one.default, bool):
                if value not in ("", "0", "1"):
                    raise InvalidSettingError(f"{name}={value!r} is neither 0 nor 1", "Give 1 for yes.")
                given[one.name] = value == "1"
                continue
            try:
                given[one.name] = float(value) if isinstance(one.default, float) else value
            except ValueError:
                raise InvalidSettingError(f"{name}={value!r} is no number", "Give seconds, such as 1.5.") from None
        return cls(**given)

    def check_access(self) -> None:
        """Raise InvalidSettingError where every process that reaches the port could decide about calls."""
        if not (self.token or self.open or is_behind_socket_file()):
            raise InvalidSettingError(
                "the service has no token: it would do what any caller says",
                "Set SERVICE_TOKEN, bind to a Unix socket (--uds), or set SERVICE_OPEN=1 to trust every caller.",
            )


def is_behind_socket_file(arguments: Sequence[str] = sys.argv, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether uvicorn was started with a Unix socket, whose file says who may connect."""
    named = any(one == "--uds" or one.startswith("--uds=") for one in arguments)
    return named or bool(environment.get("UVICORN_UDS"))


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
