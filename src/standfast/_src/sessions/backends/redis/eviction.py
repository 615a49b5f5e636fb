"""Detection of a server that may evict stored conversations when its memory is full, and a warning once.

An evicting policy takes keys one by one: items of a session, and leaves the counts that say they were written.
"""

from __future__ import annotations

import redis.exceptions as failed

from standfast._src.base.logs import session_logger as _log

ASKED = ("INFO", "memory")
"""What to ask the server: not CONFIG, which servers that somebody else runs do not allow."""

_looked_at: set[tuple[str, bool]] = set()
ADDRESSES_MAX = 1000  # the set lives as long as the process; a server that is forgotten is asked once more


class EvictionPolicy:
    """A server's eviction policy, asked for once in a process, before the first write."""

    def __init__(self, where: str, *, expires: bool) -> None:
        self._server = (where, expires)

    @property
    def is_unknown(self) -> bool:
        """True until the server's policy is known."""
        return self._server not in _looked_at

    def take_answer(self, answer: object) -> None:
        """Take the server's answer; an error is none, since whether anything may be evicted changes nothing here."""
        if len(_looked_at) >= ADDRESSES_MAX:
            _looked_at.clear()
        _looked_at.add(self._server)
        if isinstance(answer, failed.RedisError):
            return
        facts = _facts(answer)
        policy, limit = facts.get("maxmemory_policy", ""), facts.get("maxmemory", "0")
        where, expires = self._server
        if limit != "0" and (policy.startswith("allkeys") or (expires and policy.startswith("volatile"))):
            _log.warning(
                "the server at %s evicts keys when its memory is full (maxmemory-policy %s): parts of conversations "
                "can be lost; set noeviction, so that it refuses whole batches instead",
                where,
                policy,
            )


def _facts(answer: object) -> dict[str, str]:
    """Return the fields of an INFO answer, parsed by the client or not."""
    if isinstance(answer, dict):
        nodes = [value for value in answer.values() if isinstance(value, dict)]  # of a cluster: each says its own
        return {str(name): str(value) for name, value in (nodes[0] if nodes else answer).items()}
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
