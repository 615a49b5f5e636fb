"""Parts of `examples/voice` that have tests of their own: its files are no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "voice"


def _load(name: str) -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


_phone, real_speech = _load("loopback_phone"), _load("real_speech")
LoopbackPhone, Mark = _phone.LoopbackPhone, _phone.Mark
