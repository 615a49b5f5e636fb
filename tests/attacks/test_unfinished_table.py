"""The table of docs/how-to/unfinished-runs.md is what happens: each row is played, on every owner and policy (C15)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from helpers.waiting_conversation import JOB, PAID, WAITING, ServerTalk, SessionTalk

from standfast import StandfastError
from standfast.testing.loopback import LoopbackServer

PAGE = Path(__file__).parents[2] / "docs/how-to/unfinished-runs.md"
HEADER = "| owner | policy | each of three messages | then | the history then | `pay` ran |"
MESSAGES = ("m1", "m2", "m3")

# What a history is made of, in the words of the page; the longer ones first.
PARTS: Sequence[tuple[list[str], str]] = (
    ([line for words in MESSAGES for line in (f"U({words})", f"A(re {words})")], "the messages"),
    (PAID, "the turn with the real output"),
    (WAITING, "the turn with the rejection"),
    (["C(c0)", "C(c1)", "O(c0: done)", "O(c1: done)"], "the turn with the real output"),
    (["C(c0)", "C(c1)", "O(c0: done)", "O(c1: not run)"], "the turn with the rejection"),
    (["C(c0)", "C(c1)"], "its calls, unanswered"),
    (["U(pay 5)"], "the input"),
    (["A(that was it)"], "the answer"),
)


def rows() -> list[list[str]]:
    """The rows of the page's table."""
    text = PAGE.read_text("utf-8")
    assert HEADER in text, "the table of the page has another header"
    body = text[text.index(HEADER) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in body]


def in_words(history: list[str]) -> str:
    said, place = [], 0
    while place < len(history):
        found = next((one for one in PARTS if history[place : place + len(one[0])] == one[0]), None)
        assert found is not None, history[place:]
        said.append(found[1])
        place += len(found[0])
    return ", ".join(said) or "empty"


@asynccontextmanager
async def talking(owner: str, folder: Path) -> AsyncIterator[SessionTalk]:
    if owner == "a session":
        talk = SessionTalk(folder, "sqlite")
        yield talk
        await talk.close()
        return
    with LoopbackServer(ServerTalk.rule) as server:
        async with server.client(max_retries=0) as client:
            yield ServerTalk(folder, server, client)


async def three_messages(talk: SessionTalk, policy: str) -> str:
    told = set()
    for words in MESSAGES:
        before = len(talk.requests)
        try:
            await talk.say(words, unfinished=policy)
        except StandfastError as error:
            assert len(talk.requests) == before, "it was refused after something was sent"
            told.add("refused, naming the run" if JOB in str(error) else f"refused: {error}")
        except Exception:
            told.add("sent, and the server refuses it")
        else:
            shown = any("(c1" in line for line in talk.requests[-1])
            told.add("answered; its request shows what waits" if shown else "answered; nothing is shown")
    (one,) = told
    return str(one)


async def decided(talk: SessionTalk, how: str) -> str:
    """Do it; what it gave, where that is not simply done."""
    try:
        match how:
            case "approved" | "rejected":
                await talk.decide(approve=how == "approved")
            case "`cancel_run`":
                owed = await talk.cancel()
                return " (`cancel_run` gives what the server is owed)" if owed else ""
            case "`delete_run`":
                await talk.delete()
            case "`clear_session`":
                await talk.session.clear_session()
            case _:
                raise AssertionError(how)
    except StandfastError as refused:
        return " (refused: it has not ended)" if JOB in str(refused) else f" ({refused})"
    return ""


@pytest.mark.parametrize("row", rows(), ids=lambda row: ", ".join(row[:2] + row[3:4]))
async def test_a_row_of_the_table_is_what_happens(row: list[str], tmp_path: Path) -> None:
    owner, policy, messages, then, history, ran = row
    async with talking(owner, tmp_path) as talk:
        await talk.pause()
        assert await three_messages(talk, policy.strip("`")) == messages
        more = await decided(talk, then)
        assert in_words(await talk.history()) + more == history
        assert str(talk.effects.count("c1")) == ran


def test_the_table_has_every_owner_policy_and_decision() -> None:
    both = ("approved", "rejected", "`cancel_run`", "`delete_run`")
    owners = {"a session": (*both, "`clear_session`"), "`conversation_id`": both}
    policies = ("`settle`", "`refuse`", "`ignore`")
    wanted = [(owner, policy, how) for owner, ways in owners.items() for policy in policies for how in ways]
    assert [(row[0], row[1], row[3]) for row in rows()] == wanted
