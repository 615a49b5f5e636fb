"""Application context beside a saved run: its JSON part, and the way back.

A run never holds the application's object, and nothing in a payload can name code to load. An object is therefore
loaded as its written form, a plain dict, unless the loading program converts it (`context_deserializer`) or brings one
(`context_override`). A loss is reported: with a warning, or, if `strict`, with an error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.context import RunContextWrapper, wrapper_of
from standfast._src.base.errors import ItemNotStorableError, RunStateError, UserError
from standfast._src.base.json_values import Item, encode
from standfast._src.base.logs import logger
from standfast._src.base.type_names import describe_type
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.append_log import NOT_OF_THE_TYPE, convert
from standfast._src.runs.engine.codec import BesideRun, SavedContext
from standfast._src.runs.engine.run import Run
from standfast._src.runs.loop.run_scope import usage_of

ContextSerializer = Callable[[Any], Mapping[str, Any]]
"""Function that makes JSON values of a context."""

ContextDeserializer = Callable[[Mapping[str, Any]], Any]
"""Function that makes a context of what a `ContextSerializer` returned."""

ContextOverride = Mapping[str, Any] | RunContextWrapper[Any]
"""Context to use in place of the saved one."""


def saved_context(context: object, serializer: ContextSerializer | None, strict: bool) -> SavedContext:
    """Return the context as JSON, with its way of writing; raise UserError if it cannot be written."""
    if serializer is not None:
        value = serializer(context)
        if not isinstance(value, Mapping):
            raise UserError(f"context_serializer returned {describe_type(value)}", "Return a mapping of JSON values.")
        return SavedContext("context_serializer", _json("what context_serializer returned", value))
    if context is None:
        return SavedContext("none", None)
    if isinstance(context, Mapping):
        return SavedContext("mapping", _json("the context", context))
    name = type(context).__name__
    if strict:
        raise UserError(
            f"a {name} as context cannot be restored without help",
            "Pass context_serializer= (and context_deserializer= when loading), or use a dict.",
        )
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return SavedContext("asdict", _json(name, dataclasses.asdict(context)), type(context).__qualname__)
    dump = getattr(context, "model_dump", None)
    if callable(dump):
        return SavedContext("model_dump", _json(name, dump(mode="json")), type(context).__qualname__)
    logger.warning("the run's context (%s) cannot be saved; pass context_override= when loading", name)
    return SavedContext("omitted", {}, type(context).__qualname__)


def _json(what: str, value: Mapping[str, Any]) -> Item:
    try:
        copied: Item = json.loads(encode(dict(value)))
    except ItemNotStorableError as error:
        raise UserError(
            f"{what} cannot be saved: {error.what}", "Pass context_serializer= that returns JSON values only."
        ) from None
    return copied


def read_saved_context(
    payload: Mapping[str, Any],
    run: Run,
    override: object,
    deserializer: ContextDeserializer | None,
    strict: bool,
) -> tuple[int, RunContextWrapper[Any]]:
    """The revision of a loaded run, and its context with usage and decisions; raises RunStateError or UserError."""
    try:
        beside, usage = (
            convert(payload, BesideRun),
            usage_of(run),
        )  # what was saved with each reply must be a usage, too
        if beside.usage is not None:
            usage = Usage()
            usage.add(Usage.from_json(beside.usage))
        book = ApprovalBook.from_decisions(beside.decisions)
    except (*NOT_OF_THE_TYPE, AttributeError, KeyError, UserError):
        raise RunStateError(
            "its revision, context, usage or decisions cannot be read", "Pass the payload unchanged."
        ) from None
    if override is None:
        override = _restore_context(beside.saved_context, deserializer, strict)
    elif isinstance(override, RunContextWrapper) and type(override) is not RunContextWrapper:
        raise UserError(
            f"context_override is {describe_type(override)}", "Pass the application's object, or a RunContextWrapper."
        )
    return beside.revision, wrap_context(override, usage, book)


def wrap_context(context: object, usage: Usage, book: ApprovalBook) -> RunContextWrapper[Any]:
    """Return a wrapper of this application object with a run's usage and decisions."""
    wrapper = wrapper_of(context)
    wrapper.usage, wrapper.approvals = usage, book
    return wrapper


def _restore_context(saved: SavedContext, deserializer: ContextDeserializer | None, strict: bool) -> Any:
    if saved.value is None or (deserializer is None and saved.via == "mapping"):
        return saved.value
    if deserializer is None:
        if strict:
            raise UserError(
                "the saved context needs help to be restored", "Pass context_override= or context_deserializer=."
            )
        logger.warning(
            "the run's context was restored as a plain dict; pass context_override= or context_deserializer="
        )
        return saved.value
    try:
        return deserializer(saved.value)
    except Exception as error:  # an application's function may raise anything
        raise UserError(
            f"context_deserializer raised {type(error).__name__}: the saved context cannot be restored",
            "Pass the deserializer that belongs to the serializer it was saved with, or context_override=.",
        ) from error
