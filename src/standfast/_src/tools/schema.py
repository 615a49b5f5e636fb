"""JSON schema of a Python function's arguments, and the way back from a model's arguments to a call.

The schema comes from the signature: types, defaults, `Annotated` and `Field`, with descriptions from the docstring.
Arguments are read straight from the model's JSON by the same description, so the function gets values that match the
schema. Pydantic does both, and is imported when the first schema is made, never by `import standfast`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import ModelBehaviorError, UserError
from standfast._src.tools.docstrings import DocstringStyle, Documentation, read_docstring
from standfast._src.tools.strict_schema import ensure_strict_json_schema

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict, ValidationError
    from pydantic.fields import FieldInfo

TypeForm: TypeAlias = Any
"""Whatever may stand as an annotation: a class, a union, `Annotated`. Before PEP 747 Python has no word for that."""

_EMPTY = inspect.Parameter.empty


@dataclass
class FuncSchema:
    """Description of a function for a model, with the parser of its arguments."""

    name: str
    description: str | None
    params_pydantic_model: type[BaseModel]
    params_json_schema: dict[str, Any]
    signature: inspect.Signature
    takes_context: bool = False
    strict_json_schema: bool = True
    return_annotation: Any = _EMPTY
    field_names: dict[str, str] = field(default_factory=dict)
    """Parameters whose field has another name, because pydantic reserves theirs."""

    def to_call_args(self, data: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        """Convert validated arguments to positional and keyword arguments."""
        values = data.__dict__
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        by_name = False
        for name, parameter in self._parameters():
            value = values.get(self.field_names.get(name, name))
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional.extend(value or ())
                by_name = True
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._refuse_doubles(name, value or {})
                keywords.update(value or {})
            elif by_name or parameter.kind is parameter.KEYWORD_ONLY:
                keywords[name] = value
            else:
                positional.append(value)
        return positional, keywords

    def read(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """Parse JSON arguments to those of a call; raise ModelBehaviorError, without the values, if invalid."""
        from pydantic import ValidationError

        try:
            # An empty text is how some models call a tool without parameters.
            data = self.params_pydantic_model.__pydantic_validator__.validate_json(arguments or "{}")
        except ValidationError as error:
            raise unreadable_arguments(self.name, error) from None  # the cause would carry the values
        return self.to_call_args(data)

    def _parameters(self) -> list[tuple[str, inspect.Parameter]]:
        parameters = list(self.signature.parameters.items())
        return parameters[1:] if self.takes_context else parameters

    def _refuse_doubles(self, name: str, keywords: dict[str, Any]) -> None:
        named = {key for key, p in self._parameters() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        doubles = sorted(named & set(keywords))
        if doubles:
            raise ModelBehaviorError(
                f"Invalid input for tool {self.name}: {', '.join(doubles)} given as a parameter and inside {name!r}",
                "Give each argument once.",
            )


def unreadable_arguments(tool_name: str, error: ValidationError) -> ModelBehaviorError:
    """Build the error about a model's arguments: places and expectations, never values."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return ModelBehaviorError(f"Invalid JSON input for tool {tool_name}", "Send one JSON object as the arguments.")
    if not details[0]["loc"] and details[0]["type"] in ("model_type", "dataclass_type", "dict_type"):
        return ModelBehaviorError(
            f"Invalid JSON input for tool {tool_name}: expected a JSON object", "Send one JSON object as the arguments."
        )
    faults = validation_faults(error)
    return ModelBehaviorError(f"Invalid input for tool {tool_name}: {faults}", "Correct the arguments.")


def validation_faults(error: ValidationError) -> str:
    """List all faults as `place: expectation`, without the values, which may be private."""
    faults = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part) for part in fault["loc"]) or "input"
        # The texts of custom validators are the application's and often quote the value: their type has to do.
        own = fault["type"] not in ("value_error", "assertion_error") and "custom" not in fault["type"]
        faults.append(f"{place}: {fault['msg'] if own else 'not accepted'} ({fault['type']})")
    return "; ".join(faults)


# --- making a schema -------------------------------------------------------------------------------------------------


