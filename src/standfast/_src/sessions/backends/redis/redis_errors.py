"""Translation of Redis errors: was anything done, and what can the caller do?"""

from __future__ import annotations

import redis.exceptions as failed

from standfast._src.base.errors import (
    CorruptRecordError,
    InvalidSettingError,
    NotADatabaseError,
    OutcomeUnknownError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from standfast._src.sessions.storage_helpers import build_no_answer_error

_BY_CODE: dict[str, tuple[type[StoreError], str]] = {
    "WRONGTYPE": (NotADatabaseError, "Another program uses this key: choose another key_prefix, or remove the key."),
    "OOM": (StoreFullError, "Give the server more memory (maxmemory), or let sessions expire (ttl=)."),
    "MISCONF": (StoreFullError, "The server cannot write its file: look at its disk and its log."),
    "READONLY": (StoreReadOnlyError, "Connect to the primary; this server is a replica."),
    "NOPERM": (StoreUnavailableError, "Let this user run EVALSHA, EVAL and the commands of the scripts on these keys."),
    "NOAUTH": (StoreUnavailableError, "Give the password: redis://:password@host/0."),
    "WRONGPASS": (StoreUnavailableError, "Correct the user name and password of the URL or the client."),
    "TORN": (
        CorruptRecordError,
        "The server evicted some of its keys, or they were deleted, renamed or copied one by one. Read what is left "
        "with get_items(), keep it in a session of another id or clear this one, and set maxmemory-policy noeviction.",
    ),
    "CROSSSLOT": (
        StoreUnavailableError,
        'On a cluster use layout="tagged": it keeps the keys of a session together.',
    ),
}


_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (failed.OutOfMemoryError, "OOM"),
    (failed.ReadOnlyError, "READONLY"),
    (failed.NoPermissionError, "NOPERM"),
)


_NO_SUCH_COMMAND = (
    StoreUnavailableError,
    "The server has renamed this command or switched it off: let it have EVALSHA, EVAL, SCAN, HELLO and the "
    "commands of the scripts under their own names.",
)
# Looked for before the codes: behind "unknown command" stand keys, and with them ids of sessions. In any case: a server
# says it in other words of a command inside of a script, and Redis 7.0 in others than Valkey and later releases.
_BY_TEXT: dict[str, tuple[type[StoreError], str]] = {
    "unknown command": _NO_SUCH_COMMAND,
    "unknown redis command": _NO_SUCH_COMMAND,
    "db index is out of range": (
        StoreUnavailableError,
        "The server has no database of this number: correct the end of the URL (redis://host:6379/0), or raise its "
        "setting `databases`.",
    ),
    "acl failure": _BY_CODE["NOPERM"],
    "the user executing the script can't": _BY_CODE["NOPERM"],
}


def refused_error(error: failed.ResponseError) -> StoreError:
    """Build the error for a refusal by the server: nothing was done."""
    text = str(error)
    # redis-py takes the code off the text of errors it has a class for.
    known = next((code for kind, code in _BY_CLASS if isinstance(error, kind)), "")
    found = _BY_CODE.get(known) or next((_BY_TEXT[part] for part in _BY_TEXT if part in text.lower()), None)
    found = found or next((_BY_CODE[code] for code in _BY_CODE if code in text), None)
    kind, remedy = found or (StoreUnavailableError, "Look at the server's log, then try again.")
    made = kind(f"Redis refused: {text}", remedy)
    made.is_lasting = found is not None  # what is not known here may pass: a server that is loading, a moved slot
    return made


def unusable(error: Exception) -> InvalidSettingError:
    """Build the error for an option unknown to redis-py: nothing was sent."""
    return InvalidSettingError(
        f"redis-py cannot make a connection of these options: {error}",
        "Correct redis_kwargs, or what stands behind the question mark of the URL.",
    )


def unreachable(error: BaseException, where: str) -> StoreUnavailableError:
    """No connection was made, so nothing was sent."""
    remedy, is_lasting = "Is the server running there, and does its address belong to Redis or Valkey?", False
    if any(isinstance(one, failed.AuthenticationError) for one in (error, error.__cause__)):
        remedy, is_lasting = "Correct the user name and password of the URL or the client.", True
    elif "Cluster mode is not enabled" in str(error):
        remedy, is_lasting = "It is a server by itself: leave cluster=True out, or give a Redis client.", True
    elif "CERTIFICATE_VERIFY_FAILED" in str(error):
        remedy, is_lasting = (
            "Name who vouches for its certificate (`ssl_ca_certs`), or correct the URL's host.",
            True,
        )
    elif "max number of clients" in str(error):
        remedy = "Each process uses three connections: raise the server's maxclients, or close what is not used."
    made = StoreUnavailableError(f"Redis cannot be reached at {where}: {error}", remedy)
    made.is_lasting = is_lasting
    return made


LOST = (
    failed.ConnectionError,
    failed.TimeoutError,
    failed.ClusterError,  # the cluster is down, or its nodes send a command back and forth
    failed.RedisClusterException,  # redis-py's own: no node can be reached, or no node has the slot; not a RedisError
    OSError,
)
"""What a client raises where no answer came."""


def lost(error: Exception, where: str, *, reading: bool) -> StoreError:
    """Build the error for a missing answer. After a refused login nothing has been sent."""
    if isinstance(error, failed.AuthenticationError):
        return unreachable(error, where)
    if isinstance(error, failed.ClusterError) and not isinstance(error, failed.ResponseError):
        # Each node that was asked has sent it on, or said to come again: some keys of its slot are here, some there.
        return StoreUnavailableError(
            f"the cluster is moving the slot that this is in: {error}",
            "Nothing was done; try again when it has moved, or look for a move that was left half-way (CLUSTER NODES).",
        )
    return build_no_answer_error("Redis", str(error), reading=reading)


def too_few(count: object, wanted: int, *, is_written: bool) -> StoreError:
    """Build the error for a write, or the refusal of a write, confirmed by too few replicas.

    `count` is their number, or the server's error in place of a number.
    """
    state = "it was written" if is_written else "whether it was written is not known"
    safe = "Repeating an append under the same writer and number is safe, and waits again."
    if isinstance(count, failed.ResponseError):
        return OutcomeUnknownError(
            f"{state}, and whether replicas have it the server does not say: {count}",
            f"Let this user run WAIT, or do without wait_replicas. {safe}",
        )
    had = f"within the time for it {count} of {wanted} replicas had it"
    joint = "but" if is_written else "and"
    return OutcomeUnknownError(f"{state}, {joint} {had}: a failover may lose it", f"Look at the replicas. {safe}")
