"""What `close()` returns when it has already happened.

On memory and SQLite `session.close()` takes effect when it is called, without a loop, and may still be awaited (A19).
A coroutine would do nothing until awaited and complain if it never is; this is a coroutine that has already ended.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Done(Coroutine[Any, Any, None]):
    """An awaitable for something that is over: awaiting it gives None at once, leaving it alone is fine."""

    __slots__ = ()

    def send(self, value: Any, /) -> Any:
        """End at once, as a coroutine without an await does."""
        raise StopIteration

    def throw(self, kind: Any, value: Any = None, trace: Any = None, /) -> Any:
        """Raise what was thrown in: there is no code here that could catch it."""
        if isinstance(kind, type):
            kind = kind() if value is None else value
        raise kind

    def close(self) -> None:
        """Nothing is left to give up."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield  # makes this a generator, which is what await asks for
