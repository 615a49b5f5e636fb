"""Answers in both of Redis' protocols are read as they were meant, however they are cut on the way."""

from __future__ import annotations

import io
import socket
from typing import Any

import pytest
import redis.exceptions as failed
from hypothesis import given, strategies as st

from standfast._src.sessions.backends.redis.resp import AnswerReader, pack_command, wait_in_kernel


class Cut:
    """What comes over a connection, in pieces of at most so many bytes."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data, self._piece = io.BytesIO(data), piece

    def recv(self, size: int) -> bytes:
        return self._data.read(min(size, self._piece))


def sent(value: Any, protocol: int) -> bytes:
    """An answer as a server sends it."""
    match value:
        case None:
            return b"_\r\n" if protocol == 3 else b"$-1\r\n"
        case bool():
            return b"#t\r\n" if value else b"#f\r\n"
        case int():
            return b":%d\r\n" % value if abs(value) < 2**63 else b"(%d\r\n" % value
        case float():
            return b",%s\r\n" % repr(value).encode()
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case dict():
            return b"%%%d\r\n" % len(value) + b"".join(
                sent(key, protocol) + sent(one, protocol) for key, one in value.items()
            )
        case _:
            return b"*%d\r\n" % len(value) + b"".join(sent(one, protocol) for one in value)


TEXT = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"$5\r\n", b"x" * 3000])
OLD: Any = st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=6), max_leaves=12)
NEW: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from([2, 3]).flatmap(lambda p: st.tuples(st.just(p), st.lists(OLD if p == 2 else NEW, max_size=5))),
       st.integers(1, 5000))  # fmt: skip
def test_answers_are_read_as_they_were_meant(asked: tuple[int, list[Any]], piece: int) -> None:
    protocol, values = asked
    pushed = b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n" if protocol == 3 else b""  # what nobody asked for is passed over
    came = b"".join(pushed + sent(value, protocol) for value in values)
    answers = AnswerReader(Cut(came, piece))
    assert [answers.next() for _ in values] == values
    with pytest.raises(failed.ConnectionError):
        answers.next()
    together = AnswerReader(Cut(came, piece))
    assert together.several(len(values)) == values
    with pytest.raises(failed.ConnectionError):
        together.several(1)


@given(st.integers(1, 200))
def test_an_error_is_an_answer_of_its_own_kind_unless_nobody_is_there(piece: int) -> None:
    answers = AnswerReader(
        Cut(
            b"-NOSCRIPT no\r\n!11\r\nOOM too big\r\n-WRONGTYPE of another kind\r\n=7\r\ntxt:abc\r\n-LOADING wait\r\n",
            piece,
        )
    )
    assert isinstance(answers.next(), failed.NoScriptError)
    assert isinstance(answers.next(), failed.OutOfMemoryError)
    assert "WRONGTYPE" in str(answers.next())
    assert answers.next() == b"abc"
    with pytest.raises(failed.BusyLoadingError):
        answers.next()


@pytest.mark.parametrize("data", [b"HTTP/1.1 400\r\n", b"$many\r\n", b"\r\n"])
def test_what_is_no_answer_is_said(data: bytes) -> None:
    with pytest.raises((failed.InvalidResponse, ValueError)):
        AnswerReader(Cut(data, 4000)).next()


PARTS = st.lists(st.binary(max_size=2000), max_size=8)


@given(PARTS, PARTS)
def test_a_command_is_packed_as_redis_py_packs_it(keys: list[bytes], arguments: list[bytes]) -> None:
    from redis.connection import Connection

    made: Any = Connection()
    for command in (("EVALSHA", "abc", len(keys), *keys, *arguments), ("EVAL", "text", 1, *keys, -7, "é")):
        assert pack_command(command) == pack_command(command) == b"".join(made.pack_command(*command))


def test_a_socket_without_an_answer_is_given_up_in_time() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(0.05)
        wait_in_kernel(here, 0.05)
        assert here.gettimeout() is None
        with pytest.raises(BlockingIOError):
            AnswerReader(here).next()
        there.sendall(b"+late\r\n")
        assert AnswerReader(here).next() == b"late"


def test_what_nobody_reads_is_given_up_in_time() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(0.05)
        wait_in_kernel(here, 0.05)
        with pytest.raises(BlockingIOError):
            here.sendall(bytes(10_000_000))
