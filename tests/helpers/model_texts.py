"""What a model reads of a call, as it is unless an application has set other texts."""

from __future__ import annotations

from standfast._src.items.texts_for_models import DEFAULT_TEXTS

UNKNOWN_OUTCOME = DEFAULT_TEXTS.outcome_unknown
WAITS_FOR_A_PERSON = DEFAULT_TEXTS.waits_for_a_person
BEGUN_AND_WAITS = DEFAULT_TEXTS.begun_and_waits
