"""The contract on stores that are only a port: through threads, over a line that loses answers, and sealed."""

from __future__ import annotations

from standfast.conformance import suite
from tests.conformance.narrowed import without
from tests.conformance.port_backends import LosingBackend, PortBackend, SealedBackend

TestThreads = suite(PortBackend())
# Steps that a check asks for directly have nothing that a repeat is known by: that is added by the rules.
ASKED_DIRECTLY = ("A12_what_survives", "B2_no_mark", "B3_the_effects", "C12_a_step_of_which")
TestLosing = without(ASKED_DIRECTLY, suite(LosingBackend()))
TestSealed = suite(SealedBackend())
