"""Write the golden corpus: saved runs of the current version at interesting points, and what they want.

    PYTHONPATH=tests python -m tests.golden.write

A file that is there is never written again: it is what a release wrote, and every later one must read it (D9). When
the layout changes, raise the version, add the upgrade step, and run this to add the new version's states to the old.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.engine.schedule import Action, Play
from runs.engine.schedule_world import Script, ScriptCall, ScriptTurn

from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import encode_run
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import Claimed
from standfast._src.runs.engine.run import Run
from standfast._src.runs.engine.upgrades import VERSION

FOLDER = Path(__file__).parent

TOOL, ASKED = ScriptCall(), ScriptCall(approval="approve")
HOSTED = ScriptCall("hosted", "remote", "reject")
HANDOFF = ScriptCall("handoff", "transfer", based=True)
CHILD = Script("session", turns=(ScriptTurn((ASKED, ScriptCall(approval="sticky"))),), history=("before",))
SCRIPTS = {
    "session": Script(
        "session",
        input=("yes", "yes"),
        history=("before",),
        guards="both",
        turns=(ScriptTurn((TOOL, ASKED, HOSTED), reasoning=True), ScriptTurn((HANDOFF,))),
        staged=("and yes",),
    ),
    "conversation": Script("conversation", turns=(ScriptTurn((TOOL, TOOL), left_out=(0,)), ScriptTurn((TOOL,)))),
    "chain": Script("chain", turns=(ScriptTurn((TOOL,), named=False), ScriptTurn((TOOL,), left_out=(0, 1)))),
    "nested": Script("replay", turns=(ScriptTurn((TOOL, ScriptCall("agent", "helper", child=CHILD))),)),
    "withheld": Script("session", turns=(ScriptTurn((TOOL, TOOL), final=True),), output_trips=True),
    "tripped": Script("session", guards="parallel", trips="parallel", turns=(ScriptTurn((TOOL,)),)),
    "used-up": Script("session", turns=(ScriptTurn((TOOL,)),) * 3, max_turns=1),
}


class Remembering(Play):
    """A telling that keeps every state it went through."""

    def __init__(self, script: Script) -> None:
        self.seen: list[Run] = []
        super().__init__(script)

    def feed(self, path: Any, event: Any) -> None:
        super().feed(path, event)
        self.seen.append(self.run)


def states() -> Iterator[tuple[str, Run]]:
    """Each script's states, told calmly and struck by crashes, wherever one differs in what it wants."""
    for name, script in SCRIPTS.items():
        wanted: set[tuple[str, ...]] = set()
        for how, schedule in (("calm", []), *(("struck", blows(offset)) for offset in range(7))):
            play = Remembering(script)
            play.play(schedule)
            for run in play.seen:
                keys = tuple(looks(run))
                if keys not in wanted:
                    wanted.add(keys)
                    yield f"{name}-{how}-{len(wanted):02}", run


def blows(offset: int) -> list[Action]:
    """A crash every seventh step, if it hurts there."""
    return [*[("calm", 0)] * offset, *[("strike", 0), *[("calm", 0)] * 6] * 20]


def looks(run: Run) -> Iterator[str]:
    """What tells an interesting state from the ones before it, in nested runs too."""
    yield from (run.status, *wants(run))
    if run.progress.outgoing is not None:
        yield "begun"
    for call in run.turn.calls if run.turn is not None else ():
        yield call.state
        if call.child is not None:
            yield from looks(call.child)


def wants(run: Run) -> list[str]:
    return [effect.key for effect in due(run)]


def record(run: Run) -> dict[str, Any]:
    """What a file holds: the run, and what it wants, now and when somebody has claimed it."""
    claimed = None if run.is_closed else wants(advance(run, Claimed("golden")))
    return {"run": encode_run(run), "status": run.status, "wants": wants(run), "wants_when_claimed": claimed}


def main() -> None:
    folder = FOLDER / f"v{VERSION}"
    folder.mkdir(exist_ok=True)
    for name, run in states():
        file = folder / f"{name}.json"
        if not file.exists():
            file.write_text(json.dumps(record(run)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
