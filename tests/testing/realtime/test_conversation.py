"""The loopback realtime server says what the service says, takes what it takes and refuses what it refuses."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from standfast._kits.testing.realtime.speech import tones
from standfast.testing.loopback import Asked, call
from standfast.testing.realtime import Answering, Conversation, Habits
from standfast.testing.realtime.audio import FORMATS, PCM, PCMU, silence
from tests.testing.realtime.talking import FROM_SERVER, calling, loopback

VAD = {"type": "server_vad", "silence_duration_ms": 300}


class Pure:
    """The service without a network: events go in, and what it told is a list."""

    def __init__(self, *answers: Any, **options: Any) -> None:
        habits = options.pop("habits", Habits())
        rule = iter(answers)
        self.told: list[dict[str, Any]] = []
        self.answering = Answering(lambda asked: next(rule), habits=habits)
        self.service = Conversation(self.answering, self.told.append, **options)

    def take(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """What is told at once."""
        before = len(self.told)
        self.service.take({"type": kind, **fields})
        for event in self.told[before:]:
            FROM_SERVER.validate_python(event)
        return self.told[before:]

    def refusal(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The error, which is all that is told."""
        (event,) = self.take(kind, **fields)
        assert event["type"] == "error"
        return event["error"]

    def run(self) -> list[str]:
        before = len(self.told)
        self.service.run()
        for event in self.told[before:]:
            FROM_SERVER.validate_python(event)
        return [event["type"] for event in self.told[before:]]

    def step(self, count: int) -> None:
        for _ in range(count):
            self.service.step(self.service.jobs[0])

    def until(self, kind: str, count: int = 1) -> None:
        """Let the first job go on until so many events of that type were told."""
        wanted = self.kinds().count(kind) + count
        while self.kinds().count(kind) < wanted:
            self.step(1)

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.told]

    def type(self, text: str, **fields: Any) -> list[dict[str, Any]]:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        return self.take("conversation.item.create", item={**item, **fields.pop("item", {})}, **fields)

    def say(self, words: str, *, after_ms: int = 600) -> None:
        pcm = tones(words)
        self.answering.ears.learn(words, pcm)
        self.hear(silence(400) + pcm + silence(after_ms))

    def hear(self, data: bytes) -> None:
        self.take("input_audio_buffer.append", audio=base64.b64encode(data).decode())

    @property
    def last(self) -> dict[str, Any]:
        return self.told[-1]


# --- sessions --------------------------------------------------------------------------------------------------------


def test_an_update_changes_only_the_fields_that_are_present():
    pure = Pure()
    before = pure.service.session
    (event,) = pure.take("session.update", session={"type": "realtime", "audio": {"output": {"speed": 1.25}}})
    assert event["type"] == "session.updated"
    after = event["session"]
    assert after["audio"]["output"] == {**before["audio"]["output"], "speed": 1.25}
    assert {**after, "audio": None} == {**before, "audio": None}
    assert after["audio"]["input"] == before["audio"]["input"]


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({}, "missing_required_parameter", "session.type"),
        ({"type": "realtime", "colour": 1}, "unknown_parameter", "session.colour"),
        ({"type": "realtime", "instructions": 5}, "invalid_type", "session.instructions"),
        ({"type": "realtime", "tools": [{"type": "function"}]}, "missing_required_parameter", "session.tools[0].name"),
        ({"type": "realtime", "output_modalities": ["text", "audio"]}, "invalid_value", "session.output_modalities"),
        ({"type": "realtime", "model": "another"}, "cannot_update_model", "session.model"),
        (
            {"type": "realtime", "audio": {"input": {"format": {"type": "mp3"}}}},
            "invalid_value",
            "session.audio.input.format.type",
        ),
        (
            {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad", "eagerness": "low"}}}},
            "unknown_parameter",
            "session.audio.input.turn_detection.eagerness",
        ),
    ],
)
def test_settings_that_the_service_refuses_leave_the_session_as_it_was(session: Any, code: str, param: str):
    pure = Pure()
    before = pure.service.session
    error = pure.refusal("session.update", session=session, event_id="mine")
    assert (error["code"], error["param"], error["event_id"]) == (code, param, "mine")
    assert pure.service.session == before


