"""Redis store on a cluster: every step stays within one slot.

A session, its part of the index and its saved runs share one of 256 hash tags, chosen by the session's id. A run is
asked for by its own id alone, so its place is stored under a key derived from the run's id, written once, before the
run's first save. Another slot is only ever read: the conditions and rows of a fork's source, which are read before the
fork is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import redis.exceptions as failed
from redis.cluster import RedisCluster

from standfast._src.base.errors import StoreUnavailableError
from standfast._src.sessions.backends.redis.connection import redis_address
from standfast._src.sessions.backends.redis.keys import NameKeys, bucket_of, to_bytes
from standfast._src.sessions.backends.redis.redis_errors import LOST, lost, unreachable, unusable
from standfast._src.sessions.backends.redis.redis_storage import AnsweringLink, RedisStore
from standfast._src.sessions.backends.redis.sansio import Command, answers, run_exchange
from standfast._src.sessions.storage import (
    NOBODY,
    Answer,
    Arrange,
    Ask,
    CommitRequest,
    Done,
    KeyUpdate,
    Name,
    Range,
    ReadRequest,
    Refused,
    Rows,
)
from standfast._src.sessions.storage_helpers import asked_alone, conditions, in_range, refusal

RUNS_REMEMBERED_MAX = 10_000  # where a run is kept can be asked again, so all are forgotten when there are more


class ClusterLink:
    """Client for all nodes, for one thread at a time; each command is sent to the node with its slot."""

    def __init__(self, url: str, **options: object) -> None:
        self._url, self._options = url, options | {"decode_responses": False}
        self._client: RedisCluster | None = None
        self.where = redis_address(url)

    def ask(self, commands: Sequence[Command], reading: bool) -> list[Any]:
        """Return the answers in order, with a node's errors among them."""
        client = self._client or self._connect()
        found: list[Any] = []
        for place, command in enumerate(commands):
            node: dict[str, Any] = {}
            try:
                if command[0] == "WAIT":  # the node that has what was just written
                    key = commands[place - 1][3]
                    node = {"target_nodes": client.get_node_from_key(key)}  # type: ignore[no-untyped-call]
                found.append(client.execute_command(*command, **node))  # type: ignore[no-untyped-call]
            except LOST as error:
                raise lost(error, self.where, reading=reading) from error
            except failed.ResponseError as error:
                found.append(error)
        return found

    def reach(self) -> None:
        """Connect if necessary: before a connection exists, nothing can have been sent."""
        if self._client is None:
            self._connect()

    def _connect(self) -> RedisCluster:
        try:
            self._client = RedisCluster.from_url(self._url, **self._options)
        except (failed.RedisError, *LOST) as error:
            raise unreachable(error, self.where) from error
        except (TypeError, ValueError) as error:
            raise unusable(error) from error
        return self._client

    def close(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
            # redis-py gives connections back to their pools, and leaves those open
            for node in client.get_nodes():  # type: ignore[no-untyped-call]
                if node.redis_connection is not None:
                    node.redis_connection.connection_pool.disconnect()


class ClusterStore(RedisStore):
    """A Redis or Valkey cluster as a store."""

    def __init__(self, link: AnsweringLink, *, prefix: str, ttl_ms: int | None, wait_replicas: int = 0) -> None:
        super().__init__(link, prefix=prefix, layout="tagged", ttl_ms=ttl_ms, wait_replicas=wait_replicas)
        self._runs: dict[str, int] = {}
        self._greeting.has_one_layout = True

    def line(self, count: int) -> None:
        """Return None: any of several connections may bring the answer."""

    # --- where names are

    def keys_of(self, name: Name) -> NameKeys:
        """Return the keys of a name in its slot."""
        return self.keys.of(name, self._bucket(name))

    def _bucket(self, name: Name) -> int:
        if name.kind == "session":
            return bucket_of(name.id)
        found = self._runs.get(name.id)
        if found is None:
            (said,) = self._answers(("GET", self._pointer(name.id)))
            found = bucket_of(name.id) if said is None else int(said)
            if said is not None:
                self._remember(name.id, found)
        return found

    def _pointer(self, run_id: str) -> bytes:
        return to_bytes(f"{self.keys.root(bucket_of(run_id))}where:{run_id}")

    def _remember(self, run_id: str, bucket: int) -> None:
        if len(self._runs) >= RUNS_REMEMBERED_MAX:
            self._runs.clear()
        self._runs[run_id] = bucket

    def _place_runs(self, step: CommitRequest) -> None:
        """Assign a new run to its session's slot."""
        for change in step:
            session = (change.labels or {}).get("session")
            if change.name.kind != "run" or session is None or change.name.id in self._runs:
                continue
            if change.cells.get("head", b"") is None:  # it is not there yet
                self._answers(("SET", self._pointer(change.name.id), bucket_of(session), "NX"))
            self._bucket(change.name)

    def _answers(self, command: Command) -> Sequence[Any]:
        return run_exchange(answers([command]), self._link.ask)

    # --- asking

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Ask the questions in turn: two of them rarely lead to the same node."""
        return [asked_alone(self, question) for question in questions]

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Commit by one script call if all names are in the same slot."""
        self._place_runs(step)
        buckets = [self._bucket(change.name) for change in step]
        if len(set(buckets)) == 1 and not _reaches_out(step):
            return super().commit(step)
        if all(change == KeyUpdate(change.name, remove=True) for change in step):  # each removal is independent
            for change in step:
                super().commit([change])
            return Done(("",) * len(step))
        return self._across(step, buckets)

    def _across(self, step: CommitRequest, buckets: Sequence[int]) -> Done | Refused:
        writes = [place for place, change in enumerate(step) if not _only_asks(change)]
        if len({buckets[place] for place in writes}) > 1:
            raise StoreUnavailableError(
                f"{sorted({str(step[place].name.id) for place in writes})} are in different slots of the cluster",
                "Keep a run and its session in one store, and save the run with its session's id from the start.",
            )
        for place, change in enumerate(step):
            if place not in writes:
                refused = refusal(place, change, self.look(conditions(change)))
                if refused is not None:
                    return refused
        done = super().commit([self._brought_in(step[place]) for place in writes])
        if isinstance(done, Refused):
            return msgspec.structs.replace(done, place=writes[done.place])
        marks = dict(zip(writes, done.marks, strict=True))
        return Done(tuple(marks.get(place, "") for place in range(len(step))))

    def _brought_in(self, change: KeyUpdate) -> KeyUpdate:
        """Replace the rows of other names by new rows."""
        if change.arrange is None:
            return change
        live: list[Any] = []
        for part in change.arrange.live:
            if isinstance(part, Range) and part.of is not None:
                rows = self.look(ReadRequest(part.of, rows=(Rows(part.box),))).rows[0]
                live.append([(row.data, row.tag or NOBODY) for row in in_range(rows, part)])
            else:
                live.append(part)
        wanted_arrange: Arrange = change.arrange._replace(live=live)
        return msgspec.structs.replace(change, arrange=wanted_arrange)


def _reaches_out(step: CommitRequest) -> bool:
    return any(
        isinstance(part, Range) and part.of is not None
        for change in step
        for part in (() if change.arrange is None else change.arrange.live)
    )


def _only_asks(change: KeyUpdate) -> bool:
    return change == KeyUpdate(change.name, mark=change.mark, prefix=change.prefix, cells=change.cells)
