"""A desk at which agents work with a provider's own tools, which ask before they act, beside tools of the program.

The provider is the loopback one with a rule that is as strict about approvals as the real service about outputs: every
answer belongs to a question, every question has one answer. What a hosted tool does is written into the same book as
what the program's tools do, under the id of its question. What a run asks for is a plan in its agent's instructions
(`ID plan`, turns of words), and is told apart from other runs by the ids of its calls: any process can go on with it.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from helpers.ledger_oracle import Item, done, lines, says_unknown, write
from helpers.offices import tools_of

from standfast import Agent, HostedMCPTool, OpenAIResponsesModel, ToolContext, function_tool, handoff
from standfast.testing.loopback import Asked, call, reasoning, text

HOSTED = ("wait", "auto", "never")
"""What a word of a plan asks of the provider's tools: a person decides, a callback agrees, a callback refuses."""

LOCAL = ("pay", "ask", "boom")


def question(run_id: str, turn: int, word: str, number: int) -> str:
    """The id of a question of the provider's."""
    return f"mcpr_{run_id}.{turn}.{word}.{number}"


def expanded(items: Iterable[Item]) -> list[Item]:
    """The items with what a compaction stands for in its place."""
    found: list[Item] = []
    for item in items:
        if item.get("type") == "compaction":
            found += expanded(json.loads(base64.b64decode(item["encrypted_content"])))
        else:
            found.append(item)
    return found


class Provider:
    """The model and the hosted tools behind the loopback server; `wrongs` is what a strict service would refuse."""

    def __init__(self, book: Path) -> None:
        self.book, self.wrongs = book, list[str]()

    def __call__(self, asked: Asked) -> Any:
        context = expanded(asked.context)
        self._check(context)
        run_id, _, plan = str(asked.body.get("instructions") or "").partition(" ")
        acted = self._act(context)
        turns = [turn.split() for turn in plan.split("|")] if plan else []
        made = sum(1 for number in range(len(turns)) if _has_turn(context, run_id, number))
        if made >= len(turns):
            return [*acted, text(f"{run_id} is done")]
        asks: list[Any] = [*acted]
        for number, word in enumerate(turns[made]):
            asks += _asked_for(run_id, made, word, number)
        return asks

    def _check(self, context: Sequence[Item]) -> None:
        asked, answered = set[str](), Counter[str]()
        for item in context:
            kind = item.get("type")
            if kind == "mcp_approval_request":
                if item["id"] in asked:
                    self.wrongs.append(f"{item['id']} is asked twice")
                asked.add(item["id"])
            elif kind == "mcp_approval_response":
                if item["approval_request_id"] not in asked:
                    self.wrongs.append(f"{item['approval_request_id']} is answered and was not asked before")
                answered[item["approval_request_id"]] += 1
        self.wrongs += [f"{one} has {count} answers" for one, count in answered.items() if count > 1]
        self.wrongs += [f"{one} has no answer" for one in sorted(asked - set(answered))]

    def _act(self, context: Sequence[Item]) -> list[Item]:
        """Do what was approved and has not been done, as far as this conversation knows."""
        known = {item.get("approval_request_id") for item in context if item.get("type") == "mcp_call"}
        acted = []
        for item in context:
            if (
                item.get("type") != "mcp_approval_response"
                or item["approval_request_id"] in known
                or not item["approve"]
            ):
                continue
            asked = item["approval_request_id"]
            write(self.book, asked)
            acted.append(
                {
                    "type": "mcp_call",
                    "id": f"mcp_{asked}",
                    "server_label": "bank",
                    "name": "transfer",
                    "arguments": "{}",
                    "output": done(asked),
                    "approval_request_id": asked,
                }
            )
        return acted


def _has_turn(context: Sequence[Item], run_id: str, turn: int) -> bool:
    start = f"{run_id}.{turn}."
    return any(str(item.get("call_id") or item.get("id")).removeprefix("mcpr_").startswith(start) for item in context)


