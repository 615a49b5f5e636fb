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
    """A few connections to one server. What it is asked for together goes out in one write."""

    def __init__(self, url: str, **options: Any) -> None:
        # Answers are bytes, whatever the caller's own client does; and a request is never sent again behind our back:
        # whether it may be repeated is decided where it is known what it was.
        options |= {"decode_responses": False, "retry": Retry(NoBackoff(), 0)}
        self._pool = ConnectionPool.from_url(url, **options)
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], *, reading: bool) -> list[Any]:
        """The answers, in order. An error that the server answered with is among them."""
        try:
            connection: Connection = self._pool.get_connection()
        except (failed.ConnectionError, failed.TimeoutError, OSError) as error:
            raise unreachable(error, self.where) from error
        except failed.ResponseError as error:
            raise refused(error) from error
        try:
            packed = b"".join(chunk for command in commands for chunk in connection.pack_command(*command))  # type: ignore[no-untyped-call]
            connection.send_packed_command([packed], check_health=False)  # type: ignore[no-untyped-call]
            return [self._answer(connection) for _ in commands]
        except (failed.ConnectionError, failed.TimeoutError, OSError) as error:
            connection.disconnect()  # type: ignore[no-untyped-call]
            raise unanswered(error, reading=reading) from error
        except BaseException:
            connection.disconnect()  # type: ignore[no-untyped-call]  # a late answer must not be taken for another one
            raise
        finally:
            self._pool.release(connection)

    @staticmethod
    def _answer(connection: Connection) -> Any:
        try:
            return connection.read_response(disable_decoding=True)
        except failed.ResponseError as error:
            return error

    def close(self) -> None:
        """Close every connection."""
        self._pool.disconnect()


def redis_address(url: str) -> str:
    """A URL without its password, for an error."""
    return url.rpartition("@")[2] if "@" in url else url.partition("://")[2]


class _Asked(NamedTuple):
    """A command, the same with its script, and what its answer means."""

    command: Command
    with_script: Command
    meaning: Callable[[Any], Answer]


def _called(call: Call, meaning: Callable[[Any], Answer]) -> _Asked:
    arguments = (len(call.keys), *call.keys, *call.args)
    return _Asked(("EVALSHA", call.script.sha, *arguments), ("EVAL", call.script.text, *arguments), meaning)


class RedisStore:
    """A Redis or Valkey server of one node as a store (see `sessions.port`)."""

    loses_answers = True
    is_shareable = True

    def __init__(self, link: Link, *, prefix: str, layout: Layout, ttl_ms: int | None) -> None:
        self._link, self.keys, self._ttl_ms = link, Keys(prefix, layout), ttl_ms
        self._refs = Refs()

    def _keys_of(self, name: Name) -> NameKeys:
        return self.keys.of(name)

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
        asked = [self._asked(question) for question in questions]
        reading = all(isinstance(question, Look) for question in questions)
        found = self._link.ask([one.command for one in asked], reading=reading)
        # A new server, a failover, SCRIPT FLUSH: what was asked for was not done, and goes again with the script.
        unknown = [place for place, one in enumerate(found) if isinstance(one, failed.NoScriptError)]
        if unknown:
            again = self._link.ask([asked[place].with_script for place in unknown], reading=reading)
            for place, answer in zip(unknown, again, strict=True):
                found[place] = answer
        return [
            refused(got) if isinstance(got, failed.ResponseError) else one.meaning(got)
            for one, got in zip(asked, found, strict=True)
        ]

    def _asked(self, question: Look | Step) -> _Asked:
        if isinstance(question, Look):
            bounds = plain_read(question)
            keys = self._keys_of(question.name)
            if bounds is not None:
                return _Asked(("LRANGE", keys.keys[1], *bounds), (), data_of)
            return _called(look_call(question, keys), partial(sight_of, question))
        call = commit_call(question, self._keys_of, self._refs, self._ttl_ms)
        return _called(call, lambda reply: outcome_of(question, reply, self._refs))

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """A page of an index, verified against the names themselves."""
        return listing.page(self, kind, after, limit, labels)

    def count(self, kind: Kind) -> int:
        """How many names there are."""
        return listing.count(self, kind)

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """What the server answers to commands that change nothing that matters."""
        found = self._link.ask(commands, reading=True)
        for one in found:
            if isinstance(one, failed.ResponseError):
                raise refused(one)
        return found

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
