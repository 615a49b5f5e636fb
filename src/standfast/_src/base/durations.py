"""Validation of durations in seconds."""

from __future__ import annotations

import math

from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.base.type_names import describe_type


def check_seconds(name: str, value: object, *, is_ttl: bool = False) -> float:
    """Return a valid number of seconds, or raise. A time to live is finite and above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingTypeError(f"{name} is {describe_type(value)}", "Give a number of seconds.")
    if math.isnan(value) or value < 0 or (is_ttl and (value == 0 or math.isinf(value))):
        wanted = "a finite number of seconds above zero" if is_ttl else "a number of seconds, zero or more"
        raise InvalidSettingError(f"{name} is {value!r}", f"Give {wanted}.")
    return float(value)
