"""Everything around the pure machine: a modelled server, connections that drop, processes that die, people.

One seed is one life. Chance picks what happens next among all that can; then the world calms down, and what must hold
at the end is checked. What must hold at every step is asserted at every step. The server is the one that the loopback
server speaks with, without its sockets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from standfast._kits.testing.loopback.answers import Asked, call
from standfast._kits.testing.realtime.answering import Answering, Habits
from standfast._kits.testing.realtime.conversation import Conversation
from standfast._kits.testing.realtime.speech import Ears, tones
from standfast._src.items.texts_for_models import DEFAULT_TEXTS
from standfast._src.realtime.machine.codec import decode_saved, encode_head, encode_tails
from standfast._src.realtime.machine.connection_state import ConnectionState
from standfast._src.realtime.machine.events import (
    Appended,
    Began,
    Claimed,
    Decided,
    Do,
    Frame,
    HungUp,
    Returned,
    Shown,
    Typed,
    Waits,
)
from standfast._src.realtime.machine.live_call import LiveCall
from standfast._src.realtime.machine.voice_call import SPEECH, VoiceCall, worth_saving
from standfast._src.realtime.machine.wire_format import seeds, session_object
from standfast._src.runs.engine.events import SettledBy
from standfast._src.runs.engine.run import Decision
from standfast._src.runs.engine.run_store import SavedRun
from standfast.testing.realtime.audio import silence

ALLOWED = {
    "conversation_already_has_active_response",
    "response_cancel_not_active",
    "item_create_duplicate_item_id",
}
DELTAS = {
    "response.output_audio.delta",
    "response.output_audio_transcript.delta",
    "response.output_text.delta",
}
DEBOUNCE = 12
CHUNK = 48 * 200


def words_in(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text") or "") for part in content or ())


class Model:
    """A sensible model: it calls a tool once for each wish it finds unserved, and says something."""

    def __init__(self, chance: Random) -> None:
        self.chance, self.count = chance, 0

    def __call__(self, asked: Asked) -> Any:
        wanted = [
            word
            for item in asked.context
            if item.get("role") == "user"
            for word in words_in(item).split()
            if ":" in word
        ]
        made = {json.loads(item["arguments"])["wish"] for item in asked.context if self.is_whole_call(item)}
        wishes = [wish for wish in dict.fromkeys(wanted) if wish not in made]
        answer: list[Any] = []
        if not wishes or self.chance.random() < 0.5:
            self.count += 1
            words = [f"w{self.count}{letter}" for letter in "abcdef"[: self.chance.randrange(1, 6)]]
            if self.chance.random() < 0.1:
                words[self.chance.randrange(len(words))] = "FORBIDDEN"
            answer.append(" ".join(words))
        for wish in wishes[: self.chance.choice((1, 2, 3))]:
            answer.append(call(wish.partition(":")[0], {"wish": wish}))
        return answer

    @staticmethod
    def is_whole_call(item: dict[str, Any]) -> bool:
        return item.get("type") == "function_call" and item.get("status") != "incomplete"


class World:
    """One life of one call."""

    def __init__(self, seed: int, *, steps: int = 500, parts: dict[str, Any] | None = None) -> None:
        self.make_exchange: type[LiveCall] = (parts or {}).get("Exchange", LiveCall)
        self.make_link: type[ConnectionState] = (parts or {}).get("Link", ConnectionState)
        self.chance = Random(seed)
        self.steps = steps
        rate = self.chance.choice((0, 0.1, 0.3, 1))  # some lives are calm, so that conversations get long
        self.drops, self.kills = 0.1 * rate, 0.03 * rate
        self.now, self.calm = 100.0, False
        self.rows: list[dict[str, Any]] = []
        """What the session has of this call."""
        self.history: list[dict[str, Any]] = []
        """All that the session has, of text runs too."""
        self.base: list[dict[str, Any]] = []
        self.base_upto = 0
        """What it had when this process began, and how much of that is the call's."""
        self.effects: dict[str, int] = {}
        self.rejected: set[str] = set()
        self.typed: list[str] = []
        self.spoken: list[str] = []
        self.understood: list[str] = []
        self.unheard = 0
        self.lost_audio = False
        self.hangs_up = seed % 5 == 4  # before anybody has decided what waits
        self.final = seed % 2 == 0 and not self.hangs_up  # a last message makes the model look at everything once more
        detection = {
            "type": "server_vad",
            "create_response": True,
            "interrupt_response": self.chance.random() < 0.8,
            "silence_duration_ms": 200,
            "prefix_padding_ms": 20,
        }
        self.settings = {"turn_detection": detection}
        habits = Habits(
            names_refused_response=self.chance.random() < 0.5,
            echoes_metadata=self.chance.random() < 0.8,
            transcribes=self.chance.choice(("at once", "after the reply")),
        )
        self.model = Model(self.chance)
        self.answering = Answering(self.model, ears=Ears(), habits=habits)
        self.server: Conversation | None = None
        self.servers: list[Conversation] = []
        self.facts: dict[str, Any] = {}
        self.out: list[dict[str, Any]] = []
        self.to_server: list[dict[str, Any]] = []
        self.stale: list[dict[str, Any]] = []
        self.speech: list[bytes] = []
        self.flights: dict[str, Iterator[None]] = {}
        self.trace: list[str] = []
        self.happened: dict[str, int] = {}
        self.stopped: set[str] = set()
        self.doomed: set[str] = set()
        self.audio_of: dict[str, str] = {}
        self.audible: set[str] = set()
        """Replies of which some audio came."""
        self.playing: set[str] = set()
        self.covered: set[str] = set()
        """What the response under way was begun with, and what a response that ended was."""
        self.answered: set[str] = set()
        self.overlaps = self.early = self.needless = 0
        self.perilous = False
        self.exchange = self.make_exchange(VoiceCall("run", "a"), debounce=DEBOUNCE)
        self.saved = b""
        self.save()

    # --- the machine -------------------------------------------------------------------------------------------------

    @property
    def talk(self) -> VoiceCall:
        return self.exchange.talk

    def did(self, what: str, work: Callable[[], list[Shown] | None]) -> None:
        """Let something happen, and look at what follows."""
        before = self.talk
        shown = [*(work() or ()), *self.exchange.follow_up(self.now)]
        self.trace.append(f"{what} -> {[(one.name, one.of) for one in shown]}")
        for one in shown:
            self.happened[one.name] = self.happened.get(one.name, 0) + 1
            if one.name == "audio_interrupted":
                assert one.of in self.playing, "interrupted, and nothing was playing"
                self.playing.discard(one.of)
            elif one.name == "error":
                code = one.more.get("code")
                about_settings = str(one.more.get("param")).startswith("session.")
                assert code in ALLOWED or about_settings, one
        if self.exchange.link is not None:
            self.stopped |= self.exchange.link.unwanted
        if worth_saving(before, self.talk):
            self.save()
        wanted = {one.key for one in self.exchange.due()}
        self.flights = {key: flight for key, flight in self.flights.items() if key in wanted}

    def save(self) -> None:
        head, tails = encode_head(self.talk), encode_tails(self.talk, 0)
        self.saved = json.dumps([head.decode(), [one.decode() for tail in tails.values() for one in tail.records]])

    def loaded(self) -> VoiceCall:
        head, ledger = json.loads(self.saved)
        return decode_saved(SavedRun("run", 1, head.encode(), {"ledger": [one.encode() for one in ledger]}))

    # --- what can happen ---------------------------------------------------------------------------------------------

    def choices(self) -> list[tuple[float, Callable[[], None]]]:
        found: list[tuple[float, Callable[[], None]]] = []
        for effect in self.exchange.due():
            if effect.kind == "connect":
                found.append((2, self.connect))
            else:
                found.append((2, partial(self.fly, effect)))
        frames = self.exchange.frames()
        if frames:
            found.append((3, partial(self.send, frames[0])))
        if self.server is not None:
            if self.to_server:
                found.append((4, self.serve))
            if self.out:
                found.append((5, self.deliver))
            for job in self.server.jobs:
                if job.ready:
                    found.append((2 if "transcription" not in str(job.next) else 0.7, partial(self.server.step, job)))
        if self.playing or any(part.kind == "spoken" for part in self.talk.open):
            found.append((1, self.play))
        for waiting in self.talk.waiting:
            found.append((0.7 if self.calm else 0.15, partial(self.decide, waiting.id, waiting.arguments)))
        if self.speech:
            found.append((2, self.say))
        if not self.calm:
            self.faults(found)
        return found

    def faults(self, found: list[tuple[float, Callable[[], None]]]) -> None:
        if not self.speech and len(self.spoken) < 4:
            found.append((0.25, self.speak))
        if len(self.typed) < 3:
            found.append((0.1, self.type))
        found.append((0.06, self.interrupt))
        found.append((0.05, self.change))
        if self.exchange.link is not None:
            found.append((self.drops, self.drop))
            if self.drops and self.talk.waiting:
                found.append((0.3, self.drop))
            if self.drops and any(part.is_playing for part in self.talk.open):
                found.append((0.3, self.drop))
            if self.exchange.link.given and any(part.is_playing for part in self.talk.open):
                found.append((1.0, self.interrupt))  # a copy of what is still being heard was just given
        found.append((self.kills + (1.0 if self.perilous and self.kills else 0), self.kill))

    def live(self) -> World:
        for step in range(self.steps + 6_000):
            if step == self.steps:
                self.calm = True
                if self.hangs_up:
                    self.hang_up()
                if self.final:
                    self.typed.append("final")
                    self.did("final", lambda: self.exchange.tell(Typed("final"), self.now))
            options = self.choices()
            if not options:
                if self.calm:
                    return self
                continue
            weights = [weight for weight, _ in options]
            self.chance.choices([what for _, what in options], weights)[0]()
        raise AssertionError("the call does not come to rest: " + "\n".join(self.trace[-30:]))

    # --- people ------------------------------------------------------------------------------------------------------

    def wish(self) -> str:
        return f"{self.chance.choice(('book', 'pay', 'ask'))}:{len(self.typed) + len(self.spoken)}"

    def speak(self) -> None:
        words = [f"s{len(self.spoken)}{letter}" for letter in "ab"[: self.chance.randrange(1, 3)]]
        if self.chance.random() < 0.6:
            words.append(self.wish())
        said = " ".join(words)
        self.spoken.append(said)
        self.answering.ears.learn(said, tones(said))
        data = tones(said) + silence(300)
        self.speech = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]

    def say(self) -> None:
        def work() -> None:
            frame = self.exchange.speak(self.speech.pop(0))
            if frame is not None:
                self.exchange.sent(frame)
                self.to_server.append(frame.body)

        self.did("audio", work)

    def type(self) -> None:
        text = f"t{len(self.typed)}" + (f" {self.wish()}" if self.chance.random() < 0.6 else "")
        self.typed.append(text)
        self.did(f"typed {text}", lambda: self.exchange.tell(Typed(text), self.now))

    def interrupt(self) -> None:
        link = self.exchange.link
        if link is not None and link.creating is not None and self.answering.habits.echoes_metadata:
            self.doomed.add(link.creating)
        self.did("interrupt", lambda: self.exchange.interrupt(self.now))

    def change(self) -> None:
        agent = self.chance.choice(("a", "b", "bad"))
        self.did(f"change {agent}", lambda: self.exchange.change(agent, self.now))

    def play(self) -> None:
        self.now += self.chance.choice((0.01, 0.03, 0.1)) * (10 if self.calm else 1)
        self.did("played", lambda: self.exchange.listen(self.now))
        self.playing &= {part.id for part in self.talk.open if part.kind == "spoken"}

    def decide(self, call_id: str, arguments: str) -> None:
        approved = self.chance.random() < 0.7
        if not approved:
            self.rejected.add(json.loads(arguments)["wish"])
        decision = Decision(approved, call_id)
        self.did(f"decided {call_id}", lambda: self.exchange.tell(Decided(decision), self.now))

    # --- connections and processes -----------------------------------------------------------------------------------

    def object_of(self, agent: str) -> dict[str, Any]:
        made = session_object({**self.settings, "instructions": agent})
        return {**made, "output_modalities": ["smoke"]} if agent == "bad" else made

    def connect(self) -> None:
        self.out, self.to_server = [], []
        self.server = Conversation(self.answering, self._told, name=f"{len(self.servers)}", now=lambda: self.now)
        self.servers.append(self.server)
        self.facts = {"new": 0, "status": ""}
        self.out.append(self.server.greeting())
        settings = self.object_of(self.talk.agent)
        link = self.make_link(self.talk.epoch + 1, settings, seeds(self.base), self.base_upto, guarded=True)
        self.did("opened", lambda: self.exchange.open(link, self.now))

    def _told(self, event: dict[str, Any]) -> None:
        self.out.append(event)
        kind = event["type"]
        if kind == "conversation.item.added":
            self.facts["new"] += 1
        elif kind == "response.created":
            self.facts["new"] = 0
            assert self.server is not None
            self.covered = {words_in(held.item) for held in self.server.items if held.item.get("role") == "user"}
            mark = (event["response"].get("metadata") or {}).get("standfast")
            if mark in self.doomed:
                self.stopped.add(event["response"]["id"])
        elif kind == "response.done":
            self.facts["status"] = event["response"]["status"]
            self.answered |= self.covered

    def serve(self) -> None:
        assert self.server is not None
        frame = self.to_server.pop(0)
        blind = frame.pop("_blind", True)
        waiting = frame.pop("_waiting", set())
        if frame["type"] == "response.create" and not blind:
            items = [held.item for held in self.server.items]
            made = {item["call_id"] for item in items if Model.is_whole_call(item)}
            given = {item["call_id"] for item in items if item["type"] == "function_call_output"}
            self.overlaps += self.server.active is not None
            self.early += not made <= given | waiting
            self.needless += not self.facts["new"] and self.facts["status"] != "failed"
        self.server.take(frame)

    def send(self, frame: Frame) -> None:
        # A reply asked for while news is on its way may turn out needless: nobody could know.
        blind = bool(self.out or self.to_server)
        waiting = {one.id for one in self.talk.waiting}
        self.to_server.append({**frame.body, "_blind": blind, "_waiting": waiting})
        self.did(f"sent {frame.key}", lambda: self.exchange.sent(frame))

    def deliver(self) -> None:
        self.receive(self.out.pop(0))

    def forget_connection(self) -> None:
        """Nothing of it is on its way any more; the reply it was giving is lost."""
        self.server, self.to_server, self.out, self.covered = None, [], [], set()

    def receive(self, frame: dict[str, Any]) -> None:
        kind, link = frame["type"], self.exchange.link
        assert link is not None
        if kind.endswith("transcription.completed") and self.talk.part(frame["item_id"]) is not None:
            self.understood.append(frame["transcript"])
        self.unheard += kind.endswith("transcription.failed")
        if kind not in DELTAS:
            return self.did(kind, lambda: self.exchange.receive(frame, self.now))
        item_id, wanted = frame["item_id"], False
        if kind == "response.output_audio.delta":
            size = len(frame["delta"]) * 3 // 4
            wanted = self.exchange.audio(item_id, size) >= 0
            self.audible.add(item_id)
            if wanted:
                assert frame["response_id"] not in self.stopped, "audio of an interrupted reply is delivered (E8)"
                self.playing.add(item_id)
                self.exchange.playback.take(item_id, size / 48, self.now)
        elif self.exchange.words(item_id, frame["delta"]) and self.exchange.look():
            self.did("look", list)
        return None

    def drop(self) -> None:
        self.happened["drop"] = self.happened.get("drop", 0) + 1
        asked = {ask.id for ask in self.talk.asks}
        self.unheard += sum(
            part.kind == "said" and part.text is None and part.id not in asked for part in self.talk.open
        )
        self.forget_connection()
        self.did("lost", lambda: self.exchange.lose(self.now))

    def kill(self) -> None:
        """The process is gone: what it had not saved, what it was playing, what it was hearing. Another takes over."""
        self.happened["kill"] = self.happened.get("kill", 0) + 1
        self.lost_audio, self.perilous = True, False
        talk = self.loaded()
        self.unheard += sum(part.kind == "said" and part.text is None for part in talk.open)
        self.forget_connection()
        self.flights, self.speech = {}, []
        self.playing = set()
        self.exchange = self.make_exchange(talk, debounce=DEBOUNCE)
        assert len(self.rows) <= len(talk.ledger), "the session holds what no saved call knows"
        if self.chance.random() < 0.4:
            self.text_run()
        self.base, self.base_upto = list(self.history), len(self.rows)
        self.did("claimed", lambda: self.exchange.tell(Claimed(len(self.rows)), self.now))

    def text_run(self) -> None:
        """Somebody writes on the session before anybody has taken the call over (C15)."""
        waited = [call.id for call in self.talk.waiting]
        event = SettledBy("text", "claim", len(self.rows))
        self.did("settled", lambda: self.exchange.tell(event, self.now))
        assert [call.id for call in self.talk.waiting] == waited, "a call that waits was settled, or another waits"
        assert not self.talk.open, "something stands in the way of a history that is whole"
        self.store(len(self.talk.ledger))
        self.tell(Appended(len(self.talk.ledger)))
        self.save()
        text = f"x{self.happened['kill']}"
        self.history += [{"role": "user", "content": text}, {"role": "assistant", "content": f"re {text}"}]
        self.exchange = self.make_exchange(self.loaded(), debounce=DEBOUNCE)

    def hang_up(self) -> None:
        self.unheard += sum(part.kind == "said" and part.text is None for part in self.talk.open)
        self.lost_audio = True
        self.forget_connection()
        self.speech = []
        self.exchange.lose(self.now)
        self.playing = set()
        self.did("hung up", lambda: self.exchange.tell(HungUp(), self.now))

    # --- performers: one step at a time, so that anything can come between -------------------------------------------

    def fly(self, effect: Do) -> None:
        if effect.key not in self.flights:
            self.flights[effect.key] = getattr(self, f"_{effect.kind}")(effect)
        if next(self.flights[effect.key], "over") == "over":
            self.flights.pop(effect.key, None)

    def tell(self, event: Any) -> None:
        self.did(type(event).__name__, lambda: self.exchange.tell(event, self.now))

    def _run(self, effect: Do) -> Iterator[None]:
        one = self.talk.call(effect.of)
        assert one is not None
        wish = json.loads(one.call.arguments)["wish"]
        if one.call.name == "book" and one.call.decision is None and one.call.state == "asked":
            self.tell(Waits(effect.of))
            return
        if one.call.decision is not None and not one.call.decision.approved:
            self.tell(Returned(effect.of, "rejected"))
            return
        if one.call.state == "asked":
            self.tell(Began(effect.of))
        yield
        assert wish not in self.rejected, "a rejected call ran"
        self.effects[wish] = self.effects.get(wish, 0) + 1
        self.perilous = True
        yield
        self.perilous = False
        self.tell(Returned(effect.of, f"did {wish}"))

    def _settle(self, effect: Do) -> Iterator[None]:
        yield
        self.tell(Returned(effect.of, "unknown"))

    def _append(self, effect: Do) -> Iterator[None]:
        assert len(self.loaded().ledger) >= effect.upto, "an append of what no saved call knows"
        self.store(effect.upto)
        yield  # the answer may be lost here
        self.tell(Appended(effect.upto))

    def store(self, upto: int) -> None:
        for ordinal, entry in enumerate(self.talk.ledger[:upto]):
            if ordinal >= len(self.rows):
                self.rows.append(entry.item)
                self.history.append(entry.item)
            else:
                assert self.rows[ordinal] == entry.item, "another item under the same ordinal"

    def _judge(self, effect: Do) -> Iterator[None]:
        part = self.talk.part(effect.of)
        assert part is not None
        text = (part.text or "")[: effect.upto]
        yield
        note = "guardrail triggered: words"
        self.did(
            "judged", lambda: self.exchange.record_verdict(effect.of, effect.upto, "FORBIDDEN" in text, note, self.now)
        )

    def _resolve(self, effect: Do) -> Iterator[None]:
        yield
        link = self.exchange.link
        assert link is not None

        def work() -> None:
            link.updates[effect.upto] = self.object_of(effect.of)

        self.did(f"resolved {effect.of}", work)

    # --- what must hold at the end -----------------------------------------------------------------------------------

    def check(self) -> None:
        talk, link = self.talk, self.exchange.link
        assert talk.ended or (link is not None and link.seeded)
        assert not talk.open, f"not settled: {talk.open}"
        assert (talk.asks, talk.calls, talk.changes) == ((), (), ()), "something is still wanted"
        assert self.rows == [entry.item for entry in talk.ledger], "the session is not the ledger"
        self.check_effects()
        self.check_words()
        assert not self.overlaps, "a reply was asked for while another was under way (E9)"
        assert not self.early, "a reply was asked for while a call of the same batch was running (E9)"
        assert not self.needless, "a reply was asked for that nothing wanted"
        for server in self.servers:
            odd = [code for code in server.refused if code not in ALLOWED and code != "invalid_value"]
            assert not odd, odd
        if not talk.ended:
            assert set(self.typed) <= self.answered, f"never answered: {set(self.typed) - self.answered}"
            self.compare()

    def check_effects(self) -> None:
        calls = [(place, item) for place, item in enumerate(self.rows) if item.get("type") == "function_call"]
        tried = {json.loads(item["arguments"])["wish"] for _, item in calls}
        for wish, count in self.effects.items():
            assert count == 1, f"{wish} was done {count} times"
            assert wish not in self.rejected
        assert set(self.effects) | self.rejected <= tried, "something was done that history does not know"
        for place, item in calls:
            assert self.rows[place + 1].get("call_id") == item["call_id"], "a call without its output (C8)"
            has_run = json.loads(item["arguments"])["wish"] in self.effects
            assert not has_run or self.rows[place + 1]["output"] != DEFAULT_TEXTS.did_not_run, (
                "done, and said not to have run"
            )
        assert len({item["call_id"] for _, item in calls}) == len(calls)
        if self.final:
            said = " ".join(words_in(item) for item in self.rows if item.get("role") == "user")
            forgotten = [word for word in said.split() if ":" in word and word not in tried]
            assert not forgotten, f"{forgotten} asked for and never tried"

    def check_words(self) -> None:
        users = [item["content"] for item in self.rows if item.get("role") == "user"]
        for text in self.typed:
            assert users.count(text) == 1, f"typed {text!r} is there {users.count(text)} times: {users}"
        for text in self.spoken:
            assert users.count(text) <= 1, f"said {text!r} is there {users.count(text)} times: {users}"
            if not self.lost_audio and SPEECH not in users:
                assert users.count(text) == 1, f"said {text!r} is not there: {users}"
        for text in self.understood:
            assert users.count(text) == 1, f"understood {text!r} is there {users.count(text)} times: {users}"
        assert users.count(SPEECH) <= self.unheard, f"speech was forgotten: {users}"
        assert not any("guardrail" in str(item.get("content")) for item in self.rows), "a note was stored"
        for entry in self.talk.ledger:
            spoke = entry.item.get("role") == "assistant"
            assert not spoke or (entry.extra or {})["id"] in self.audible, "words of which nobody heard anything"
        for item in self.rows:
            if item.get("role") == "assistant":
                assert "FORBIDDEN" not in item["content"] or self.happened.get("guardrail"), item

    def compare(self) -> None:
        """The last server's conversation and the session say the same, in the same order."""
        assert self.server is not None
        there = [(role, text) for role, text in self.server.said() if role != "system"]
        here = [(item["role"], item["content"]) for item in self.history if "role" in item]
        known = {text for _, text in here}
        there = [(role, text if role != "user" or text in known else SPEECH) for role, text in there]
        assert sorted(there) == sorted(here), f"\nserver {there}\nstore  {here}"
        assert there == here, f"order\nserver {there}\nstore  {here}"
