"""What a mistake is, and how one is registered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from standfast._kits.conformance.reference_session import ReferenceSession
from standfast.conformance import Backend
from tests.conformance.kit_backends import Reference

Items = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Mistake:
    """A broken backend, the clause it breaks, and the check that should see it."""

    backend: Backend
    clause: str
    check: str

    def __str__(self) -> str:
        return f"{self.clause}-{self.backend.name}-{self.check}"


BROKEN: list[Mistake] = []


class Deafening(Reference):
    """The reference behind a line that can go dead: writes arrive, answers do not."""

    @contextmanager
    def lose_acknowledgement(self) -> Iterator[None]:
        self.store.__dict__["deaf"] = True
        yield
        self.store.__dict__["deaf"] = False


def breaks(clause: str, check: str, **flags: Any) -> Any:
    """Register a session class made from the reference as the mistake its docstring tells."""

    def register(kind: type[ReferenceSession]) -> type[ReferenceSession]:
        def open_session(self: Any, session_id: str, **options: Any) -> Any:
            return kind(session_id, store=self.store, **options)

        name = str(kind.__doc__).splitlines()[0].rstrip(".")
        backend = type(f"{kind.__name__}Backend", (Deafening,), {"name": name, "open": open_session, **flags})
        backend.__module__ = kind.__module__
        setattr(sys.modules[kind.__module__], backend.__name__, backend)  # where a child process finds it
        BROKEN.append(Mistake(backend(), clause, check))
        return kind

    return register
