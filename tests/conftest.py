"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow machine is not a failure: no test may depend on speed. Everything else of Hypothesis stays as it is, and a
# failing example is printed so that it can be replayed elsewhere.
settings.register_profile(
    "holdfast", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("holdfast")