def function_schema(
    func: Callable[..., Any],
    docstring_style: DocstringStyle | None = None,
    name_override: str | None = None,
    description_override: str | None = None,
    use_docstring_info: bool = True,
    strict_json_schema: bool = True,
) -> FuncSchema:
    """Build the schema of a function's arguments, without a first parameter that is a context wrapper.

    Raises UserError for a signature that no schema can describe.
    """
    from pydantic import BaseModel, ConfigDict, create_model
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

    documentation = _documentation_of(func, docstring_style) if use_docstring_info else Documentation()
    signature = inspect.signature(func)
    name = name_override or _name_of(func)
    hints = _hints_of(func, name)
    parameters = list(signature.parameters.values())
    takes_context = bool(parameters) and _is_context(hints.get(parameters[0].name))
    fields: dict[str, Any] = {}
    field_names: dict[str, str] = {}
    has_free_keywords = False
    for parameter in parameters[1:] if takes_context else parameters:
        annotation = hints.get(parameter.name, Any)
        if _is_context(annotation):
            raise UserError(
                f"{name!r} takes the run's context as its parameter {parameter.name!r}",
                "Make the context the first parameter.",
            )
        has_free_keywords = has_free_keywords or parameter.kind is parameter.VAR_KEYWORD
        _refuse_what_has_no_schema(name, parameter, annotation, strict_json_schema)
        described = _build_field(parameter, annotation, documentation.parameters.get(parameter.name))
        field_name = _field_name(parameter.name, signature, BaseModel)
        if field_name != parameter.name:
            field_names[parameter.name] = field_name
            described = _set_alias(described, parameter.name)
        fields[field_name] = described
    config = ConfigDict(
        extra="forbid" if has_free_keywords else "ignore",  # flat keywords beside **kwargs would vanish unnoticed
        protected_namespaces=(),
        arbitrary_types_allowed=False,
    )
    try:
        model = create_model(f"{name}_args", __config__=config, **fields)
        json_schema = model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
        raise _without_schema(name, fields, config) from error
    return FuncSchema(
        name=name,
        description=description_override or documentation.description,
        params_pydantic_model=model,
        params_json_schema=ensure_strict_json_schema(json_schema) if strict_json_schema else json_schema,
        signature=signature,
        takes_context=takes_context,
        strict_json_schema=strict_json_schema,
        return_annotation=hints.get("return", signature.return_annotation),
        field_names=field_names,
    )


def _without_schema(name: str, fields: dict[str, Any], config: ConfigDict) -> UserError:
    """Build the error about a parameter without a JSON schema."""
    from pydantic import create_model
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

    for parameter, described in fields.items():
        try:
            create_model("one", __config__=config, **{parameter: described}).model_json_schema()
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
            kind = getattr(described[0], "__name__", described[0])
            what = f"the parameter {parameter!r} of {name!r} is {kind}, which no JSON schema describes"
            break
    else:
        what = f"no JSON schema describes the parameters of {name!r}"
    return UserError(
        what,
        "Use types that JSON has, a dataclass, a TypedDict or a pydantic model; take other objects from the context.",
    )


def _documentation_of(func: Callable[..., Any], style: DocstringStyle | None) -> Documentation:
    """Return the documentation of a function; for a callable object its class's, with the parameters of `__call__`."""
    said = read_docstring(inspect.getdoc(func), style)
    if not _is_object(func):
        return said
    about_call = read_docstring(inspect.getdoc(type(func).__call__), style)
    return Documentation(said.description or about_call.description, about_call.parameters or said.parameters)


def _is_object(func: Callable[..., Any]) -> bool:
    return not inspect.isroutine(func) and not isinstance(func, type | functools.partial)


def _hints_of(func: Callable[..., Any], name: str) -> dict[str, Any]:
    """Resolve the annotations to types. Text annotations may name locals of the enclosing function or, for a callable
    object, names of its class.
    """
    called = func if inspect.isroutine(func) else type(func).__call__
    owners = () if inspect.isroutine(func) else reversed(type(func).__mro__)
    inside = {word: one for owner in owners for word, one in (*vars(owner).items(), (owner.__name__, owner))}
    try:
        try:
            return get_type_hints(called, include_extras=True)
        except NameError:
            return get_type_hints(called, localns=_locals_around(called) | inside, include_extras=True)
    except NameError as error:
        raise UserError(
            f"an annotation of {name!r} names {error.name!r}, which is not defined",
            "Import it at run time (not under TYPE_CHECKING), or define it before the tool.",
        ) from error