def _asked_for(run_id: str, turn: int, word: str, number: int) -> list[Item]:
    name = f"{run_id}.{turn}.{word}.{number}"
    if word == "think":
        return [reasoning("so")]
    if word == "say":
        return [text(f"{name}")]
    if word == "hand":
        return [call("transfer_to_second", {}, call_id=name)]
    if word in HOSTED:
        return [
            {
                "type": "mcp_approval_request",
                "id": f"mcpr_{name}",
                "server_label": word,
                "name": "transfer",
                "arguments": "{}",
            }
        ]
    return [call(word, {}, call_id=name)]


def desk(client: Any, book: Path, run_id: str, plan: str, seen: list[str] | None = None) -> Agent[Any]:
    """The agent of a run: the program's tools, the provider's, and a second agent with the same."""

    pay, _, ask, _ = tools_of(book)

    @function_tool
    async def boom(ctx: ToolContext[Any]) -> str:
        """Pay, and fail."""
        write(book, ctx.tool_call_id)
        raise ValueError("boom")

    @function_tool
    async def die(ctx: ToolContext[Any]) -> str:
        """Pay, and never return."""
        write(book, ctx.tool_call_id)
        os.kill(os.getpid(), signal.SIGKILL)
        return done(ctx.tool_call_id)

    def agrees(request: Any) -> Any:
        if seen is not None:
            seen.append(request.data.id)
        return {"approve": True}

    async def refuses(request: Any) -> Any:
        return {"approve": False, "reason": "never"}

    def hosted(label: str, answer: Any) -> HostedMCPTool:
        config: Any = {
            "type": "mcp",
            "server_label": label,
            "server_url": "https://x.example",
            "require_approval": "always",
        }
        return HostedMCPTool(tool_config=config, on_approval_request=answer)

    tools = [pay, ask, boom, die, hosted("wait", None), hosted("auto", agrees), hosted("never", refuses)]
    given: dict[str, Any] = {"instructions": f"{run_id} {plan}", "model": OpenAIResponsesModel("m", client)}
    second: Agent[Any] = Agent(name="second", tools=tools, **given)
    return Agent(name="first", tools=tools, handoffs=[handoff(second)], **given)


def some_plan(chance: random.Random) -> str:
    """One to three turns of one to three words."""
    turns = []
    for _ in range(chance.randint(1, 3)):
        words = chance.choices(
            ["wait", "auto", "never", "pay", "ask", "boom"], [5, 2, 1, 3, 2, 1], k=chance.randint(1, 3)
        )
        if chance.random() < 0.3:
            words.insert(0, "think")
        elif chance.random() < 0.2:
            words.insert(0, "say")
        if chance.random() < 0.15 and not any("hand" in turn for turn in turns):
            words.append("hand")
        turns.append(" ".join(words))
    return "|".join(turns)


def wrongs_of(book: Path, seen: Sequence[Item], approved: set[str], lost: int) -> list[str]:
    """What is wrong in the conversation that the next model sees; `lost`: how many replies may not have come."""
    found, happened = [], Counter(lines(book))
    calls = Counter(item["call_id"] for item in seen if item.get("type") == "function_call")
    outputs = Counter(item["call_id"] for item in seen if item.get("type") == "function_call_output")
    said = {item["call_id"]: item["output"] for item in seen if item.get("type") == "function_call_output"}
    acted = Counter(item["approval_request_id"] for item in seen if item.get("type") == "mcp_call")
    for one, times in happened.items():
        if one.startswith("mcpr_"):
            if times > 1 + lost:
                found.append(f"{one} was done {times} times")
            if acted[one] != 1 and not lost:
                found.append(f"{one} was done and is told {acted[one]} times")
            if ".auto." not in one and one not in approved:
                found.append(f"{one} was done and nobody approved it")
            continue
        if times > 1:
            found.append(f"{one} was done {times} times")
        if calls[one] != 1 or outputs[one] != 1:
            found.append(f"{one} was done and is there {calls[one]} times, with {outputs[one]} outputs")
        elif said[one] != done(one) and not says_unknown(said[one]) and ".boom." not in one:
            found.append(f"{one} was done and is told as {said[one]!r}")
        if ".ask." in one and one not in approved:
            found.append(f"{one} was done and nobody approved it")
    for one, text_said in said.items():
        if text_said == done(one) and not happened[one]:
            found.append(f"{one} was never done and is told as done")
    return found
