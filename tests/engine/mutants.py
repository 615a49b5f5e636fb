"""Deliberately wrong engines, each one small change of the source, to prove that the properties have teeth."""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path

from engine.schedule import Engine

import standfast.engine.advance
import standfast.engine.due


@dataclass(frozen=True)
class Mutant:
    """One fault: in `module`, `old` (which must be there exactly once) becomes `new`."""

    fault: str
    module: str
    old: str
    new: str

    def engine(self) -> Engine:
        """The engine with this fault."""
        original = getattr(standfast.engine, self.module)
        source = Path(original.__file__).read_text(encoding="utf-8")
        assert source.count(self.old) == 1, f"{self.fault}: its text occurs {source.count(self.old)} times; look again"
        changed = types.ModuleType(original.__name__)
        changed.__package__ = "standfast.engine"
        exec(compile(source.replace(self.old, self.new), f"<{self.fault}>", "exec"), changed.__dict__)
        return Engine(**{self.module: getattr(changed, self.module)})


MUTANTS = [
    # --- the five that issue 3 names
    Mutant(
        "the input is stored before its turn is complete",
        "advance",
        "    turn = Turn(\n        event.turn,",
        "    marks = evolve(marks, ready=len(run.ledger))\n    turn = Turn(\n        event.turn,",
    ),
    Mutant(
        "whatever is in the ledger is stored at once", "due", "storable = run.storable", "storable = len(run.ledger)"
    ),
    Mutant("Begun is forgotten", "advance", '("asked",), state="begun")', '("asked",), state="asked")'),
    Mutant("a begun request is forgotten", "advance", "outgoing=outgoing, after", "outgoing=None, after"),
    Mutant(
        "outputs join in reverse",
        "advance",
        "    for call in turn.calls:\n        for entry in call.outputs:",
        "    for call in reversed(turn.calls):\n        for entry in call.outputs:",
    ),
    Mutant(
        "the stored mark moves back",
        "advance",
        "stored=max(run.marks.stored, end)",
        "stored=max(0, end - 1)",
    ),
    Mutant(
        "a claim moves the stored mark back",
        "advance",
        "stored=max(run.marks.stored, min(event.stored, len(run.ledger)))",
        "stored=0",
    ),
    Mutant(
        "a call starts before the verdict",
        "due",
        '        return (*append, Judge("input", number))\n',
        '        return (*append, Judge("input", number), *_within(turn))\n',
    ),
    # --- and others
    Mutant("a call starts while an earlier turn is unstored", "due", "    if append:\n        return append\n", ""),
    Mutant(
        "the model is asked before the guardrails that come first",
        "due",
        '        return (Judge("input", number, blocking=True),)\n',
        '        return (Judge("input", number, blocking=True), CallModel(number))\n',
    ),
    Mutant(
        "a call in doubt is repeated", "due", 'if call.state == "doubt" else', 'if call.state == "no such state" else'
    ),
    Mutant("a request in doubt is repeated", "due", "    if progress.doubt:\n", "    if False:\n"),
    Mutant("a claim doubts no call", "advance", 'evolve(call, state="doubt"', 'evolve(call, state="asked"'),
    Mutant(
        "a claim forgets that a call may have run",
        "advance",
        'state="doubt", reason="unknown")',
        'state="doubt")',
    ),
    Mutant("a claim doubts no request", "advance", "doubt=run.progress.outgoing is not None", "doubt=False"),
    Mutant(
        "a claim leaves the view where it was",
        "advance",
        "views = views.appended((View(None, marks.stored),))",
        "pass",
    ),
    Mutant("a claim does not ask what the session holds", "advance", "min(event.stored, len(run.ledger))", "0"),
    Mutant(
        "a handoff does not wait for the tools",
        "due",
        'only_handoffs or call.kind != "handoff"',
        "True",
    ),
    Mutant("a handoff's view begins at its turn", "advance", "View(call.base, len(ledger))", "View(call.base, start)"),
    Mutant("a handoff leaves the agent as it was", "advance", "evolve(progress, agent=call.target)", "progress"),
    Mutant(
        "the server is thought to have the outputs",
        "advance",
        "acknowledged=start + len(turn.reply)",
        "acknowledged=len(ledger)",
    ),
    Mutant("what a filter left out is forgotten", "advance", ", owed=turn.owed)", ", owed=())"),
    Mutant(
        "a reply without an id moves the mark of a chain",
        "advance",
        '(owner.kind == "chain" and response_id is not None)',
        '(owner.kind == "chain")',
    ),
    Mutant(
        "a reply without an id breaks the chain",
        "advance",
        'if response_id is not None and owner.kind == "chain":',
        'if owner.kind == "chain":',
    ),
    Mutant(
        "a tripped reply stays open",
        "advance",
        "return evolve(run, turn=None, progress=",
        "return evolve(run, progress=",
    ),
    Mutant(
        "a rejected message is kept",
        "advance",
        "    if not event.tripped:\n        return _join",
        "    if True:\n        return _join",
    ),
    Mutant(
        "a withheld output is kept",
        "advance",
        "_saying(call, text) if call.id in of_output else",
        "_saying(call, text) if False else",
    ),
    Mutant(
        "a finished run forgets its append",
        "due",
        "if progress.ended or run.tripped:\n        return append",
        "if progress.ended or run.tripped:\n        return ()",
    ),
    Mutant("staged input is dropped", "advance", "run = evolve(run, ledger=run.ledger.appended(entries))\n", "pass\n"),
    Mutant(
        "staged input waits behind the request",
        "due",
        "    if progress.staged:\n",
        "    if progress.staged and number > 99:\n",
    ),
    Mutant("a turn too many", "due", "number > run.spec.max_turns", "number > run.spec.max_turns + 1"),
    Mutant(
        "a stop drops a turn whose tool ran",
        "advance",
        "if turn.ran or run.spec.owner.is_server:",
        "if run.spec.owner.is_server:",
    ),
    Mutant(
        "a stop drops a reply the server has", "advance", "if turn.ran or run.spec.owner.is_server:", "if turn.ran:"
    ),
    Mutant(
        "a kept reply goes on though the run was stopped",
        "advance",
        "stop=Stop(event.mode, turn.number - 1)",
        "stop=Stop(event.mode, turn.number)",
    ),
    Mutant(
        "a turn whose tools ran is kept from its session",
        "advance",
        'event.mode == "abandoned" or turn.ran or',
        'event.mode == "abandoned" or',
    ),
    Mutant(
        "a stop throws away what had returned",
        "advance",
        'call if call.state == "returned" else with_not_completed(',
        'call if call.state == "never" else with_not_completed(',
    ),
    Mutant(
        "a stop leaves open calls without output",
        "advance",
        'outputs=remembering((Entry(kind, "", item),), run, call)',
        "outputs=()",
    ),
    Mutant("an end after the turn ends within it", "advance", "max(event.upto, turn.number)", "turn.number - 1"),
    Mutant(
        "a paused nested run does not pause its parent", "advance", '"waiting" if child.paused else "begun"', '"begun"'
    ),
    Mutant(
        "a nested run hears one decision only",
        "advance",
        '("waiting", "asked", "begun"), child=child',
        '("waiting", "begun"), child=child',
    ),
    Mutant(
        "blocking guardrails are thought to be all",
        "advance",
        '"parallel" if verdict == "blocking" and event.more else "passed"',
        '"passed"',
    ),
]
