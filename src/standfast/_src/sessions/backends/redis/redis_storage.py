"""Redis store over connections of its own, for any thread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import redis.exceptions as failed

from standfast._src.base.errors import StandfastError, StoreError
from standfast._src.sessions.backends.redis import listing
from standfast._src.sessions.backends.redis.handshake import Handshake
from standfast._src.sessions.backends.redis.keys import Keys, Layout, NameKeys
from standfast._src.sessions.backends.redis.redis_errors import refused_error, too_few
from standfast._src.sessions.backends.redis.sansio import Command, Exchange, run_exchange
from standfast._src.sessions.backends.redis.scripts import Asked, Refs, build_append, build_look, build_step
from standfast._src.sessions.storage import Answer, Ask, CommitRequest, Count, Done, Listing, Name, ReadRequest
from standfast._src.sessions.storage_helpers import Answering

WAIT_MS = 2000
"""How long a write waits for replicas, where that is asked for; everything behind it on its connection waits too."""


_LISTINGS, _LOOKS = {Listing, Count}, {ReadRequest}
_PLAIN = {bytes, list}
"""Answers that are no errors, and not the small script's word that this is nothing for it."""
_command_of = attrgetter("command")


class Codec:
    """Translation of questions into commands, and of answers back, for one way of keeping names in Redis."""

    def __init__(self, *, prefix: str, layout: Layout, ttl_ms: int | None, where: str, wait_replicas: int = 0) -> None:
        self.keys, self._ttl_ms = Keys(prefix, layout), ttl_ms
        self._refs = Refs()
        self._greeting = Handshake(self.keys, where, expires=bool(ttl_ms))
        self.label = f"Redis at {where}, prefix {prefix!r}"
        self._wait_replicas = wait_replicas

    def keys_of(self, name: Name) -> NameKeys:
        """The keys of a name."""
        return self.keys.of(name)

    def asked(self, question: ReadRequest | CommitRequest) -> Asked:
        """Return the command for a question: the small script for a plain append."""
        if isinstance(question, ReadRequest):
            return build_look(question, self.keys_of(question.name))
        small = build_append(question, self.keys_of(question[0].name), self._refs, self._ttl_ms)
        return self.general(question) if small is None else small

    def general(self, step: Any) -> Asked:
        """Return the general script's command for a step."""
        return build_step(step, self.keys_of, self._refs, self._ttl_ms)

    def again(
        self, questions: Sequence[ReadRequest | CommitRequest], asked: list[Asked], found: Sequence[Any]
    ) -> dict[int, Command]:
        """Return the commands to send once more, by place: nothing of them was done.

        A script that the server does not know (a new server, a failover, SCRIPT FLUSH) is sent as text. A step that the
        small script declines is sent to the general script.
        """
        more: dict[int, Command] = {}
        for place, got in enumerate(found):
            if got == 0:
                asked[place] = self.general(questions[place])
            if got == 0 or isinstance(got, failed.NoScriptError):
                more[place] = asked[place].with_script()
        return more

    def exchange(self, questions: Sequence[Any]) -> Exchange[list[Answer | Exception]]:
        """Send the questions: looks and steps in a row in one write, a listing in several."""
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
            meant.append(refused_error(told) if isinstance(told, failed.ResponseError) else question.meaning(told))
        return self._check_replicas(questions, meant, found[-1]) if wait else meant

    def _in_turn(self, questions: Sequence[Any]) -> Exchange[list[Answer | Exception]]:
        """Answer listings among other questions. An error leaves the questions answered before untouched."""
        answered: list[Answer | Exception] = []
        for is_listing, some in groupby(questions, lambda question: isinstance(question, (Listing, Count))):
            if is_listing:
                for question in some:
                    answered.append((yield from self._answer_listing(question)))
                continue
            together = list(some)
            try:
                answered += yield from self.exchange(together)
            except StandfastError as error:
                answered += [error] * len(together)
        return answered

    def _answer_listing(self, question: Listing | Count) -> Exchange[Answer | Exception]:
        try:
            if isinstance(question, Count):
                return (yield from listing.count(self.keys, question.kind))
            return (yield from listing.page(self.keys, question))
        except StandfastError as error:  # of this question, and not of those that were asked with it
            return error

    def _check_replicas(
        self, questions: Sequence[Ask], answers: Sequence[Answer | Exception], count: object
    ) -> list[Any]:
        """Return the answers if enough replicas confirmed the writes; otherwise put errors in place of the steps'
        answers.

        Also if a step was refused: it may repeat a step that is stored and that the replicas still lack.
        """
        if isinstance(count, int) and count >= self._wait_replicas:
            return list(answers)
        return [
            got if isinstance(question, ReadRequest) or isinstance(got, Exception) else self._too_few_error(got, count)
            for question, got in zip(questions, answers, strict=True)
        ]

    def _too_few_error(self, answer: Answer, count: object) -> StoreError:
        error = too_few(count, self._wait_replicas, is_written=isinstance(answer, Done))
        error.is_lasting = True  # not asked again: a repeat that finds it done would not be waited for
        return error


class AnsweringLink(Protocol):
    """As much of a link as a store needs that is asked in a thread."""

    where: str

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """Return the answers in order, with the server's errors among them."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class RedisStore(Codec, Answering):
    """Store on a Redis or Valkey server of one node (see `_src.sessions.storage`)."""

    loses_answers = True

    def __init__(
        self, link: AnsweringLink, *, prefix: str, layout: Layout, ttl_ms: int | None, wait_replicas: int = 0
    ) -> None:
        super().__init__(prefix=prefix, layout=layout, ttl_ms=ttl_ms, where=link.where, wait_replicas=wait_replicas)
        self._link: Any = link  # one to a single server can be reached, too

    def reach(self) -> None:
        """Connect if necessary."""
        self._link.reach()

    def answer(self, question: Ask) -> Answer:
        """Ask one question and return the answer or raise the error."""
        (found,) = run_exchange(self.exchange([question]), self._link.ask)
        if isinstance(found, Exception):
            raise found
        return found

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Send all questions in one write, except listings."""
        return run_exchange(self.exchange(questions), self._link.ask)

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
