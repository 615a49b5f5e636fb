"""JSON schemas in the form of a provider's strict mode: every object closed, every property required.

`ensure_strict_json_schema` is a pure function: it gives a new schema and leaves the old one alone, and a schema that is
already strict comes back equal. What cannot be closed without changing its meaning (a dict with free keys) is refused
with the way out. Schemas may come from strangers (an MCP server), so the work and the depth are bounded.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from standfast._src.base.errors import UserError
from standfast._src.base.type_names import describe_type

Schema = dict[str, Any]

NODE_COUNT_MAX = 100_000
# References that fan out can make a small schema expand without end; no real one comes near this.

DEPTH_MAX = 100
# Well inside Python's recursion limit, far beyond any real schema.

_WAY_OUT = "Use strict_mode=False (or strict_json_schema=False) for it, or declare the properties one by one."
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


def ensure_strict_json_schema(schema: Schema) -> Schema:
    """A strict schema that accepts the same objects, with optional properties made required; the input is untouched.

    Raises UserError for a schema that strict mode cannot express.
    """
    if not schema:
        return {"additionalProperties": False, "type": "object", "properties": {}, "required": []}
    strict = _Normaliser(schema).node(schema, 0, ())
    if not isinstance(strict, dict):  # a root of `true` or a number is no schema of arguments
        raise UserError(f"a JSON schema must be an object, not {describe_type(strict)}", "Give a dict.")
    if "anyOf" in strict:
        raise UserError("the root of a strict schema cannot be a union", f"Wrap it in an object. {_WAY_OUT}")
    kind = strict.get("type")
    if isinstance(kind, list) and "object" in kind:
        if kind != ["object"]:
            raise UserError(f"the root of a strict schema cannot be one of {kind}", "Make it a plain object.")
        strict["type"] = "object"
    return strict


class _Normaliser:
    """Normalisation of a schema. `inlining` names the references being expanded, so that a cycle ends."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.left = NODE_COUNT_MAX

    def node(self, schema: object, depth: int, inlining: tuple[str, ...]) -> object:
        if not isinstance(schema, dict):
            return schema  # `true` and `false` are schemas too
        self._spend(depth)
        if "$ref" in schema:
            return self._reference(schema, depth, inlining)
        flat = self._flatten(schema, depth)
        if flat is not None:
            return self.node(flat, depth + 1, inlining)
        strict = _close_object(schema)
        for key in ("$defs", "definitions", "properties"):
            members = strict.get(key)
            if isinstance(members, dict):
                strict[key] = {name: self.node(member, depth + 1, inlining) for name, member in members.items()}
        if isinstance(strict.get("items"), dict):
            strict["items"] = self.node(strict["items"], depth + 1, inlining)
        for key in ("anyOf", "allOf", "prefixItems"):
            if isinstance(strict.get(key), list):
                strict[key] = [self.node(member, depth + 1, inlining) for member in strict[key]]
        return strict

    def _spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise UserError("a JSON schema expands without end", "Look for references that refer to each other.")
        if depth > DEPTH_MAX:
            raise UserError(f"a JSON schema is nested deeper than {DEPTH_MAX} levels", "Flatten it.")

    def _reference(self, schema: Schema, depth: int, inlining: tuple[str, ...]) -> object:
        """Keep a bare reference; replace a reference with siblings by its target, as strict mode requires."""
        ref = schema["$ref"]
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        if not siblings or not isinstance(ref, str):
            return dict(schema)
        if ref in inlining:
            return {"$ref": ref}  # the schema contains itself: its description here is the price of an end
        target = self._target(ref)
        if target is None:
            raise UserError(f"a JSON schema refers to {ref!r}, which is not in it", "Put it under $defs.")
        return self.node({**target, **siblings}, depth + 1, (*inlining, ref))

    def _flatten(self, schema: Schema, depth: int) -> Schema | None:
        """Merge a schema with a single `allOf` into one schema; None if not applicable or impossible."""
        members = schema.get("allOf")
        if not isinstance(members, list) or len(members) != 1 or not isinstance(members[0], dict):
            return None
        member: Schema | None = members[0]
        if member and set(member) == {"$ref"}:
            member = self._target(member["$ref"])
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        if member is None or (set(member) & set(rest)) - _ANNOTATIONS:
            return None
        return {**member, **rest}

    def _target(self, ref: object) -> Schema | None:
        if not isinstance(ref, str) or not ref.startswith("#"):
            return None
        found: Any = self.root
        for part in ref[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                return None
            found = found[key]
        return found if isinstance(found, dict) else None


def _close_object(schema: Schema) -> Schema:
    """Copy a node: an object closed with all its properties required, `oneOf` as `anyOf`."""
    strict = dict(schema)
    properties = strict.get("properties")
    if "type" not in strict and isinstance(properties, dict):
        strict["type"] = "object"
    kind = strict.get("type")
    free = strict.get("additionalProperties", False)
    if free is not False:
        raise UserError("an object with free keys has no strict schema", _WAY_OUT)
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        strict["additionalProperties"] = False
    if isinstance(properties, dict):
        strict["required"] = list(properties)
    if isinstance(strict.get("oneOf"), list):
        strict["anyOf"] = [*strict.get("anyOf", ()), *strict.pop("oneOf")]
        strict.pop("discriminator", None)
    if "default" in strict and strict["default"] is None:
        del strict["default"]  # the property may be null and is required: a default of null says nothing
    return strict