def test_the_voice_is_fixed_after_the_first_audio():
    pure = Pure("Hello.")
    voice = {"type": "realtime", "audio": {"output": {"voice": "ash"}}}
    assert pure.take("session.update", session=voice)[0]["type"] == "session.updated"
    pure.take("response.create")
    pure.run()
    assert pure.take("session.update", session=voice)[0]["type"] == "session.updated", "the same voice is no change"
    voice["audio"]["output"]["voice"] = "sage"
    error = pure.refusal("session.update", session=voice)
    assert error["message"] == "Cannot update a conversation's voice if assistant audio is present."
    assert error["code"] == "cannot_update_voice"


# --- items -----------------------------------------------------------------------------------------------------------


def test_items_go_to_the_end_to_the_front_or_behind_another():
    pure = Pure()
    for name, after in (("b", None), ("a", "root"), ("d", None), ("c", "b")):
        fields = {} if after is None else {"previous_item_id": after}
        added, done = pure.type(name, item={"id": name}, **fields)
        assert (added["type"], done["type"]) == ("conversation.item.added", "conversation.item.done")
    assert [held.id for held in pure.service.items] == ["a", "b", "c", "d"]
    assert [event["previous_item_id"] for event in pure.told if event["type"].endswith(".added")] == [
        None,
        None,
        "b",
        "b",
    ]


def test_an_item_behind_one_that_is_not_there_is_refused():
    error = Pure().refusal("conversation.item.create", item=_message("x"), previous_item_id="nowhere", event_id="e")
    assert "'nowhere' does not exist" in error["message"]


def _message(text: str, role: str = "user", kind: str = "input_text", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}


@pytest.mark.parametrize(
    ("item", "code", "message"),
    [
        (
            _message("x", id="i" * 33),
            "string_above_max_length",
            "Invalid 'item.id': string too long. Expected a string with maximum length 32, "
            "but got a string with length 33 instead.",
        ),
        (_message("x", id="a/b"), "invalid_value", "^[a-zA-Z0-9_-]+$"),
        (
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c" * 33},
            "string_above_max_length",
            "'item.call_id'",
        ),
        (
            {"type": "function_call_output", "call_id": "call_9", "output": "x"},
            "invalid_tool_call_id",
            "Tool call ID 'call_9' not found in conversation.",
        ),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": "x"}]},
            "missing_required_parameter",
            "Missing required parameter: 'item.content[0].text'.",
        ),
        (_message("x", "assistant", "input_text"), "invalid_value", "Invalid value: 'input_text'."),
        (_message("x", "robot"), "invalid_value", "Invalid value: 'robot'."),
        ({"type": "poem"}, "invalid_value", "Invalid value: 'poem'."),
    ],
)
def test_items_that_the_service_refuses_are_refused_in_its_words(item: Any, code: str, message: str):
    pure = Pure()
    error = pure.refusal("conversation.item.create", item=item)
    assert error["code"] == code
    assert message in error["message"]
    assert not pure.service.items


def test_an_item_id_can_be_used_once_also_after_it_was_deleted():
    pure = Pure()
    pure.type("x", item={"id": "mine"})
    error = pure.refusal("conversation.item.create", item=_message("y", id="mine"), event_id="e")
    assert error["message"] == "Error adding item: an item with id 'mine' already exists."
    assert (error["code"], error["event_id"]) == ("item_create_duplicate_item_id", None)
    assert pure.take("conversation.item.delete", item_id="mine")[0]["type"] == "conversation.item.deleted"
    assert pure.refusal("conversation.item.create", item=_message("y", id="mine"))
    lenient = Pure(habits=Habits(reuses_deleted_ids=True))
    lenient.type("x", item={"id": "mine"})
    lenient.take("conversation.item.delete", item_id="mine")
    assert lenient.type("y", item={"id": "mine"})[0]["type"] == "conversation.item.added"


