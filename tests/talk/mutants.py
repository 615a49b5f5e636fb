"""Deliberately wrong calls, each one small change of the source, to prove that the schedules have teeth."""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import standfast.talk.advance
import standfast.talk.calling
import standfast.talk.due
import standfast.talk.exchange
import standfast.talk.joining
import standfast.talk.link
import standfast.talk.surviving


@dataclass(frozen=True)
class Mutant:
    """One fault: in `module`, `old` (which must be there exactly once) becomes `new`. `seed`: a life that notices."""

    fault: str
    module: str
    old: str
    new: str
    seed: int = 0

    def parts(self) -> dict[str, Any]:
        """`Exchange` and `Link` with this fault."""
        changed = _module(self.module, self.old, self.new, self.fault)
        if self.module == "link":
            return {"Link": changed.Link}
        if self.module == "exchange":
            return {"Exchange": changed.Exchange}
        if self.module in ("calling", "joining", "surviving"):
            changed = _using(changed, "advance", self.fault)
        return {"Exchange": _using(changed, "exchange", self.fault).Exchange}


def _using(changed: Any, name: str, fault: str) -> Any:
    """The module of this name, with what the changed one defines in place of what it imports from it."""
    made = _module(name, "", "", fault)
    for own, value in vars(changed).items():
        if callable(value) and getattr(value, "__module__", "") == changed.__name__ and hasattr(made, own):
            setattr(made, own, value)
    return made


def _module(name: str, old: str, new: str, fault: str) -> Any:
    original = getattr(standfast.talk, name)
    source = Path(original.__file__).read_text(encoding="utf-8")
    if old:
        assert source.count(old) == 1, f"{fault}: its text occurs {source.count(old)} times; look again"
    made = types.ModuleType(original.__name__)
    made.__package__ = "standfast.talk"
    exec(compile(source.replace(old, new) if old else source, f"<{fault}>", "exec"), made.__dict__)
    return made


