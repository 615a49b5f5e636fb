"""Log lines of this package: ids that models and users choose forge no line."""

from __future__ import annotations

import logging

import pytest

from standfast import Agent, InMemorySession, RunConfig, Runner
from standfast.testing import ScriptedModel, assistant_message

ODD = "m1\nWARNING forged\u2028\u202eline\x1b[2J"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "standfast")
    return caplog


async def test_an_id_with_a_line_end_stays_in_its_line(lines: pytest.LogCaptureFixture):
    session = InMemorySession("a")
    await session.send("hi", agent="Clerk", message_id=ODD)
    shown = [one.getMessage() for one in lines.records if "was sent" in one.getMessage()]
    assert shown == [r"message m1\nWARNING forged\u2028\u202eline\x1b[2J was sent to session 'a'"]


async def test_the_ids_of_calls_that_were_left_out_stay_in_their_line(lines: pytest.LogCaptureFixture):
    session = InMemorySession("a")
    await session.add_items([{"type": "function_call", "name": "pay", "call_id": ODD, "arguments": "{}"}])
    model = ScriptedModel([[assistant_message("Hello.")]])
    await Runner.run(Agent(name="Clerk", model=model), "hi", session=session, run_config=RunConfig(run_id="r1"))
    shown = [one.getMessage() for one in lines.records if "left out" in one.getMessage()]
    assert len(shown) == 1
    assert shown[0].endswith(r"Their calls: m1\nWARNING forged\u2028\u202eline\x1b[2J")


async def test_an_id_that_can_be_printed_is_as_it_is(lines: pytest.LogCaptureFixture):
    await InMemorySession("a").send("hi", agent="Clerk", message_id="Größe 7 😀")
    assert any("message Größe 7 😀 was sent" in one.getMessage() for one in lines.records)
