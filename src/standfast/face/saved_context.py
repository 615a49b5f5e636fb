"""The application's context beside a saved run: what of it is JSON, and how it comes back.

A run never holds the application's object, and nothing in a payload can name code to load. So an object comes back as
what was written of it, a plain dict, unless the program that loads it says how to make one (`context_deserializer`)
or brings one (`context_override`). What was lost on the way is said: with a warning, or, if `strict`, with an error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from standfast.agents.approvals import ApprovalBook, decision_from_json
from standfast.agents.context import RunContextWrapper, wrapper_of
from standfast.driver.run_scope import usage_of
from standfast.engine.run import Run
from standfast.ground.errors import ItemNotStorableError, RunStateError, UserError
from standfast.ground.jsonvalue import Item, encode
from standfast.ground.log_helpers import logger
from standfast.words.usage import Usage

ContextSerializer = Callable[[Any], Mapping[str, Any]]
ContextDeserializer = Callable[[Mapping[str, Any]], Any]
WAYS = ("none", "mapping", "asdict", "model_dump", "omitted", "context_serializer")
"""How a context may have been written down."""


def context_to_json(context: object, serializer: ContextSerializer | None, strict: bool) -> Item:
    """The context as JSON, with the way it was written; raises UserError where that cannot be."""
    if serializer is not None:
        value = serializer(context)
        if not isinstance(value, Mapping):
            raise UserError(f"context_serializer returned a {type(value).__name__}", "Return a mapping of JSON values.")
        return {"via": "context_serializer", "value": _json("what context_serializer returned", value)}
    if context is None:
        return {"via": "none", "value": None}
    if isinstance(context, Mapping):
        return {"via": "mapping", "value": _json("the context", context)}
    name = type(context).__name__
    if strict:
        raise UserError(
            f"a {name} as context cannot be restored without help",
            "Pass context_serializer= (and context_deserializer= when loading), or use a dict.",
        )
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return {"via": "asdict", "class": type(context).__qualname__, "value": _json(name, dataclasses.asdict(context))}
    dump = getattr(context, "model_dump", None)
    if callable(dump):
        return {"via": "model_dump", "class": type(context).__qualname__, "value": _json(name, dump(mode="json"))}
    logger.warning("the run's context (%s) cannot be saved; pass context_override= when loading", name)
    return {"via": "omitted", "class": type(context).__qualname__, "value": {}}


def _json(what: str, value: Mapping[str, Any]) -> Item:
    try:
        copied: Item = json.loads(encode(dict(value)))
    except ItemNotStorableError as error:
        raise UserError(
            f"{what} cannot be saved: {error.what}", "Pass context_serializer= that returns JSON values only."
        ) from None
    return copied


def wrapper_from(
    payload: Mapping[str, Any],
    run: Run,
    override: object,
    deserializer: ContextDeserializer | None,
    strict: bool,
) -> RunContextWrapper[Any]:
    """The context of a loaded run, with its usage and decisions; raises RunStateError or UserError if it has none."""
    usage, book = _usage(payload, run), _book(payload)
    if override is not None:
        if isinstance(override, RunContextWrapper) and type(override) is not RunContextWrapper:
            raise UserError(
                f"context_override is a {type(override).__name__}",
                "Pass the application's object, or a RunContextWrapper.",
            )
        return wrap_context(override, usage, book)
    via, value = _saved(payload)
    if via == "none":
        return RunContextWrapper(None, usage, approvals=book)
    if deserializer is not None:
        return RunContextWrapper(_restored(deserializer, value), usage, approvals=book)
    if via != "mapping":
        if strict:
            raise UserError(
                "the saved context needs help to be restored", "Pass context_override= or context_deserializer=."
            )
        logger.warning(
            "the run's context was restored as a plain dict; pass context_override= or context_deserializer="
        )
    return RunContextWrapper(dict(value), usage, approvals=book)


def wrap_context(context: object, usage: Usage, book: ApprovalBook) -> RunContextWrapper[Any]:
    """A wrapper of this application object that knows what a run has used and what was decided about it."""
    wrapper = wrapper_of(context)
    wrapper.usage, wrapper.approvals = usage, book
    return wrapper


def _restored(deserializer: ContextDeserializer, value: Item) -> Any:
    try:
        return deserializer(value)
    except Exception as error:  # an application's function may raise anything
        raise UserError(
            f"context_deserializer raised {type(error).__name__}: the saved context cannot be restored",
            "Pass the deserializer that belongs to the serializer it was saved with, or context_override=.",
        ) from error


def _saved(payload: Mapping[str, Any]) -> tuple[str, Item]:
    saved = payload.get("saved_context", {"via": "none", "value": None})
    via, value = (saved.get("via"), saved.get("value")) if isinstance(saved, dict) else (None, None)
    if via not in WAYS or not (value is None if via == "none" else isinstance(value, dict)):
        raise RunStateError("its context is not one of ours", "Pass the payload unchanged.")
    return via, value or {}


def _usage(payload: Mapping[str, Any], run: Run) -> Usage:
    found = payload.get("usage")
    try:
        usage = usage_of(run)  # also what was saved with each reply must be a usage
        if found is not None:
            usage = Usage()
            usage.add(Usage.from_json(found))
        return usage
    except (TypeError, KeyError, AttributeError, ValueError):
        raise RunStateError("its usage cannot be read", "Pass the payload unchanged.") from None


def _book(payload: Mapping[str, Any]) -> ApprovalBook:
    decisions = payload.get("decisions", [])
    try:
        return ApprovalBook.of([decision_from_json(one) for one in decisions])
    except (TypeError, KeyError, AttributeError, ValueError, UserError):
        raise RunStateError("its decisions cannot be read", "Pass the payload unchanged.") from None
