"""Names of the tools of MCP servers, and of servers in texts for people and models.

Names with a server are equal to the SDK's, so that prompts with them keep working: tools of equal name, and a name too
long for a provider, end in a few digits of a hash instead.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence, Set
from urllib.parse import urlsplit, urlunsplit

NAME_LENGTH_MAX = 64
# Providers refuse longer names of functions.
HASH_LENGTH = 8

_FROM_A_URL = ("sse: ", "streamable_http: ", "streamable-http: ")


def redact(name: str) -> str:
    """A server's name for errors, logs, items and names of tools: a URL loses its user, password, query and fragment.

    A server that was given no name is called after its URL, and people put keys into those.
    """
    prefix = next((one for one in _FROM_A_URL if name.startswith(one)), "")
    address = name[len(prefix) :]
    if not prefix and not address.lower().startswith(("http://", "https://")):
        return name
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return f"{prefix}<invalid-url>"
    if not host or parts.scheme not in ("http", "https") or any(letter.isspace() for letter in host):
        return f"{prefix}<invalid-url>"
    where = f"[{host}]" if ":" in host else host
    return prefix + urlunsplit((parts.scheme, where if port is None else f"{where}:{port}", parts.path, "", ""))


def names_with_servers(listed: Sequence[tuple[str, Sequence[str]]], taken: Set[str] = frozenset()) -> list[list[str]]:
    """Return a unique name for each tool of each server, outside the names already taken.

    `listed` has each server's name with the names of its tools; the result has one list for each server.
    """
    wanted = [
        (_with_server(redact(server), tool), f"{redact(server)}\0{tool}", place, number)
        for place, (server, tools) in enumerate(listed)
        for number, tool in enumerate(tools)
    ]
    counts = Counter(name for name, *_ in wanted)
    first = [
        (_shorten(name, seed, forced=counts[name] > 1 or name in taken), seed, place, number, name)
        for name, seed, place, number in wanted
    ]
    used, given = set(taken), {}
    for candidate, seed, place, number, name in sorted(
        first
    ):  # sorted: the same names whatever order servers answer in
        chosen, attempt = candidate, 0
        while chosen in used:
            attempt += 1
            chosen = _shorten(name, f"{seed}\0{attempt}", forced=True)
        used.add(chosen)
        given[place, number] = chosen
    return [[given[place, number] for number in range(len(tools))] for place, (_, tools) in enumerate(listed)]


def _with_server(server: str, tool: str) -> str:
    return f"mcp_{_replace_disallowed(server, 'server')}__{_replace_disallowed(tool, 'tool')}"


def _replace_disallowed(text: str, otherwise: str) -> str:
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in text)
    return kept.strip("_-") or otherwise


def _shorten(name: str, seed: str, *, forced: bool) -> str:
    if not forced and len(name) <= NAME_LENGTH_MAX:
        return name
    # No secret and no signature: eight digits that are the same in every process. SHA-1 because the SDK's names are.
    digits = hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()[:HASH_LENGTH]
    return f"{name[: NAME_LENGTH_MAX - HASH_LENGTH - 1].rstrip('_-') or 'mcp'}_{digits}"
