"""Deliberately wrong runtimes, each one small change of a source file, to prove that killing has teeth."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """One fault: in module `standfast.<module>`, `old` (which must be there exactly once) becomes `new`."""

    fault: str
    module: str
    old: str
    new: str

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """The whole package with this fault, in place; undone at the end."""
        module = importlib.import_module(f"standfast.{self.module}")
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert source.count(self.old) == 1, f"{self.fault}: its text occurs {source.count(self.old)} times; look again"
        before = dict(vars(module))
        exec(compile(source.replace(self.old, self.new), f"<{self.fault}>", "exec"), vars(module))
        changed = {name: value for name, value in before.items() if callable(value) and vars(module)[name] is not value}
        elsewhere = list(_holders(module, changed))
        for owner, name, _ in elsewhere:
            setattr(owner, name, vars(module)[name])
        derived = [(one, old, vars(module)[name]) for name, old in changed.items() for one in _derived_from(old)]
        for one, old, new in derived:
            one.__bases__ = tuple(new if base is old else base for base in one.__bases__)
        try:
            yield
        finally:
            for one, old, new in derived:
                one.__bases__ = tuple(old if base is new else base for base in one.__bases__)
            for owner, name, value in elsewhere:
                setattr(owner, name, value)
            vars(module).clear()
            vars(module).update(before)


def _holders(module: Any, changed: dict[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    """Everybody who imported what is changed by name."""
    for owner_name, owner in list(sys.modules.items()):
        if owner is not module and owner_name.startswith("standfast."):
            yield from ((owner, name, value) for name, value in changed.items() if vars(owner).get(name) is value)


def _derived_from(changed: Any) -> list[type]:
    """The classes of other modules that derive from a changed one: they are not made anew with it."""
    return (
        [one for one in changed.__subclasses__() if one.__module__ != changed.__module__]
        if isinstance(changed, type)
        else []
    )


MUTANTS = [
    # --- advance and due: the five that issue 3 names first
    Mutant(
        "the input is stored before its turn is complete",
        "engine.advance",
        "    turn = Turn(\n        event.turn,",
        "    marks = evolve(marks, ready=len(run.ledger))\n    turn = Turn(\n        event.turn,",
    ),
    Mutant("Begun is forgotten", "engine.advance", '("asked",), state="begun")', '("asked",), state="asked")'),
    Mutant(
        "outputs join in reverse",
        "engine.advance",
        "    for call in turn.calls:\n        for entry in call.outputs:",
        "    for call in reversed(turn.calls):\n        for entry in call.outputs:",
    ),
    Mutant(
        "the stored mark moves back", "engine.advance", "stored=max(run.marks.stored, end)", "stored=max(0, end - 1)"
    ),
    Mutant(
        "a call starts before the verdict",
        "engine.due",
        '        return (*append, Judge("input", number))\n',
        '        return (*append, Judge("input", number), *_within(turn))\n',
    ),
    Mutant(
        "a claim doubts no call",
        "engine.advance",
        'return evolve(call, state="doubt", reason="unknown")',
        'return evolve(call, state="asked")',
    ),
    Mutant(
        "a call in doubt is repeated", "engine.due", 'if call.state == "doubt" else', 'if call.state == "never" else'
    ),
    Mutant(
        "a finished run forgets its append",
        "engine.due",
        "if progress.ended or run.tripped:\n        return append",
        "if progress.ended or run.tripped:\n        return ()",
    ),
    # --- the driver
    Mutant(
        "what must be saved is not waited for",
        "driver.saving_loop",
        "        if saves:\n            await self.save()\n",
        "",
    ),
    Mutant("Begun is not saved", "driver.saving_loop", "ALWAYS_SAVED = (Begun, ", "ALWAYS_SAVED = ("),
    Mutant("Returned is not saved", "driver.saving_loop", "(Begun, Returned, ", "(Begun, "),
    Mutant(
        "a turn is stored without its run",
        "driver.saving_loop",
        "        if self.saver is not None and self.saver.needed:\n            await self.saver.store_items(",
        "        if False:\n            await self.saver.store_items(",
    ),
    Mutant(
        "an append starts at nothing",
        "driver.storing",
        "NewItems(run.spec.run_id, start, items_to_store",
        "NewItems(run.spec.run_id, 0, items_to_store",
    ),
    Mutant(
        "an append leaves its last item for the next",
        "driver.saving_loop",
        "await self.record(Appended(after.marks.stored,",
        "await self.record(Appended(after.marks.stored - 1,",
    ),
    Mutant(
        "an append is thought to hold more",
        "driver.storing",
        "run.ledger[start:end]]",
        "run.ledger[start : end - 1]]",
    ),
    Mutant(
        "a call begins without a word",
        "tools.desk",
        "            await owner.begin(call)\n",
        "            pass\n",
    ),
    Mutant(
        "a call in doubt is always run again",
        "tools.desk",
        'if call.kind == "agent":',
        "if True:",
    ),
    Mutant(
        "a nested run is not saved",
        "driver.nested",
        "if self.is_saved and (not child.finished or child.marks.stored < child.storable):",
        "if False:",
    ),
    Mutant(
        "only the first save is made",
        "driver.run_saver",
        "if state is not None and state is not self._done:",
        "if state is not None and self._done is None:",
    ),
    Mutant(
        "a saved run is not looked for",
        "driver.opening",
        "if saved is not None and not has_ended(saved):",
        "if False:",
    ),
    Mutant(
        "a resumed run is not claimed",
        "engine.advance",
        "def _claimed(run: Run, event: Claimed) -> Run:\n",
        "def _claimed(run: Run, event: Claimed) -> Run:\n"
        "    return evolve(run, progress=evolve(run.progress, stop=None))\n",
    ),
]
