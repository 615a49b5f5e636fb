"""Awaitables for acts that have already happened.

On memory and SQLite `session.close()` takes effect when it is called, without a loop, and may still be awaited (A19).
A coroutine would do nothing until awaited and complain if it never is; this is a coroutine that has already ended.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")


class Completed(Coroutine[Any, Any, T], Generic[T]):
    """Awaitable with a known outcome: awaiting returns it at once, and not awaiting it is fine."""

    __slots__ = ("_error", "_result")

    def __init__(self, result: T = None, *, error: BaseException | None = None) -> None:  # type: ignore[assignment]
        self._result, self._error = result, error

    def send(self, value: object, /) -> NoReturn:
        """End at once, as a coroutine without an await does."""
        if self._error is not None:
            raise self._error
        raise StopIteration(self._result)

    def throw(
        self, kind: type[BaseException] | BaseException, value: Any = None, trace: TracebackType | None = None, /
    ) -> NoReturn:
        """Raise the given exception: no code here could catch it."""
        if isinstance(kind, type):
            kind = kind() if value is None else value
        raise kind

    def close(self) -> None:
        """Do nothing: there is nothing to abandon."""

    def __await__(self) -> Generator[Any, Any, T]:
        if self._error is not None:
            raise self._error
        return self._result
        yield  # makes this a generator, which is what await asks for
