"""Attributes of results that programs may set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

V = TypeVar("V")


class Editable(Generic[V]):
    """An attribute of a result that is read from its run until the program sets it.

    Results of the SDK are plain records that programs edit before they pass them on. Here an edit belongs to the result
    alone: it reaches neither the session nor a saved state, which hold what happened.
    """

    def __init__(self, read: Callable[[Any], V]) -> None:
        self.read, self.name, self.__doc__ = read, read.__name__, read.__doc__

    @overload
    def __get__(self, result: None, owner: type[Any]) -> Editable[V]: ...

    @overload
    def __get__(self, result: object, owner: type[Any]) -> V: ...

    def __get__(self, result: Any, owner: type[Any]) -> Editable[V] | V:
        if result is None:
            return self
        edits: dict[str, Any] = result._edits
        return cast(V, edits[self.name]) if self.name in edits else self.read(result)

    def __set__(self, result: Any, value: V) -> None:
        result._edits[self.name] = value
