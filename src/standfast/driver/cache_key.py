"""A key by which a provider finds the prompt it has cached: the same for what shares its beginning.

The SDK sends one by default, and what is cached costs less. What the key is made of names people (session ids are often
addresses), so the provider gets a digest of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from standfast.engine.run import Run
from standfast.llm.settings import ModelSettings

FIELD = "prompt_cache_key"


def with_cache_key(settings: ModelSettings, model: Any, run: Run, *, group_id: str | None) -> ModelSettings:
    """The settings with a key for this run's prompts, if the model wants one and the program has not set one."""
    wants = getattr(model, "wants_prompt_cache_key", None)
    said = (settings.extra_args, settings.extra_body)
    if wants is None or any(isinstance(one, Mapping) and FIELD in one for one in said) or not wants():
        return settings
    return replace(settings, extra_args={**(settings.extra_args or {}), FIELD: _key(run, group_id)})


def _key(run: Run, group_id: str | None) -> str:
    """Of the conversation, else the session, else the program's own group, else of this run alone."""
    owner, group = run.spec.owner, (group_id or "").strip()
    if owner.kind in ("conversation", "session") and owner.id:
        return _digest(owner.kind, owner.id)
    return _digest("group", group) if group else _digest("run", run.spec.run_id)


def _digest(kind: str, shared: str) -> str:
    return f"standfast:{kind}:{sha256(shared.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
