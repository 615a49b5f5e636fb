"""Read a call's arguments ahead of the call, without running code of the application (C16).

A policy function sees the arguments as the model wrote them; the tool gets the values that pydantic makes of them. A
policy that is right about the declared types is wrong about other ones: `"5000"` for an `int` is not greater than 100.
So the values are made first, and a function is asked only where they are exactly what the model wrote.

Validators, models and default factories of the application are code that may act. A schema with one of them is not
read ahead: the values are then unknown until the call runs. The parameters of such a tool that need none of that code
are still compared, one by one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from standfast._src.base.errors import ModelBehaviorError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from standfast._src.tools.schema import FuncSchema

ArgumentMismatch = Literal["ask", "refuse"]
"""Handling of a call whose values differ from what the model wrote, where a function decides."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The values a tool would get, compared with the text of its model.

    `exact`: the same. `changed`: converted, left out or filled in. `unknown`: only the application's own code can tell.
    `invalid`: the tool would get nothing, because the arguments do not fit. `parts` names certain differences, also of
    unknown values.
    """

    kind: Literal["exact", "changed", "unknown", "invalid"]
    values: str | None = None
    """The values as JSON text; the model's own text where they are exact; None where they are not known."""

    parts: tuple[str, ...] = ()
    """The parameters, or unknown keys, that make the difference."""

    @property
    def differs(self) -> bool:
        """True if the tool would certainly get other values than the model wrote."""
        return self.kind == "changed" or bool(self.parts)


Preparer = Callable[[str], Prepared]
"""Reads the text of a call's arguments ahead of the call."""

EXACT, UNKNOWN, INVALID = Prepared("exact"), Prepared("unknown"), Prepared("invalid")


def preparer_of(schema: FuncSchema) -> Preparer:
    """Return the function to read arguments of this schema before a call."""
    model = schema.params_pydantic_model
    # Made when a call first needs it, for most tools have no policy. None: the whole model is data.
    known: list[dict[str, Any] | None] = []

    def prepare(arguments: str) -> Prepared:
        if not known:
            known.append(None if _is_data_only_model(model) else _data_only_parameters(model))
        return _prepare(schema, arguments) if known[0] is None else _prepare_partly(model, known[0], arguments)

    return prepare


def compare(written: str, values: dict[str, Any]) -> Prepared:
    """Compare values for a tool with the arguments as written by the model."""
    try:
        # An empty text is how some models call a tool without parameters.
        sent = plain_object(written or "{}")
        if is_same_json(values, sent, is_root=True):
            return Prepared("exact", written)
        text, known = json.dumps(values, ensure_ascii=False), sent or {}
        return Prepared("changed", text, tuple(key for key in values | known if not _is_same_at(key, values, known)))
    except RecursionError:
        return UNKNOWN


def _prepare(schema: FuncSchema, arguments: str) -> Prepared:
    from pydantic import ValidationError

    model = schema.params_pydantic_model
    try:
        data = model.__pydantic_validator__.validate_json(arguments or "{}")
        schema.to_call_args(data)
    except (ValidationError, ModelBehaviorError):
        return INVALID
    except RecursionError:
        return UNKNOWN
    keys = _keys_of(model)
    if keys is None:
        return UNKNOWN
    return compare(arguments, {keys[name]: value for name, value in data.__dict__.items()})


def _prepare_partly(model: type[BaseModel], validators: dict[str, Any], arguments: str) -> Prepared:
    """Compare the parameters with a validator. Values of the remaining parameters are unknown."""
    from pydantic import ValidationError
    from pydantic_core import from_json

    keys, sent = _keys_of(model), plain_object(arguments or "{}")
    try:
        from_json(arguments or "{}")
        if keys is None or sent is None:  # a key is written twice, or a number is not finite
            return Prepared("unknown", parts=tuple(model.model_fields))
        parts = [key for key in sent if key not in keys.values()]
        for name, key in keys.items():
            if key not in sent and model.model_fields[name].is_required():
                return INVALID
            if key not in sent:
                parts.append(key)
            elif name in validators:
                value = validators[name].validate_json(json.dumps(sent[key]))
                parts += [] if is_same_json(value, sent[key]) else [key]
    except (ValidationError, ValueError):
        return INVALID
    except RecursionError:
        return Prepared("unknown", parts=tuple(model.model_fields))
    return Prepared("unknown", parts=tuple(parts))


