"""The store: looks and steps over connections of its own, from any thread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import redis.exceptions as failed

from standfast.backends.redis import listing
from standfast.backends.redis.errors import refused, too_few
from standfast.backends.redis.exchange import Command, Exchange, driven
from standfast.backends.redis.greeting import Greeting
from standfast.backends.redis.keys import Keys, Layout, NameKeys
from standfast.backends.redis.link import SentExchange
from standfast.backends.redis.scripts import Asked, Refs, appended, changed, looked
from standfast.ground.errors import StandfastError, StoreError
from standfast.sessions.answering import Answering
from standfast.sessions.port import Answer, Ask, Count, Done, Listing, Look, Name, Step

WAIT_MS = 2000
"""How long a write waits for replicas, where that is asked for; everything behind it on its connection waits too."""


_LISTINGS, _LOOKS = {Listing, Count}, {Look}
_PLAIN = {bytes, list}
"""Answers that are no errors, and not the small script's word that this is nothing for it."""
_command_of = attrgetter("command")


class Codec:
    """What is sent for a question and what the answer means, for one way of keeping names in Redis."""

    def __init__(self, *, prefix: str, layout: Layout, ttl_ms: int | None, where: str, wait_replicas: int = 0) -> None:
        self.keys, self._ttl_ms = Keys(prefix, layout), ttl_ms
        self._refs = Refs()
        self._greeting = Greeting(self.keys, where, expires=bool(ttl_ms))
        self.label = f"Redis at {where}, prefix {prefix!r}"
        self._wait_replicas = wait_replicas

    def keys_of(self, name: Name) -> NameKeys:
        """The keys of a name."""
        return self.keys.of(name)

    def asked(self, question: Look | Step) -> Asked:
        """The command for a question: the small script where it will do."""
        if isinstance(question, Look):
            return looked(question, self.keys_of(question.name))
        small = appended(question, self.keys_of(question[0].name), self._refs, self._ttl_ms)
        return self.general(question) if small is None else small

    def general(self, step: Any) -> Asked:
        """The command for a step, whatever it is."""
        return changed(step, self.keys_of, self._refs, self._ttl_ms)

    def again(self, questions: Sequence[Look | Step], asked: list[Asked], found: Sequence[Any]) -> dict[int, Command]:
        """What must be asked once more, by its place: nothing of it was done.

        A script that the server does not know (a new server, a failover, SCRIPT FLUSH) goes as text; what the small
        script leaves alone goes to the other one.
        """
        more: dict[int, Command] = {}
        for place, got in enumerate(found):
            if got == 0:
                asked[place] = self.general(questions[place])
            if got == 0 or isinstance(got, failed.NoScriptError):
                more[place] = asked[place].with_script()
        return more

    def exchange(self, questions: Sequence[Any]) -> Exchange[list[Answer | Exception]]:
        """What is sent for questions: looks and steps in a row in one write, a listing in several."""
        if not self._greeting.is_readable:
            yield from self._greeting.before_reading()
        kinds = set(map(type, questions))
        if not kinds.isdisjoint(_LISTINGS):
            return (yield from self._in_turn(questions))
        asked, reading = list(map(self.asked, questions)), kinds == _LOOKS
        if not reading and not self._greeting.is_writable:
            yield from self._greeting.before_writing()
        wait = [("WAIT", self._wait_replicas, WAIT_MS)] if self._wait_replicas and not reading else []
        found = list((yield [*map(_command_of, asked), *wait], reading))
        while not _PLAIN.issuperset(map(type, found)):
            more = self.again(questions, asked, found[: len(asked)])
            if not more:
                break
            got = yield [*more.values(), *wait], reading
            for place, one in zip([*more, len(asked)], got, strict=False):
                found[place] = one
        meant: list[Answer | Exception] = []
        for place, question in enumerate(asked):  # behind them: what the replicas have
            told = found[place]
            meant.append(refused(told) if isinstance(told, failed.ResponseError) else question.meaning(told))
        return self._acknowledged(questions, meant, found[-1]) if wait else meant

    def _in_turn(self, questions: Sequence[Any]) -> Exchange[list[Answer | Exception]]:
        """Listings among other questions. An error of some is none of those before: these were answered."""
        answered: list[Answer | Exception] = []
        for is_listing, some in groupby(questions, lambda question: isinstance(question, (Listing, Count))):
            if is_listing:
                for question in some:
                    answered.append((yield from self._listed(question)))
                continue
            together = list(some)
            try:
                answered += yield from self.exchange(together)
            except StandfastError as error:
                answered += [error] * len(together)
        return answered

    def _listed(self, question: Listing | Count) -> Exchange[Answer | Exception]:
        try:
            if isinstance(question, Count):
                return (yield from listing.count(self.keys, question.kind))
            return (yield from listing.page(self.keys, question))
        except StandfastError as error:  # of this question, and not of those that were asked with it
            return error

    def _acknowledged(
        self, questions: Sequence[Ask], answers: Sequence[Answer | Exception], count: object
    ) -> list[Any]:
        """The answers, if so many replicas have what was written; else errors in place of those to steps.

        Also where a step was refused: it may be the repeat of one that is there, and that the replicas still lack.
        """
        if isinstance(count, int) and count >= self._wait_replicas:
            return list(answers)
        return [
            got if isinstance(question, Look) or isinstance(got, Exception) else self._unacknowledged(got, count)
            for question, got in zip(questions, answers, strict=True)
        ]

    def _unacknowledged(self, answer: Answer, count: object) -> StoreError:
        error = too_few(count, self._wait_replicas, is_written=isinstance(answer, Done))
        error.is_lasting = True  # not asked again: a repeat that finds it done would not be waited for
        return error


class AnsweringLink(Protocol):
    """As much of a link as a store needs that is asked in a thread."""

    where: str

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class RedisStore(Codec, Answering):
    """A Redis or Valkey server of one node as a store (see `sessions.port`)."""

    loses_answers = True

    def __init__(
        self, link: AnsweringLink, *, prefix: str, layout: Layout, ttl_ms: int | None, wait_replicas: int = 0
    ) -> None:
        super().__init__(prefix=prefix, layout=layout, ttl_ms=ttl_ms, where=link.where, wait_replicas=wait_replicas)
        self._link: Any = link  # one to a single server can be reached and lent, too

    def reach(self) -> None:
        """Connect, if it is not connected."""
        self._link.reach()

    def answer(self, question: Ask) -> Answer:
        """What it answers to one question."""
        (found,) = driven(self.exchange([question]), self._link.ask)
        if isinstance(found, Exception):
            raise found
        return found

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """All of it in one write, but for listings."""
        return driven(self.exchange(questions), self._link.ask)

    # --- asked without waiting (see `carrying.lending`) ----------------------------------------------------------

    def line(self, count: int) -> Any:
        """The socket, if one is open and the server has been greeted."""
        return self._link.line if self._greeting.is_writable else None

    def begin(self, questions: Sequence[Ask]) -> SentExchange[list[Answer | Exception]]:
        """Send what asks for all of it, as far as that goes without waiting."""
        return SentExchange(self._link, self.exchange(questions))

    def break_off(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        self._link.close()

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
