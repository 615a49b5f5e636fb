"""`run_demo_loop`: talking to an agent in a terminal, with what it asks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from standfast import Agent, function_tool, run_demo_loop
from standfast.testing import ScriptedModel, final, function_call

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


class Person:
    """Types these lines, one for each question, and then closes the input."""

    def __init__(self, *lines: str) -> None:
        self.lines: Iterator[str] = iter(lines)
        self.asked: list[str] = []

    def __call__(self, question: str = "") -> str:
        self.asked.append(question)
        try:
            return next(self.lines)
        except StopIteration:
            raise EOFError from None


class Till:
    """An agent whose only tool pays, if a person allows it."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def agent(self, *script: object) -> Agent[None]:
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        return Agent(name="Till", model=ScriptedModel(list(script)), tools=[function_tool(pay, needs_approval=True)])


ASKS = [function_call("pay", {"amount": 120}, call_id="call-1")]


@STREAMED
async def test_the_conversation_goes_on_from_one_line_to_the_next(
    stream: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("builtins.input", Person("hello", "", "and now?", "exit"))
    model = ScriptedModel([final("Good day."), final("Still here.")])
    await run_demo_loop(Agent(name="host", model=model), stream=stream)
    assert [line for line in capsys.readouterr().out.splitlines() if line] == ["Good day.", "Still here."]
    assert [item["role"] for item in model.calls[1].input] == ["user", "assistant", "user"]


async def test_the_end_of_the_input_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", Person())
    await run_demo_loop(Agent(name="host", model=ScriptedModel([])))


@STREAMED
@pytest.mark.parametrize(("answer", "paid"), [("y", [120]), ("Yes", [120]), ("n", []), ("perhaps", [])])
async def test_a_call_that_needs_approval_is_asked_about_and_runs_after_a_yes_only(
    stream: bool, answer: str, paid: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    till, person = Till(), Person("Pay the invoice.", answer, "exit")
    monkeypatch.setattr("builtins.input", person)
    await run_demo_loop(till.agent(ASKS, final("As you wish.")), stream=stream)
    assert till.paid == paid
    assert [question for question in person.asked if "pay" in question and "120" in question]
    assert "As you wish." in capsys.readouterr().out


async def test_nothing_runs_when_the_input_ends_at_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    till = Till()
    monkeypatch.setattr("builtins.input", Person("Pay the invoice."))
    await run_demo_loop(till.agent(ASKS, final("Then not.")))
    assert till.paid == []


async def test_an_agent_is_announced_when_another_one_goes_on_and_only_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = Agent[None](name="Second", model=ScriptedModel([final("Here."), final("Still me.")]))
    first = Agent[None](
        name="First", handoffs=[second], model=ScriptedModel([[function_call("transfer_to_second", {}, call_id="h")]])
    )
    monkeypatch.setattr("builtins.input", Person("hello", "and?", "quit"))
    await run_demo_loop(first)
    assert capsys.readouterr().out.count("goes on") == 1


async def test_the_question_shows_the_text_written_out_and_the_values_the_tool_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    till, person = Till(), Person("Pay the invoice.", "y", "exit")
    monkeypatch.setattr("builtins.input", person)
    wrote = '{"amount": "120", "note": "\x9b2J\u202e"}'
    await run_demo_loop(till.agent([function_call("pay", wrote, call_id="call-1")], final("Paid.")), stream=False)
    [question] = [one for one in person.asked if "pay" in one]
    assert '{"amount": "120", "note": "\\x9b2J\\u202e"}; the tool will get {"amount": 120}' in question
    assert till.paid == [120]
