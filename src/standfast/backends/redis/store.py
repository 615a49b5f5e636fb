"""The store: looks and steps over connections of its own, from any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import redis.exceptions as failed
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.retry import Retry

from standfast.backends.redis import listing
from standfast.backends.redis.errors import refused, unanswered, unreachable
from standfast.backends.redis.keys import Keys, Layout, NameKeys
from standfast.backends.redis.scripts import (
    Call,
    Refs,
    append_call,
    commit_call,
    data_of,
    look_call,
    outcome_of,
    plain_read,
    sight_of,
)
from standfast.ground.errors import StandfastError
from standfast.sessions.port import (
    Answer,
    Ask,
    Count,
    Done,
    Kind,
    Listed,
    Listing,
    Look,
    Name,
    Refused,
    Sight,
    Step,
    ask,
)

Command = tuple[Any, ...]


class Link:
    """A connection to one server, for one thread at a time. What it is asked for together goes out in one write."""

    def __init__(self, url: str, **options: Any) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self._connection: Connection | None = None
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], *, reading: bool) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them."""
        connection = self._connection or self._opened()
        try:
            packed = b"".join([part for command in commands for part in _packed(command)])
            connection.send_packed_command([packed], check_health=False)  # type: ignore[no-untyped-call]
            return [self._answer(connection) for _ in commands]
        except (failed.RedisError, OSError) as error:
            self.close()
            raise unanswered(error, reading=reading) from error
        except BaseException:
            self.close()  # a late answer must not be taken for another one
            raise

    def _opened(self) -> Connection:
        # Not `make_connection()`: it counts what it ever made, and refuses for good after a hundred reconnects.
        connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)
        try:
            connection.connect()
        except failed.ResponseError as error:
            raise refused(error) from error
        except (failed.RedisError, OSError) as error:
            raise unreachable(error, self.where) from error
        found: Connection = connection
        self._connection = found
        return found

    @staticmethod
    def _answer(connection: Connection) -> Any:
        try:
            return connection.read_response(disable_decoding=True)
        except failed.ResponseError as error:
            return error

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]


def _packed(command: Command) -> list[bytes]:
    """A command as it is sent. redis-py's own way takes three times as long, which is a tenth of a whole append."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        data = part if isinstance(part, bytes) else str(part).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return parts


def redis_address(url: str) -> str:
    """A URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]


class Asked(NamedTuple):
    """A command, the same with its script, and what its answer means."""

    command: Command
    with_script: Command
    meaning: Callable[[Any], Answer]


def _called(call: Call, meaning: Callable[[Any], Answer]) -> Asked:
    arguments = (len(call.keys), *call.keys, *call.args)
    return Asked(("EVALSHA", call.script.sha, *arguments), ("EVAL", call.script.text, *arguments), meaning)


class Codec:
    """What is sent for a question and what the answer means, for one way of keeping names in Redis."""

    def __init__(self, *, prefix: str, layout: Layout, ttl_ms: int | None) -> None:
        self.keys, self._ttl_ms = Keys(prefix, layout), ttl_ms
        self._refs = Refs()

    def keys_of(self, name: Name) -> NameKeys:
        """The keys of a name."""
        return self.keys.of(name)

    def asked(self, question: Look | Step) -> Asked:
        """The command for a question: the small script where it will do."""
        if isinstance(question, Look):
            bounds = plain_read(question)
            keys = self.keys_of(question.name)
            if bounds is not None:
                return Asked(("LRANGE", keys.keys[1], *bounds), (), data_of)
            return _called(look_call(question, keys), partial(sight_of, question))
        small = append_call(question, self.keys_of(question[0].name), self._refs, self._ttl_ms)
        if small is None:
            return self.general(question)
        return _called(small, lambda reply: outcome_of(question, reply, self._refs))

    def general(self, step: Any) -> Asked:
        """The command for a step, whatever it is."""
        call = commit_call(step, self.keys_of, self._refs, self._ttl_ms)
        return _called(call, lambda reply: outcome_of(step, reply, self._refs))

    def again(self, questions: Sequence[Look | Step], asked: list[Asked], found: Sequence[Any]) -> dict[int, Command]:
        """What must be asked once more, by its place: nothing of it was done.

        A script that the server does not know (a new server, a failover, SCRIPT FLUSH) goes as text; what the small
        script leaves alone goes to the other one.
        """
        more: dict[int, Command] = {}
        for place, got in enumerate(found):
            if isinstance(got, failed.NoScriptError):
                more[place] = asked[place].with_script
            elif isinstance(got, int) and got == 0:
                asked[place] = self.general(questions[place])
                more[place] = asked[place].with_script
        return more


def meanings(asked: Sequence[Asked], found: Sequence[Any]) -> list[Answer | Exception]:
    """What the answers mean; what the server refused is an error."""
    return [
        refused(got) if isinstance(got, failed.ResponseError) else one.meaning(got)
        for one, got in zip(asked, found, strict=True)
    ]


class RedisStore(Codec):
    """A Redis or Valkey server of one node as a store (see `sessions.port`)."""

    loses_answers = True

    def __init__(self, link: Any, *, prefix: str, layout: Layout, ttl_ms: int | None) -> None:
        super().__init__(prefix=prefix, layout=layout, ttl_ms=ttl_ms)
        self._link = link

    def look(self, look: Look) -> Sight:
        """One LRANGE if only the contents of the history are wanted, else one script call."""
        found = self._one(look)
        assert isinstance(found, Sight)
        return found

    def commit(self, step: Step) -> Done | Refused:
        """One script call."""
        found = self._one(step)
        assert isinstance(found, Done | Refused)
        return found

    def _one(self, question: Look | Step) -> Answer:
        found = self._together([question])[0]
        if isinstance(found, Exception):
            raise found
        return found

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """All of it in one write, but for listings, which take several round trips each."""
        together = [question for question in questions if not isinstance(question, Listing | Count)]
        answers = iter(self._together(together) if together else ())
        return [
            self._listed(question) if isinstance(question, Listing | Count) else next(answers) for question in questions
        ]

    def _listed(self, question: Listing | Count) -> Answer | Exception:
        try:
            return ask(self, question)
        except StandfastError as error:
            return error

    def _together(self, questions: Sequence[Look | Step]) -> list[Answer | Exception]:
        asked = [self.asked(question) for question in questions]
        reading = all(isinstance(question, Look) for question in questions)
        found = self._link.ask([one.command for one in asked], reading=reading)
        while more := self.again(questions, asked, found):
            for place, got in zip(more, self._link.ask(list(more.values()), reading=reading), strict=True):
                found[place] = got
        return meanings(asked, found)

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """A page of an index, verified against the names themselves."""
        return listing.page(self, kind, after, limit, labels)

    def count(self, kind: Kind) -> int:
        """How many names there are."""
        return listing.count(self, kind)

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """What the server answers to commands that change nothing that matters."""
        found: list[Any] = self._link.ask(commands, reading=True)
        for one in found:
            if isinstance(one, failed.ResponseError):
                raise refused(one)
        return found

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
