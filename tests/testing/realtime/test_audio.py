"""Audio by hand: G.711, changes of rate, tones that are words, and ears that know them."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, strategies as st

from standfast._kits.testing.realtime import g711
from standfast._kits.testing.realtime.detection import Detector
from standfast._kits.testing.realtime.speech import Ears, pieces, tones
from standfast.testing.realtime.audio import FORMATS, PCM, PCMU, level, silence, tone
from tests.testing.realtime.voice_example import real_speech

EVERY_SAMPLE = array("h", range(-32_768, 32_768)).tobytes()
# Pairs of a sample and its byte, from the tables of ITU-T G.711 (scaled to 16 bits).
ULAW = {0: 0xFF, 32_767: 0x80, -32_768: 0x00, 1_000: 0xCE, -1_000: 0x4E, 8: 0xFE}
ALAW = {0: 0xD5, 32_767: 0xAA, -32_768: 0x2A, 1_000: 0xFA, -1_000: 0x7A, 16: 0xD4}


@pytest.mark.parametrize(("encode", "table"), [(g711.encode_ulaw, ULAW), (g711.encode_alaw, ALAW)])
def test_samples_have_the_bytes_of_the_standard(encode, table):
    for sample, byte in table.items():
        assert encode(array("h", [sample]).tobytes()) == bytes([byte]), sample


@pytest.mark.parametrize(
    ("encode", "decode", "steps"),
    [(g711.encode_ulaw, g711.decode_ulaw, 255), (g711.encode_alaw, g711.decode_alaw, 256)],
)
def test_every_byte_survives_and_every_sample_comes_back_nearly_as_it_was(encode, decode, steps):
    bytes_again = encode(decode(bytes(range(256))))
    assert len(set(bytes_again)) == steps, "μ-law has two zeroes, which are one"
    again = array("h", decode(encode(EVERY_SAMPLE)))
    for sample, back in zip(array("h", EVERY_SAMPLE), again, strict=True):
        # Half a step, and a step is a sixteenth of its segment; the largest magnitudes are clipped.
        assert abs(sample - back) <= max(abs(sample) // 32 + 8, abs(sample) - 32_124), sample


@given(st.integers(1, 30))
def test_a_tone_survives_the_telephone(tens: int):
    pcm = tone(tens * 10, 300)
    assert PCMU.ms(PCMU.from_pcm(pcm)) == tens * 10
    back = PCMU.to_pcm(PCMU.from_pcm(pcm))
    assert len(back) == len(pcm)
    assert level(back) == pytest.approx(level(pcm), rel=0.1)


def test_silence_is_silent_in_every_format():
    for kind in FORMATS.values():
        data = kind.from_pcm(silence(20))
        assert set(data) == {kind.silence}
        assert level(kind.to_pcm(data)) < 10


def test_the_same_words_always_sound_the_same_and_others_do_not():
    assert tones("hello world") == tones("hello world")
    assert tones("hello") != tones("jello")
    assert PCM.ms(tones("a")) >= 60, "long enough to be noticed"


@given(st.text())
def test_pieces_joined_are_the_words_again(words: str):
    assert "".join(pieces(words)) == (words if words.strip() else "")


def test_ears_hear_what_they_were_taught_in_order_and_longest():
    ears = Ears()
    for words in ("book", "book a table", "thank you"):
        ears.learn(words, tones(words))
    recording = silence(100) + tones("thank you") + silence(200) + tones("book a table") + silence(100)
    assert ears.hear(recording, PCM) == "thank you book a table"
    assert ears.hear(silence(500), PCM) == ""
    assert ears.hear(tones("something else"), PCM) == ""


def test_without_a_speech_synthesiser_words_are_tones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(real_speech, "installed", lambda: False)
    assert real_speech.spoken("good evening") == tones("good evening")


def test_the_best_voice_there_is_can_be_heard_and_understood():
    """eSpeak NG where its wheel is installed, as ./dev installs it; tones elsewhere."""
    pcm = real_speech.spoken("Good evening, a table for two please.")
    assert real_speech.spoken("Good evening, a table for two please.") == pcm
    assert level(pcm) > 1_000
    assert PCM.ms(pcm) > 500
    (started, stopped) = Detector().feed(silence(500) + pcm + silence(800), {})
    assert started.at_ms < 600
    assert stopped.at_ms > 500 + PCM.ms(pcm) - 400
    ears = Ears()
    ears.learn("good evening", pcm)
    for kind in FORMATS.values():
        assert ears.hear(kind.from_pcm(silence(100) + pcm + silence(100)), kind) == "good evening"
