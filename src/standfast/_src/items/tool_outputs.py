"""Tool outputs besides text: text, image and file parts, and their form for the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.json_values import Item
from standfast._src.items.fields import read
from standfast._src.items.pydantic_methods import PydanticMethods


@dataclass(kw_only=True)
class ToolOutputText(PydanticMethods):
    """Text for the model, as a part of a tool's output."""

    type: Literal["text"] = "text"
    text: str


class ToolOutputTextDict(TypedDict):
    """`ToolOutputText` as a plain dict, which a tool may return as well."""

    type: Literal["text"]
    text: str


@dataclass(kw_only=True)
class ToolOutputImage(PydanticMethods):
    """An image for the model, by URL (a data URL too) or by the id of an uploaded file."""

    type: Literal["image"] = "image"
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto"] | None = None

    def __post_init__(self) -> None:
        if self.image_url is None and self.file_id is None:
            raise InvalidSettingError("an image without a source", "Give image_url or file_id.")


class ToolOutputImageDict(TypedDict):
    """`ToolOutputImage` as a plain dict, which a tool may return as well."""

    type: Literal["image"]
    image_url: NotRequired[str]
    file_id: NotRequired[str]
    detail: NotRequired[Literal["low", "high", "auto"]]


@dataclass(kw_only=True)
class ToolOutputFileContent(PydanticMethods):
    """A file for the model: its data in base64, a URL, or the id of an uploaded file."""

    type: Literal["file"] = "file"
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None

    def __post_init__(self) -> None:
        if self.file_data is None and self.file_url is None and self.file_id is None:
            raise InvalidSettingError("a file without content", "Give file_data, file_url or file_id.")


class ToolOutputFileContentDict(TypedDict):
    """`ToolOutputFileContent` as a plain dict, which a tool may return as well."""

    type: Literal["file"]
    file_data: NotRequired[str]
    file_url: NotRequired[str]
    file_id: NotRequired[str]
    filename: NotRequired[str]


# kind: the fields of which one is required, then the optional fields
_PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ()),
    "image": (("image_url", "file_id"), ("detail",)),
    "file": (("file_data", "file_url", "file_id"), ("filename",)),
}


def tool_output(value: object) -> str | list[Item]:
    """Convert a tool's return value for the model: to text, or to a list of text, image and file parts.

    A single part, or a list of only such parts, is structured; any other value becomes `str(value)`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        parts = [_output_part(part) for part in value]
        return str(value) if not parts or None in parts else [part for part in parts if part is not None]
    part = _output_part(value)
    return str(value) if part is None else [part]


def _output_part(value: object) -> Item | None:
    kind = None if isinstance(value, str) else read(value, "type")
    if not isinstance(kind, str) or kind not in _PARTS:
        return None
    one_of, others = _PARTS[kind]
    found = {name: inner for name in (*one_of, *others) if (inner := read(value, name)) is not None}
    if not any(name in found for name in one_of) or not all(isinstance(inner, str) for inner in found.values()):
        return None
    return {"type": f"input_{kind}", **found}