def _keys_of(model: type[BaseModel]) -> dict[str, str] | None:
    """Return the text's key for each parameter; None if a parameter has several places."""
    keys: dict[str, str] = {}
    for name, info in model.model_fields.items():
        alias = info.validation_alias if info.validation_alias is not None else info.alias
        if alias is not None and not isinstance(alias, str):
            return None  # which place counts cannot be shown
        keys[name] = alias or name
    return keys


# --- reading and comparing JSON --------------------------------------------------------------------------------------


def plain_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object with finite numbers and without a repeated key; None for any other text.

    Parsers disagree about the winner of two equal keys: a tool or server may read another value than a policy.
    """

    def refuse(text: str) -> NoReturn:
        raise ValueError(text)

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refuse(text)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        return found if len(found) == len(pairs) else refuse("a key twice")

    try:
        parsed = json.loads(text, parse_constant=refuse, parse_float=finite, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def is_same_json(one: object, other: object, *, is_root: bool = False) -> bool:
    """Compare two JSON values, types and order of keys included; the order of parameters (`is_root`) means nothing.

    Not by `==`: 1, 1.0 and True are equal in Python.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys() if is_root else list(one) != list(other):
            return False
        return all(is_same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one.hex() == other.hex()  # -0.0 is not 0.0
    return one == other


def _is_same_at(key: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    return key in one and key in other and is_same_json(one[key], other[key])


# --- schemas without code --------------------------------------------------------------------------------------------


def _is_data_only_model(model: type[BaseModel]) -> bool:
    """Return whether validation with this generated model runs only pydantic's code. Unknown parts count
    as other code.
    """
    from pydantic_core import SchemaValidator

    core: Any = model.__pydantic_core_schema__
    # Plugins of pydantic wrap the validator, outside of its schema.
    if type(model.__pydantic_validator__) is not SchemaValidator:
        return False
    if core.get("type") != "model" or core.get("custom_init") or core.get("post_init"):
        return False
    try:
        return _is_data_only(core["schema"])
    except RecursionError:
        return False


def _data_only_parameters(model: type[BaseModel]) -> dict[str, Any]:
    """Return validators of the parameters without application code."""
    from pydantic_core import SchemaValidator

    core: Any = model.__pydantic_core_schema__
    core = core["schema"] if core.get("type") == "definitions" else core
    fields = core.get("schema", {}).get("fields", {}) if core.get("type") == "model" else {}
    try:
        return {name: SchemaValidator(field["schema"]) for name, field in fields.items() if _is_data_only(field)}
    except RecursionError:
        return {}


def _is_data_only(core: Any) -> bool:
    match core["type"]:
        case "any" | "none" | "bool" | "int" | "float":
            return True
        case "str":
            # Python's own engine can take for ever over a pattern; Rust's, the default, cannot.
            return isinstance(core.get("pattern", ""), str) and core.get("regex_engine") in (None, "rust-regex")
        case "literal":
            return all(value is None or type(value) in (bool, int, str) for value in core["expected"])
        case "nullable" | "model-field":
            return _is_data_only(core["schema"])
        case "list":
            return _is_data_only(core.get("items_schema", {"type": "any"}))
        case "dict":
            return all(_is_data_only(core.get(part, {"type": "any"})) for part in ("keys_schema", "values_schema"))
        case "union":
            return all(isinstance(choice, dict) and _is_data_only(choice) for choice in core["choices"])
        case "model-fields":
            return not core.get("extras_schema") and all(map(_is_data_only, core["fields"].values()))
        case "default":
            # Another default is copied by its own methods. `list` and `dict` make those of *args and **kwargs.
            made = core.get("default_factory")
            is_plain = (made is None or made is list or made is dict) and _is_json(core.get("default"))
            return is_plain and _is_data_only(core["schema"])
        case _:
            return False


def _is_json(value: object) -> bool:
    # By `type`, also of members: a subclass brings methods of its own.
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)
