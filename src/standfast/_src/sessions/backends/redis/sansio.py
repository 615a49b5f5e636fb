"""Exchanges with a server as generators, without I/O, so that a thread and an event loop can both drive them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

import redis.exceptions as failed

from standfast._src.base.errors import StandfastError
from standfast._src.sessions.backends.redis.redis_errors import refused_error

T = TypeVar("T")

Command = tuple[Any, ...]
Exchange = Generator[tuple[Sequence[Command], bool], Sequence[Any], T]
"""Yields what to send in one write, and whether it only reads; is sent the answers, errors of the server among them."""


def answers(commands: Sequence[Command]) -> Exchange[Sequence[Any]]:
    """Return the answers to commands without lasting changes; raise a refusal."""
    found = yield commands, True
    for one in found:
        if isinstance(one, failed.ResponseError):
            raise refused_error(one)
    return found


Asking = Callable[[Sequence[Command], bool], list[Any]]


def run_exchange(exchange: Exchange[T], ask: Asking) -> T:
    """Drive an exchange to its result in a waiting thread. An error of `ask` is raised inside the generator."""
    try:
        sent = next(exchange)
        while True:
            try:
                found = ask(*sent)
            except StandfastError as error:
                sent = exchange.throw(error)
            else:
                sent = exchange.send(found)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_exchange_async(
    exchange: Exchange[T], ask: Callable[[Sequence[Command], bool], Awaitable[list[Any]]]
) -> T:
    """The same in an event loop."""
    try:
        sent = next(exchange)
        while True:
            try:
                found = await ask(*sent)
            except StandfastError as error:
                sent = exchange.throw(error)
            else:
                sent = exchange.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