_LOST_ASKS = (
    "    asks = tuple(evolve(ask, ours=True, by=None) for ask in talk.asks)\n    return evolve(talk, open=tuple(parts)"
)
MUTANTS = [
    Mutant(
        "a reply is asked for while one is under way",
        "due",
        "link.creating is not None or link.active is not None:",
        "link.creating is not None:",
    ),
    Mutant(
        "a reply does not wait for parallel calls",
        "due",
        "if talk.changes or any(one.running for one in talk.calls):",
        "if talk.changes:",
    ),
    Mutant(
        "late audio is shown",
        "exchange",
        "        return end if response is None or response not in link.unwanted else -1\n",
        "        return end\n",
    ),
    Mutant(
        "what was cut is not told", "due", "    for item_id, cut in link.cuts.items():", "    for item_id, cut in ():"
    ),
    Mutant(
        "truncation beyond what was received",
        "due",
        '"audio_end_ms": min(cut.heard_ms, total),',
        '"audio_end_ms": total + 40,',
    ),
    Mutant(
        "an item without audio is truncated",
        "due",
        "        if total == 0:\n",
        "        if total == -1:\n",
    ),
    Mutant(
        "an item without audio is left there",
        "due",
        "            if not under_way and item_id in link.has:\n",
        "            if False:\n",
        seed=10,
    ),
    Mutant(
        "what had begun elsewhere is run again",
        "surviving",
        'call = evolve(call, state="doubt", reason="unknown")',
        'call = evolve(call, state="asked")',
    ),
    Mutant(
        "a lost reply is forgotten",
        "surviving",
        _LOST_ASKS,
        "    asks = tuple(ask for ask in talk.asks if ask.by is None)\n    return evolve(talk, open=tuple(parts)",
    ),
    Mutant(
        "what the server was to answer stays its to answer on a new connection",
        "surviving",
        _LOST_ASKS,
        "    asks = tuple(evolve(ask, by=None) for ask in talk.asks)\n    return evolve(talk, open=tuple(parts)",
    ),
    Mutant("speech is not said again", "exchange", "again = self._say_again(link, before)", "again = set()"),
    Mutant(
        "an item takes its place where it was made, not where the server has it",
        "advance",
        "    place = next((place for place, other in enumerate(rest) if not other.known), len(rest))\n",
        "    place = next((place for place, other in enumerate(talk.open) if other.id == part.id), len(rest))\n",
    ),
    Mutant(
        "what is not settled becomes history",
        "joining",
        "        if not part.settled:\n            break\n",
        "        if part.kind == 'output' and not part.settled:\n            break\n",
    ),
    Mutant(
        "open calls are not given to a new connection",
        "due",
        "    seen += [_call_seed(one) for one",
        "    [_call_seed(one) for one",
    ),
    Mutant(
        "a copy that turns out too long is left there",
        "due",
        "        if given is None or given == text:\n",
        "        if True:\n",
        seed=1108,  # rare: cut between the copy's leaving and the end of what is heard
    ),
    Mutant(
        "speech that a server cannot answer is left to it",
        "link",
        'ask = "ours" if self.active is not None else "server"',
        'ask = "server"',
        seed=37,
    ),
    Mutant(
        "the guardrails do not look at the end",
        "due",
        "(part.done or size >= part.judged + max(debounce, 1))",
        "(size >= part.judged + max(debounce, 1))",
    ),
    Mutant(
        "a call that was cut while it was written is run",
        "link",
        'if item.get("status") != "completed" or not item.get("call_id"):',
        'if not item.get("call_id"):',
    ),
    Mutant(
        "a reply that was interrupted before it began is spoken",
        "link",
        "                self.unwanted.add(response_id)\n",
        "                pass\n",
    ),
    Mutant(
        "a truncation is owed by the open item alone",
        "exchange",
        "                if heard < part.total_ms or not part.total_ms:\n",
        "                if False:\n",
        seed=31,
    ),
    Mutant(
        "a failed change stays in the way",
        "calling",
        "change.agent, why))\n    talk = evolve(talk, changes=talk.changes[1:],",
        "change.agent, why))\n    talk = evolve(talk, changes=talk.changes,",
    ),
    Mutant(
        "an answer covers what came after it began",
        "advance",
        "evolve(ask, by=event.response) if ask.bare or ask.id in event.held else ask for ask in talk.asks",
        "evolve(ask, by=event.response) for ask in talk.asks",
        seed=290,
    ),
    Mutant(
        "what is stored is all that was generated",
        "joining",
        "            text = heard_text(part)\n",
        "            text = part.text or ''\n",
    ),
    Mutant(
        "audio is sent before the history",
        "exchange",
        "        if len(link.pending) > 1 or not link.seeded:\n",
        "        if len(link.pending) > 1:\n",
        seed=51,
    ),
    Mutant(
        "speech that had only begun is not said again",
        "exchange",
        "        wanted.append((max(min(tail), 0), self.hearing.end))\n",
        "",
        seed=76,
    ),
    Mutant(
        "what had begun is settled as if it had not",
        "surviving",
        '"outcome_unknown" if has_begun else "did_not_run"',
        '"did_not_run"',
        seed=9,
    ),
    Mutant(
        "what waits for a person is settled too",
        "surviving",
        '    elif call.state in ("waiting", "returned"):\n',
        '    elif call.state == "returned":\n',
        seed=156,
    ),
    Mutant(
        "words whose audio never came were heard",
        "surviving",
        "    return not part.done and not part.written and not part.total_ms\n",
        "    return False\n",
        seed=38,
    ),
    Mutant(
        "settling forgets who asked",
        "surviving",
        "    return evolve(talk, open=tuple(_as_heard(part) for part in talk.open))\n",
        "    return evolve(talk, open=tuple(_as_heard(part) for part in talk.open), asks=())\n",
        seed=17,
    ),
    Mutant(
        "a new worker does not know what the session has of its call",
        "exchange",
        "                link.has |= link.base_ids ",
        "                pass ",
    ),
    Mutant(
        "what is understood is said again",
        "exchange",
        "for start, end in without(wanted, understood):",
        "for start, end in wanted:",
    ),
]
