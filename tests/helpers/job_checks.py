"""Whether the jobs of `helpers.jobs` were done as they should be: every effect once, or said to be unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from helpers.jobs import CALLS, is_in_a_session, job_agent, run_id_of
from helpers.ledger_oracle import done, says_unknown

from standfast import Runner


async def checked(open_session: Callable[[str], Any], book: list[str], count: int) -> tuple[Counter[str], list[str]]:
    """How often an effect is in the book and told, and what is not as it should be."""
    happened, told, wrong = Counter(book), Counter[str](), []
    agent = job_agent("", lambda: None)
    for job in range(count):
        session = open_session(f"s{job}")
        if is_in_a_session(job):
            items = await session.get_items()
        else:
            result = await Runner.result(agent, run_id_of(job), run_store=session.run_store())
            items = result.to_input_list()
        await session.close()
        wrong += [f"job {job}: {what}" for what in _wrongs(job, items, happened, told)]
    strangers = set(happened) - {f"{job}.{name}" for job in range(count) for name in (*CALLS, "inner")}
    return told, wrong + [f"{one} was never asked for" for one in strangers]


def _wrongs(job: int, items: list[Any], happened: Counter[str], told: Counter[str]) -> list[str]:
    def known(item: Any) -> str:
        return f"{item.get('type', item.get('role'))} {item.get('call_id', '')}".strip()

    calls = [("look", "count"), ("pay",), ("help",)]
    asked = [
        f"{what} {job}.{name}" for turn in calls for what in ("function_call", "function_call_output") for name in turn
    ]
    wrong = []
    if [known(item) for item in items] != ["user", *asked, "message"]:
        wrong.append(f"the history is {[known(item) for item in items]}")
    said = {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}
    for name in ("look", "count", "pay"):
        call_id, output = f"{job}.{name}", said.get(f"{job}.{name}")
        if happened[call_id] == 1 and output == done(call_id):
            told["once"] += 1
        elif happened[call_id] <= 1 and says_unknown(output):
            told["unknown"] += 1
        else:
            wrong.append(f"{name} was done {happened[call_id]} times and is told as {output!r}")
    if said.get(f"{job}.help") != f"helped {job}" or happened[f"{job}.inner"] > 1:
        wrong.append(f"its helper did {happened[f'{job}.inner']} and said {said.get(f'{job}.help')!r}")
    told["once" if happened[f"{job}.inner"] == 1 else "unknown"] += 1
    return wrong
