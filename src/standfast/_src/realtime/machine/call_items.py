"""Items of a voice conversation for an application, with the SDK's names and fields.

The SDK makes them with pydantic, which no pure layer here needs for anything else. The usual operations of programs
(attributes, `model_dump`, `model_copy`, `model_validate`, equality, unknown fields) work here with sixty lines, and
pydantic takes them as fields of models. Items are never changed in place: an update is a new item.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform

from standfast._src.base.type_names import describe_type
from standfast._src.items.pydantic_methods import PydanticMethods, build_schema


@dataclass_transform(kw_only_default=True, eq_default=True)
class Record(PydanticMethods):
    """A typed JSON object: known fields with defaults, unknown fields kept."""

    _defaults: ClassVar[dict[str, Any]] = {}
    _required: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        names = [name for name in inspect.get_annotations(cls) if not name.startswith("_")]
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in names if name in cls.__dict__}}
        cls._required = (*cls._required, *(name for name in names if name not in cls.__dict__))

    def __init__(self, **fields: Any) -> None:
        missing = [name for name in self._required if name not in fields]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        self.__dict__.update(self._defaults)
        self.__dict__.update(fields)

    @classmethod
    def __get_pydantic_core_schema__(cls, source_type: Any, handler: Any) -> Any:
        return build_schema(cls, cls._defaults, lambda item: item.model_dump(), handler)

    def model_dump(self, *, exclude_none: bool = False, mode: str = "python", **_: object) -> dict[str, Any]:
        """Return the item and its parts as a JSON object."""
        return {
            name: _dump_value(value, exclude_none)
            for name, value in self.__dict__.items()
            if not (exclude_none and value is None)
        }

    @classmethod
    def model_validate(cls, value: Any, **options: Any) -> Self:
        """Build an item from a JSON object; return an item of this class unchanged."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise TypeError(f"{describe_type(value)} is no {cls.__name__}")
        fields = dict(value)
        if isinstance(fields.get("content"), list):
            fields["content"] = [part_of(part, str(fields.get("role", "user"))) for part in fields["content"]]
        return cls(**fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]  # holds lists

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


def _dump_value(value: object, exclude_none: bool) -> object:
    if isinstance(value, Record):
        return value.model_dump(exclude_none=exclude_none)
    if isinstance(value, list):
        return [_dump_value(one, exclude_none) for one in value]
    return value


class InputText(Record):
    """Text typed by a user, or a system message."""

    type: Literal["input_text"] = "input_text"
    text: str | None = None


class InputAudio(Record):
    """Speech of a user; `audio` is filled only by an application."""

    type: Literal["input_audio"] = "input_audio"
    audio: str | None = None
    transcript: str | None = None


class InputImage(Record):
    """Picture from a user."""

    type: Literal["input_image"] = "input_image"
    image_url: str | None = None
    detail: str | None = None


class AssistantText(Record):
    """Text written by the model."""

    type: Literal["text"] = "text"
    text: str | None = None


class AssistantAudio(Record):
    """Speech of the model."""

    type: Literal["audio"] = "audio"
    audio: str | None = None
    transcript: str | None = None


class SystemMessageItem(Record):
    """A message from the application to the model."""

    item_id: str
    previous_item_id: str | None = None
    type: Literal["message"] = "message"
    role: Literal["system"] = "system"
    content: list[InputText]


class UserMessageItem(Record):
    """Something a user said or typed."""

    item_id: str
    previous_item_id: str | None = None
    type: Literal["message"] = "message"
    role: Literal["user"] = "user"
    content: list[InputText | InputAudio | InputImage]


class AssistantMessageItem(Record):
    """Something the model said or wrote."""

    item_id: str
    previous_item_id: str | None = None
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    content: list[AssistantText | AssistantAudio]


class RealtimeToolCallItem(Record):
    """A tool call and, once available, its output."""

    item_id: str
    previous_item_id: str | None = None
    call_id: str | None
    type: Literal["function_call"] = "function_call"
    status: Literal["in_progress", "completed"]
    arguments: str
    name: str
    output: str | None = None


RealtimeMessageItem: TypeAlias = SystemMessageItem | UserMessageItem | AssistantMessageItem
"""A message of any role."""

RealtimeItem: TypeAlias = SystemMessageItem | UserMessageItem | AssistantMessageItem | RealtimeToolCallItem
"""An item of a voice conversation."""


class RealtimeResponse(Record):
    """A reply of the model with its messages."""

    id: str
    output: list[RealtimeMessageItem]


MESSAGES: dict[str, type[SystemMessageItem] | type[UserMessageItem] | type[AssistantMessageItem]] = {
    "system": SystemMessageItem,
    "user": UserMessageItem,
    "assistant": AssistantMessageItem,
}
_PARTS: dict[str, type[Record]] = {
    "input_text": InputText,
    "input_audio": InputAudio,
    "input_image": InputImage,
    "text": AssistantText,
    "output_text": AssistantText,
    "audio": AssistantAudio,
    "output_audio": AssistantAudio,
}


def part_of(part: object, role: str) -> Record | None:
    """Build a content part from any spelling of the wire; None for an unknown part."""
    if isinstance(part, Record):
        return part
    if not isinstance(part, dict):
        return None
    kind = _PARTS.get(part.get("type", ""))
    if kind is None or (role == "assistant") != (kind in (AssistantText, AssistantAudio)):
        return None
    return kind(**{**part, "type": kind._defaults["type"]})


def call_item_of(raw: dict[str, Any], *, previous_item_id: str | None = None) -> RealtimeToolCallItem:
    """A call of the wire as an item."""
    return RealtimeToolCallItem(
        item_id=raw.get("id") or "",
        previous_item_id=previous_item_id,
        call_id=raw.get("call_id"),
        status="in_progress",
        arguments=raw.get("arguments") or "",
        name=raw.get("name") or "",
    )


def item_of(
    raw: dict[str, Any], *, previous_item_id: str | None = None, status: str | None = None
) -> RealtimeItem | None:
    """A message or call of the wire as an item; None for anything else."""
    if raw.get("type") == "function_call":
        return call_item_of(raw, previous_item_id=previous_item_id)
    if raw.get("type") != "message":
        return None
    role = raw.get("role") or "assistant"
    kind = MESSAGES.get(role)
    if kind is None:
        return None
    parts = [part_of(part, role) for part in raw.get("content") or ()]
    fields: dict[str, Any] = {
        "item_id": raw.get("id") or "",
        "previous_item_id": previous_item_id,
        "content": [part for part in parts if part is not None],
    }
    if role == "assistant":
        fields["status"] = status or raw.get("status")
    return kind(**fields)