def test_deleting_retrieving_and_truncating_need_an_item():
    pure = Pure()
    for doing in ("delete", "retrieve"):
        error = pure.refusal(f"conversation.item.{doing}", item_id="gone", event_id="e")
        assert error["code"] == f"item_{doing}_invalid_item_id"
        assert error["event_id"] == "e"
    error = pure.refusal("conversation.item.truncate", item_id="gone", content_index=0, audio_end_ms=0)
    assert error["code"] == "item_truncate_invalid_item_id"


def test_what_is_no_event_is_refused_and_ends_nothing():
    pure = Pure()
    assert pure.refusal("response.dance")["code"] == "invalid_value"
    assert pure.refusal("response.cancel", colour=1)["message"] == "Unknown parameter: 'colour'."
    pure.service.take("no event at all")
    assert pure.last["error"]["code"] == "invalid_json"
    assert pure.type("still here")[0]["type"] == "conversation.item.added"


# --- responses -------------------------------------------------------------------------------------------------------


def test_a_spoken_reply_tells_its_events_in_the_order_of_the_service():
    pure = Pure("Good morning")
    pure.take("response.create", response={"metadata": {"ask": "1"}})
    told = ["response.created", *pure.run()]
    assert told == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    created, done = pure.told[0]["response"], pure.told[-2]["response"]
    assert created["metadata"] == done["metadata"] == {"ask": "1"}
    assert created["status"] == "in_progress"
    assert done["status"] == "completed"
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": "Good morning"}]
    assert done["usage"]["total_tokens"] > 0
    assert list(pure.service.said()) == [("assistant", "Good morning")]


def test_the_audio_of_a_reply_is_its_words_and_its_transcript_is_its_text():
    pure = Pure("One two three")
    pure.take("response.create")
    pure.run()
    sound = b"".join(base64.b64decode(e["delta"]) for e in pure.told if e["type"] == "response.output_audio.delta")
    assert sound == tones("One two three")
    words = [e["delta"] for e in pure.told if e["type"] == "response.output_audio_transcript.delta"]
    assert "".join(words) == "One two three"


def test_a_written_reply_has_text_and_no_audio():
    pure = Pure("Hello there")
    pure.take("response.create", response={"output_modalities": ["text"]})
    told = pure.run()
    assert "response.output_text.delta" in told
    assert not any("audio" in kind for kind in told)
    assert not pure.service.has_spoken


def test_parallel_calls_are_several_items_of_one_response():
    pure = Pure([call("book", {"seats": 2}), call("pay", {"euro": 5})])
    pure.take("response.create")
    pure.run()
    calls = [event["item"] for event in pure.told if event["type"] == "response.output_item.done"]
    assert [(one["name"], one["status"]) for one in calls] == [("book", "completed"), ("pay", "completed")]
    assert len({one["call_id"] for one in calls}) == 2
    for one in calls:
        item = {"type": "function_call_output", "call_id": one["call_id"], "output": "ok"}
        assert pure.take("conversation.item.create", item=item)[0]["type"] == "conversation.item.added"


def test_a_second_response_is_refused_and_the_refusal_names_the_winner():
    pure = Pure("Hello", "not said")
    pure.take("response.create")
    winner = pure.told[0]["response"]["id"]
    error = pure.refusal("response.create", event_id="second")
    assert error["code"] == "conversation_already_has_active_response"
    assert error["event_id"] == "second"
    assert error["message"] == (
        f"Conversation already has an active response in progress: {winner}. "
        "Wait until the response is finished before creating a new one."
    )
    silent = Pure("Hello", habits=Habits(names_refused_response=False))
    silent.take("response.create")
    assert silent.refusal("response.create", event_id="second")["event_id"] is None


def test_a_response_beside_the_conversation_runs_at_once_and_leaves_nothing_in_it():
    pure = Pure("Hello there", "a summary")
    pure.take("response.create")
    (created,) = pure.take("response.create", response={"conversation": "none", "output_modalities": ["text"]})
    assert created["response"]["conversation_id"] is None
    pure.run()
    assert list(pure.service.said()) == [("assistant", "Hello there")]
    done = [event["response"]["conversation_id"] for event in pure.told if event["type"] == "response.done"]
    assert sorted(done, key=str) == [None, pure.service.id] or None in done


