"""Make `isinstance(span_data, agents.FunctionSpanData)` hold where the OpenAI Agents SDK is imported beside standfast.

Processors of other packages import the SDK's classes and ask which of them they are given. Those are abstract base
classes, so ours are registered as virtual subclasses of theirs; copying every record into theirs was rejected, because
an edit of a span by one processor would be lost to the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType

PLACES = ("agents.tracing.span_data", "agents.tracing.spans", "agents.tracing.traces")

_known: ModuleType | None = None


def register_with_sdk(own: Iterable[tuple[str, type]]) -> None:
    """Register classes, by their names, as subclasses of the SDK's once the SDK is imported."""
    global _known
    sdk = sys.modules.get("agents.tracing")
    if sdk is _known or sdk is None or sdk.__name__ != "agents.tracing":  # under the alias it is ours
        return
    _known = sdk
    for name, kind in own:
        for place in PLACES:
            theirs = getattr(sys.modules.get(place), name, None)
            register = getattr(theirs, "register", None)
            if register is not None:
                register(kind)
