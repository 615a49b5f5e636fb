"""A backend on DynamoDB: a log of steps for each session and each saved run, in a partition of its own.

The idea is that of `audit_backend.py`: what a name holds is what comes of doing its steps again, in memory. Here a step
of several names is a transaction that puts one entry into the log of each, under the next number, if nobody else has.
One more item of each name, in an index, is for listing. It needs `boto3`; `docs/how-to/write-a-backend.md` says more.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from audit_backend import State, _told

from standfast._src.base.errors import NotFoundError, OutcomeUnknownError, StoreUnavailableError
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor, get_or_create_executor
from standfast._src.sessions.storage import (
    Arrange,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Name,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Tag,
)

ENTRY_BYTES_MAX = 300_000  # an item may have 400 KB: what is longer is kept in several
NAMES_MAX = 1_000  # how many names are remembered; of others the whole log is read again
LISTED = -1  # the number of the item that stands in the index
COUNTER = {"pk": {"S": "counter"}, "sk": {"N": "0"}}


class DynamoSession(StoredSession):
    """A conversation in a DynamoDB table. `client` are options of `boto3.client`: region, endpoint, credentials."""

    def __init__(self, session_id: str, table: str, *, client: Mapping[str, Any], **options: Any) -> None:
        super().__init__(session_id, **options)
        self.table, self.client = table, dict(client)
        self._shared: ThreadedExecutor | None = None

    def _store_key(self) -> Hashable:
        return ("dynamodb", self.table, repr(sorted(self.client.items())))

    def _carrier(self) -> Executor:
        if self._shared is None:
            table, client = self.table, self.client
            self._shared = get_or_create_executor(
                self._store_key(), lambda: ThreadedExecutor(lambda: DynamoStore(table, client))
            )
        return self._shared

    def _another(self, new_id: str) -> DynamoSession:
        options = {"session_settings": self._copied_settings(), "timeout_s": self.timeout_s}
        return DynamoSession(new_id, self.table, client=self.client, **options)


class Known:
    """A name as far as its log was read."""

    def __init__(self) -> None:
        self.state, self.number = State(), 0

    def do(self, entry: bytes) -> tuple[str, ...]:
        done = self.state.do(entry)
        assert isinstance(done, Done)
        self.number += 1
        return done.marks


class DynamoStore:
    """A table as a store: what `standfast._src.sessions.storage.Store` asks for."""

    loses_answers = True

    def __init__(self, table: str, client: Mapping[str, Any]) -> None:
        self._table, self._options = table, client
        self._names: dict[Name, Known] = {}
        self._db: Any = None

    # --- looking -----------------------------------------------------------------------------------------------------

    def look(self, look: ReadRequest) -> ReadAnswer:
        return self._now(look.name).state.look(look)

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        if after is not None and not (after.isascii() and after.isdigit()):
            raise NotFoundError(f"{after!r} is no cursor of a listing", "Use the cursor of the page before.")
        found: list[Listed] = []
        for item in self._listed(kind, below=int(after or 10**30)):
            sight = self.look(ReadRequest(Name(kind, json.loads(item["id"]["S"])), times=True))
            if sight.created is None or sight.updated is None:
                continue  # it was removed a moment ago
            if all(sight.labels.get(label) == value for label, value in labels.items()):
                name = json.loads(item["id"]["S"])
                found.append(Listed(name, sight.created, sight.updated, sight.labels, item["changed"]["N"]))
            if len(found) == limit:
                break
        return found

    def count(self, kind: Kind) -> int:
        return sum(1 for _ in self._listed(kind, below=10**30))

    def _listed(self, kind: Kind, below: int) -> Iterator[dict[str, Any]]:
        yield from self._query(
            IndexName="by_change",
            KeyConditionExpression="kind = :kind AND changed < :below",
            ExpressionAttributeValues={":kind": {"S": kind}, ":below": {"N": str(below)}},
            ScanIndexForward=False,
        )

    def _now(self, name: Name) -> Known:
        """A name with what others have added to its log."""
        if name not in self._names and len(self._names) >= NAMES_MAX:
            self._names.clear()
        known = self._names.setdefault(name, Known())
        items = self._query(
            KeyConditionExpression="pk = :pk AND sk >= :number",
            ExpressionAttributeValues={":pk": {"S": _key(name)}, ":number": {"N": str(known.number)}},
            ConsistentRead=True,
        )
        for item in items:
            known.do(self._whole(item))
        return known

    def _whole(self, item: Mapping[str, Any]) -> bytes:
        if "entry" in item:
            return str(item["entry"]["S"]).encode()
        parts = self._query(
            KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": item["parts"]}, ConsistentRead=True
        )
        return "".join(part["entry"]["S"] for part in parts).encode()

    def _query(self, **question: Any) -> Iterator[dict[str, Any]]:
        while True:
            with self._told(reading=True) as db:
                page = db.query(TableName=self._table, **question)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            question["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    # --- changing ----------------------------------------------------------------------------------------------------

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Put an entry into the log of each name, all or none; it has happened when they are there."""
        while True:
            for place, change in enumerate(step):
                refused = self._now(change.name).state._find_refusal(place, change)
                if refused is not None:
                    return refused
            entries = self._entries(step)
            if self._put([item for name, entry in entries.items() for item in self._items(name, entry, step)]):
                marks = {name: iter(self._names[name].do(entry)) for name, entry in entries.items()}
                return Done(tuple(next(marks[change.name]) for change in step))

    def _entries(self, step: CommitRequest) -> dict[Name, bytes]:
        changes: dict[Name, list[Any]] = {}
        for change in step:
            changes.setdefault(change.name, []).append(_told(self._alone(change)))
        return {name: json.dumps({"at": time.time(), "changes": some}).encode() for name, some in changes.items()}

    def _alone(self, change: KeyUpdate) -> KeyUpdate:
        """The change with rows of other names written out: its log must make sense without theirs."""
        if change.arrange is None:
            return change
        live = [self._rows(part) if isinstance(part, Range) and part.of else part for part in change.arrange.live]
        told = {field: getattr(change, field) for field in change.__struct_fields__}
        return KeyUpdate(**{**told, "arrange": Arrange(live, *change.arrange[1:])})

    def _rows(self, part: Range) -> list[tuple[bytes, Tag]]:
        assert part.of is not None
        return [(row.data, row.tag or Tag()) for row in self._now(part.of).state._range(part.of, part)]

    def _items(self, name: Name, entry: bytes, step: CommitRequest) -> Iterator[dict[str, Any]]:
        key, text = _key(name), entry.decode()
        item = {"pk": {"S": key}, "sk": {"N": str(self._names[name].number)}, "entry": {"S": text}}
        if len(text) > ENTRY_BYTES_MAX:
            del item["entry"]
            item["parts"] = {"S": self._put_parts(text)}
        yield {"Put": {"Item": item, "ConditionExpression": "attribute_not_exists(pk)"}}
        listed = {"pk": {"S": key}, "sk": {"N": str(LISTED)}}
        mine = [change for change in step if change.name == name]
        if any(change.touch for change in mine):
            told = {"kind": {"S": name.kind}, "id": {"S": json.dumps(name.id)}, "changed": {"N": self._next_number()}}
            yield {"Put": {"Item": listed | told}}
        elif any(change.remove or change.wipe is not None for change in mine):
            yield {"Delete": {"Key": listed}}

    def _put_parts(self, text: str) -> str:
        name = f"parts#{uuid.uuid4().hex}"
        for number, start in enumerate(range(0, len(text), ENTRY_BYTES_MAX)):
            part = {"S": text[start : start + ENTRY_BYTES_MAX]}
            with self._told(reading=False) as db:
                db.put_item(TableName=self._table, Item={"pk": {"S": name}, "sk": {"N": str(number)}, "entry": part})
        return name

    def _next_number(self) -> str:
        with self._told(reading=False) as db:
            found = db.update_item(
                TableName=self._table, Key=COUNTER, UpdateExpression="ADD n :one",
                ExpressionAttributeValues={":one": {"N": "1"}}, ReturnValues="UPDATED_NEW",
            )  # fmt: skip
        return str(found["Attributes"]["n"]["N"])

    def _put(self, items: list[dict[str, Any]]) -> bool:
        """Whether they were put; not, if somebody else's entry has one of their numbers."""
        named = [{what: {**one, "TableName": self._table} for what, one in item.items()} for item in items]
        with self._told(reading=False) as db:
            try:
                db.transact_write_items(TransactItems=named)
            except db.exceptions.TransactionCanceledException:
                return False
        return True

    # --- the table ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _told(self, *, reading: bool) -> Iterator[Any]:
        """The client, with the table made; what goes wrong is told in the words that a store has for it."""
        from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

        try:
            if self._db is None:
                self._db = self._opened()
            yield self._db
        except (EndpointConnectionError, ConnectTimeoutError, ClientError) as error:
            raise StoreUnavailableError(
                f"DynamoDB refused or is not there: {error}", "Look at table and rights."
            ) from error
        except BotoCoreError as error:  # the request may have arrived
            kind = StoreUnavailableError if reading else OutcomeUnknownError
            raise kind(f"DynamoDB did not answer: {error}", "Ask again.") from error

    def _opened(self) -> Any:
        import boto3

        db = boto3.client("dynamodb", **self._options)
        text, number = {"AttributeType": "S"}, {"AttributeType": "N"}
        types = {"pk": text, "sk": number, "kind": text, "changed": number}

        def keys(first: str, second: str) -> Any:
            return [{"AttributeName": first, "KeyType": "HASH"}, {"AttributeName": second, "KeyType": "RANGE"}]

        index = {
            "IndexName": "by_change",
            "KeySchema": keys("kind", "changed"),
            "Projection": {"ProjectionType": "ALL"},
        }
        try:
            db.create_table(
                TableName=self._table, KeySchema=keys("pk", "sk"), GlobalSecondaryIndexes=[index],
                AttributeDefinitions=[{"AttributeName": name, **kind} for name, kind in types.items()],
                BillingMode="PAY_PER_REQUEST",
            )  # fmt: skip
        except db.exceptions.ResourceInUseException:
            pass  # it is there, or somebody is making it
        db.get_waiter("table_exists").wait(TableName=self._table, WaiterConfig={"Delay": 1})
        return db

    def close(self) -> None:
        if self._db is not None:
            self._db.close()


def _key(name: Name) -> str:
    """A key for any id, however long and whatever it holds."""
    return f"{name.kind}#{sha256(name.id.encode('utf-8', 'surrogatepass')).hexdigest()}"