def _locals_around(func: Callable[..., Any]) -> dict[str, Any]:
    """Return the locals of the enclosing functions that are still running."""
    around = set(func.__qualname__.split(".")[:-1])
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name in around and frame.f_globals is func.__globals__:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def _name_of(func: Callable[..., Any]) -> str:
    own: str | None = getattr(func, "__name__", None)
    if own:
        return own
    name = type(func).__name__
    if _USABLE_NAME.fullmatch(name) is None:
        raise UserError(
            f"the class name {name!r} cannot be a tool's: providers take up to 64 ASCII letters, digits, '_' and '-'",
            "Give function_tool a name_override.",
        )
    return name


_USABLE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _is_context(annotation: TypeForm) -> bool:
    plain = _without_metadata(annotation)[0]
    kind = get_origin(plain) or plain
    return isinstance(kind, type) and issubclass(kind, RunContextWrapper) and kind in (RunContextWrapper, ToolContext)


def _refuse_what_has_no_schema(name: str, parameter: inspect.Parameter, annotation: TypeForm, strict: bool) -> None:
    if parameter.kind is parameter.VAR_KEYWORD and strict:
        raise UserError(
            f"{name!r} takes **{parameter.name}, and a strict schema has no free keys",
            "Set strict_mode=False (strict_json_schema=False for function_schema), or name the parameters.",
        )
    plain = _without_metadata(annotation)[0]
    if parameter.kind is parameter.VAR_POSITIONAL and get_origin(plain) is tuple:
        members = get_args(plain)
        if len(members) != 2 or members[1] is not Ellipsis:
            raise UserError(
                f"*{parameter.name} of {name!r} is annotated with a tuple of fixed length",
                "An annotation of *args is the type of each argument: use tuple[T, ...] or T.",
            )


def _without_metadata(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    metadata: tuple[Any, ...] = ()
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata = (*metadata, *more)
    return annotation, metadata


def _build_field(parameter: inspect.Parameter, annotation: TypeForm, documented: str | None) -> tuple[Any, FieldInfo]:
    """Build the pydantic field of a parameter: type, default and description.

    The docstring's description has precedence over a plain string in `Annotated`; both have precedence over a
    `Field`'s.
    """
    from pydantic.fields import FieldInfo

    plain, metadata = _without_metadata(annotation)
    description = documented or next((extra for extra in metadata if isinstance(extra, str)), None)
    extras = tuple(extra for extra in metadata if not isinstance(extra, str))
    value: Any = Annotated[(plain, *extras)] if extras else plain
    if parameter.kind is parameter.VAR_POSITIONAL:
        return list[value], _field(list, description)
    if parameter.kind is parameter.VAR_KEYWORD:
        return dict[str, value], _field(dict, description)
    if isinstance(parameter.default, FieldInfo):
        info = FieldInfo.from_annotated_attribute(value, parameter.default)
    elif parameter.default is _EMPTY:
        info = FieldInfo.from_annotation(value)
    else:
        info = FieldInfo.from_annotated_attribute(value, parameter.default)
    if description is not None:
        info.description = description
    return plain, info  # not `value`: pydantic would take its validators a second time, and run them twice


def _field(default_factory: Callable[[], Any], description: str | None) -> FieldInfo:
    from pydantic import Field

    made: FieldInfo = Field(default_factory=default_factory, description=description)
    return made


def _field_name(name: str, signature: inspect.Signature, base: type[Any]) -> str:
    """Return a name allowed by pydantic: not private, and not used by its models."""
    if not name.startswith("_") and not hasattr(base, name) and name not in ("model_config",):
        return name
    candidate = f"field{name}" if name.startswith("_") else f"{name}_"
    while candidate in signature.parameters or hasattr(base, candidate):
        candidate += "_"
    return candidate


def _set_alias(described: tuple[Any, FieldInfo], name: str) -> tuple[Any, FieldInfo]:
    annotation, info = described
    info.alias = info.validation_alias = info.serialization_alias = name
    info.alias_priority = 2
    info.title = info.title or name.strip("_").replace("_", " ").title()
    return annotation, info
