"""The store: looks and steps over connections of its own, from any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from standfast.sessions.port import Done, Kind, Listed, Look, Name, Refused, Sight, Step

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
        bounds = plain_read(look)
        if bounds is not None:
            rows = self._keys_of(look.name).keys[1]
            return data_of(self.answers([("LRANGE", rows, *bounds)])[0])
        return sight_of(look, self._run(look_call(look, self._keys_of(look.name)), reading=True))

    def commit(self, step: Step) -> Done | Refused:
        """One script call."""
        call = commit_call(step, self._keys_of, self._refs, self._ttl_ms)
        return outcome_of(step, self._run(call, reading=False), self._refs)

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

    def _run(self, call: Call, *, reading: bool) -> Any:
        arguments = (len(call.keys), *call.keys, *call.args)
        found = self._link.ask([("EVALSHA", call.script.sha, *arguments)], reading=reading)[0]
        if isinstance(found, failed.NoScriptError):  # a new server, a failover, SCRIPT FLUSH: nothing was done
            found = self._link.ask([("EVAL", call.script.text, *arguments)], reading=reading)[0]
        if isinstance(found, failed.ResponseError):
            raise refused(found) from found
        return found

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