def test_a_response_can_bring_its_own_input():
    seen: list[Asked] = []
    answering = Answering(lambda asked: (seen.append(asked), "ok")[1])
    service = Conversation(answering, lambda event: None)
    service.take({"type": "conversation.item.create", "item": _message("in the conversation", id="one")})
    given = [{"type": "item_reference", "id": "one"}, _message("brought along")]
    service.take({"type": "response.create", "response": {"conversation": "none", "input": given}})
    assert [item["content"][0]["text"] for item in seen[0].context] == ["in the conversation", "brought along"]


def test_a_cancelled_reply_ends_its_item_as_incomplete_and_always_tells_the_end():
    pure = Pure("One two three four")
    pure.take("response.create")
    pure.until("response.output_audio.delta", 2)
    told = pure.take("response.cancel")
    assert [event["type"] for event in told][-3:] == [
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    assert told[-3]["item"]["status"] == "incomplete"
    assert told[-2]["response"]["status"] == "cancelled"
    assert told[-2]["response"]["status_details"]["reason"] == "client_cancelled"
    assert pure.refusal("response.cancel")["code"] == "response_cancel_not_active"


def test_a_call_that_is_cut_while_it_is_written_says_so_only_by_its_status():
    pure = Pure(call("book", {"seats": 2, "name": "a long name to be written"}))
    pure.take("response.create")
    pure.until("response.function_call_arguments.delta")
    told = {event["type"]: event for event in pure.take("response.cancel")}
    assert "response.function_call_arguments.done" in told
    assert told["response.output_item.done"]["item"]["status"] == "incomplete"


def test_a_script_that_is_used_up_fails_the_response_and_nothing_else():
    from standfast.testing.loopback import Script

    service_told: list[Any] = []
    service = Conversation(Answering(Script([])), service_told.append)
    service.take({"type": "response.create"})
    service.run()
    assert service_told[-2]["response"]["status"] == "failed"
    assert "one request more" in service_told[-2]["response"]["status_details"]["error"]["message"]
    assert service.active is None


# --- truncation ------------------------------------------------------------------------------------------------------


def test_truncation_cuts_the_audio_and_takes_the_transcript_away():
    pure = Pure("Good morning dear friend")
    pure.take("response.create")
    pure.run()
    held = pure.service.items[0]
    at = {"item_id": held.id, "content_index": 0}
    told = pure.take("conversation.item.truncate", **at, audio_end_ms=held.audio_ms // 2)
    assert told[0]["type"] == "conversation.item.truncated"
    (event,) = pure.take("conversation.item.retrieve", item_id=held.id)
    part = event["item"]["content"][0]
    assert part["transcript"] is None
    assert PCM.ms(base64.b64decode(part["audio"])) == held.audio_ms // 2
    assert list(pure.service.said()) == [("assistant", "Good morning")]


def test_truncation_beyond_the_audio_is_refused_without_an_event_id():
    pure = Pure("Hello")
    pure.take("response.create")
    pure.run()
    held = pure.service.items[0]
    at = {"item_id": held.id, "content_index": 0, "event_id": "e"}
    error = pure.refusal("conversation.item.truncate", **at, audio_end_ms=held.audio_ms + 1)
    assert error["message"] == f"Audio content of {held.audio_ms}ms is already shorter than {held.audio_ms + 1}ms"
    assert (error["code"], error["event_id"]) == ("invalid_value", None)


def test_only_audio_of_the_model_can_be_truncated():
    pure = Pure("Hello")
    pure.type("typed", item={"id": "typed"})
    pure.take("response.create")
    pure.until("response.output_item.added")
    without_audio = pure.service.items[-1].id
    for item_id in ("typed", without_audio):
        error = pure.refusal("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
        assert error["code"] == "unsupported_content_type"
        assert error["message"] == "Only model output audio messages can be truncated"


# --- speech ----------------------------------------------------------------------------------------------------------


def _listening(*answers: Any, **options: Any) -> Pure:
    detection = options.pop("detection", VAD)
    pure = Pure(*answers, **options)
    audio = {"input": {"turn_detection": detection, "transcription": {"model": "whisper-1"}}}
    pure.take("session.update", session={"type": "realtime", "audio": audio})
    pure.told.clear()
    return pure


def test_speech_is_detected_committed_answered_and_transcribed():
    pure = _listening("You are welcome")
    pure.say("book a table")
    assert pure.kinds() == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    started, stopped, committed = pure.told[:3]
    assert started["item_id"] == stopped["item_id"] == committed["item_id"]
    # 400 ms of silence, less 300 of padding; the words, and the silence that ended them.
    assert started["audio_start_ms"] == 100
    spoken_ms = PCM.ms(tones("book a table"))
    assert stopped["audio_end_ms"] == 400 + spoken_ms - 10 + 300
    pure.run()
    completed = next(event for event in pure.told if event["type"].endswith("transcription.completed"))
    assert completed["transcript"] == "book a table"
    assert list(pure.service.said()) == [("user", "book a table"), ("assistant", "You are welcome")]


@pytest.mark.parametrize("piece_bytes", [480, 4_800, 10_000])
def test_how_audio_is_cut_into_frames_does_not_change_what_is_heard(piece_bytes: int):
    pure = _listening("ok", "ok")
    data = silence(400) + tones("first words") + silence(500) + tones("second ones") + silence(500)
    for words in ("first words", "second ones"):
        pure.answering.ears.learn(words, tones(words))
    for start in range(0, len(data), piece_bytes):
        pure.hear(data[start : start + piece_bytes])
        pure.run()
    times = [e.get("audio_start_ms", e.get("audio_end_ms")) for e in pure.told if "speech_" in e["type"]]
    whole = _listening("ok", "ok")
    whole.hear(data)
    assert times == [e.get("audio_start_ms", e.get("audio_end_ms")) for e in whole.told if "speech_" in e["type"]]
    assert [words for role, words in pure.service.said() if role == "user"] == ["first words", "second ones"]


def test_silence_and_a_click_are_not_speech():
    pure = _listening()
    pure.hear(silence(1000) + tones("x")[:960] + silence(1000))
    assert not pure.told


def test_speech_interrupts_the_reply_and_is_answered():
    pure = _listening("One two three four five", "Second answer")
    pure.say("hello")
    pure.until("response.output_audio.delta", 2)
    pure.say("wait please")
    done = [event["response"] for event in pure.told if event["type"] == "response.done"]
    assert [one["status_details"]["reason"] for one in done] == ["turn_detected"]
    assert pure.kinds().index("input_audio_buffer.speech_started", 1) < pure.kinds().index("response.done")
    pure.run()
    assert [words for role, words in pure.service.said()][-1] == "Second answer"


def test_speech_that_may_not_interrupt_is_not_answered_while_a_reply_is_active():
    pure = _listening("One two three", detection={**VAD, "interrupt_response": False})
    pure.say("hello")
    pure.until("response.output_audio.delta")
    pure.say("also this")
    assert pure.kinds().count("response.created") == 1
    pure.run()
    assert list(pure.service.said())[-1] == ("user", "also this"), "its place is behind the reply that was under way"


def test_without_voice_detection_the_client_commits_and_asks():
    pure = _listening("Hello", detection=None)
    assert pure.refusal("input_audio_buffer.commit")["message"] == (
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        "but buffer only has 0.00ms of audio."
    )
    pure.answering.ears.learn("hello", tones("hello"))
    pure.hear(tones("hello"))
    told = [event["type"] for event in pure.take("input_audio_buffer.commit")]
    assert told == ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
    pure.run()
    assert list(pure.service.said()) == [("user", "hello")]


def test_cleared_audio_is_forgotten_but_its_time_counts():
    pure = _listening("ok")
    pure.hear(tones("never mind this"))
    pure.take("input_audio_buffer.clear")
    assert pure.last["type"] == "input_audio_buffer.cleared"
    past_ms = PCM.ms(tones("never mind this"))
    pure.say("hello")
    started = [event for event in pure.told if event["type"].endswith("speech_started")][-1]
    assert started["audio_start_ms"] == past_ms + 100
    pure.run()
    assert next(iter(pure.service.said())) == ("user", "hello")


def test_a_transcript_can_fail_and_can_come_after_the_reply():
    pure = _listening("One", "Two", habits=Habits(transcribes="after the reply"))
    pure.answering.transcripts += [None, "heard so"]
    pure.say("mumble")
    told = pure.run()
    assert told.index("response.done") < told.index("conversation.item.input_audio_transcription.failed")
    pure.say("mumble again")
    pure.run()
    completed = next(event for event in pure.told if event["type"].endswith("transcription.completed"))
    assert completed["transcript"] == "heard so"


def test_nobody_speaking_for_too_long_is_committed_and_answered():
    pure = _listening("Hello", "Are you there?", detection={**VAD, "idle_timeout_ms": 2_000})
    pure.say("hello")
    pure.run()
    pure.hear(silence(3_000))
    kinds = pure.kinds()
    place = kinds.index("input_audio_buffer.timeout_triggered")
    assert kinds[place + 1] == "input_audio_buffer.committed"
    assert "response.created" in kinds[place:]
    event = pure.told[place]
    assert event["audio_end_ms"] - event["audio_start_ms"] >= 2_000


@pytest.mark.parametrize("kind", list(FORMATS.values()), ids=lambda kind: kind.type)
def test_words_are_understood_in_every_format(kind: Any):
    pure = _listening("You too")
    name = {"type": kind.type, "rate": 24000} if kind is PCM else {"type": kind.type}
    audio = {"input": {"format": name}, "output": {"format": name}}
    pure.take("session.update", session={"type": "realtime", "audio": audio})
    pure.answering.ears.learn("have a nice day", tones("have a nice day"))
    data = kind.from_pcm(silence(400) + tones("have a nice day") + silence(600))
    for start in range(0, len(data), 20 * kind.bytes_per_ms):
        pure.hear(data[start : start + 20 * kind.bytes_per_ms])
    pure.run()
    assert list(pure.service.said()) == [("user", "have a nice day"), ("assistant", "You too")]
    assert pure.service.items[-1].audio_ms == PCM.ms(tones("You") + tones("too"))


def test_unknown_sounds_are_words_all_the_same():
    """There is no speech recognition: what was not taught is named by its length, so that a demo can go on."""
    pure = _listening("ok")
    pure.hear(silence(400) + tones("something unheard of") + silence(600))
    assert pure.service.items[0].text is not None
    assert pure.service.items[0].text.startswith("(speech of ")


def test_audio_that_is_no_base64_is_refused():
    error = Pure().refusal("input_audio_buffer.append", audio="not base64!")
    assert (error["code"], error["param"]) == ("invalid_value", "audio")


# --- attached calls --------------------------------------------------------------------------------------------------


def test_the_audio_of_an_attached_call_goes_past_the_client():
    pure = _listening("One two three", "Four", attached=True)
    pure.say("hello")
    pure.until("response.done")
    assert "output_audio_buffer.started" in pure.kinds()
    assert "response.output_audio.delta" not in pure.kinds()
    pure.say("stop")
    assert "output_audio_buffer.cleared" in pure.kinds()
    assert "conversation.item.truncated" in pure.kinds(), "the service knows what was played and truncates by itself"
    pure.run()
    assert pure.kinds().count("output_audio_buffer.stopped") == 1


def test_clearing_the_output_is_only_for_attached_calls():
    assert Pure().refusal("output_audio_buffer.clear")["code"] == "invalid_value"


async def test_everything_above_is_the_same_over_a_socket():
    async with loopback(["You are welcome"]) as server, calling(server) as client:
        assert (await client.receive())["session"]["expires_at"] > 0
        await client.update(audio={"input": {"turn_detection": VAD, "transcription": {"model": "whisper-1"}}})
        await client.say(server.speak("book a table"))
        await client.until("response.done")
        await client.until("rate_limits.updated")
        assert server.said() == [("user", "book a table"), ("assistant", "You are welcome")]
        assert not server.refused
    assert PCMU.bytes_per_ms == 8
