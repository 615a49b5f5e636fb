"""Liveness of the process named in a database record, as far as certainty is possible.

A name is the boot, the process and the time namespace, the process id and its start time: a reused id, another
container or another start of the machine is another name. (Start times are counted from a boot that a time namespace
may move: across two of them the same process seems to be another.) Where any of that cannot be read (other systems than
Linux), or the name comes from another boot or namespace, nothing is certain: then only the clock ends what the process
held.
"""

from __future__ import annotations

import os
from functools import lru_cache

PROC = "/proc"
"""Where Linux shows its processes."""


def this_process() -> str | None:
    """Return the name of the running process; None if unavailable."""
    return _name_of(os.getpid(), PROC)


def is_gone(name: str | None) -> bool:
    """True if the named process has certainly ended."""
    return exists(name) is False


def exists(name: str | None) -> bool | None:
    """Return True if the named process exists, False if the process has certainly ended, None if neither is certain."""
    mine = this_process()
    if not name or mine is None:
        return None
    parts, own = name.split(" "), mine.split(" ")
    if len(parts) != 5 or parts[:3] != own[:3] or not parts[3].isdigit():
        # Another boot would mean that it has ended, but a copied or shared file may come from another machine.
        return None
    pid = int(parts[3])
    start = _start_of(pid)
    if start is not None:
        return start == parts[4]
    return False if _is_nobody(pid) else None


@lru_cache(maxsize=4)
def _name_of(pid: int, shown_in: str) -> str | None:
    start = _start_of(pid)
    try:
        if os.readlink(f"{shown_in}/self") != str(pid):
            return None  # what is mounted there belongs to another namespace and speaks of other processes
        with open(f"{shown_in}/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        spaces = os.readlink(f"{shown_in}/self/ns/pid"), _time_space()
    except OSError:
        return None
    return f"{boot} {' '.join(spaces)} {pid} {start}" if start else None


def _time_space() -> str:
    try:
        return os.readlink(f"{PROC}/self/ns/time")
    except FileNotFoundError:
        return "-"  # a kernel before 5.6 has only one


def _start_of(pid: int) -> str | None:
    """Return the process's start in clock ticks since boot; "" for a zombie, None for an unlisted id."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def _is_nobody(pid: int) -> bool:
    """Return whether no process has the id. A hidden process (hidepid, another user) counts as existing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
