"""Wire format of the Responses API. Sends nothing.

`request` turns everything the runner hands to a model (instructions, items, settings, tools, handoffs, output type,
the ids of a server-owned conversation) into the arguments of one Responses request. What is None is left out, so that
the service's own default applies. Items of kinds that this release does not know pass through as they are; removed is
only what the service refuses and no service gave: placeholder ids, other providers' notes, a status that is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from standfast._src.base.errors import SettingTypeError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import to_json_item, to_plain
from standfast._src.models.interface import ModelRequest
from standfast._src.models.model_settings import ModelSettings, ToolChoice
from standfast._src.models.tool_definitions import OfferedFunction, OfferedHandoff, OutputSchema, is_function

PLACEHOLDER_ID = "__fake_id__"
"""Id written by the OpenAI Agents SDK for a provider without ids; a history written by it may contain some."""

OUTPUT_NAME = "final_output"

_HOSTED_CHOICES = frozenset(
    {
        "file_search",
        "web_search",
        "web_search_preview",
        "computer_use_preview",
        "image_generation",
        "code_interpreter",
        "mcp",
        "programmatic_tool_calling",
    }
)
_PROGRAMS = "programmatic_tool_calling"
_OWN_KIND_CHOICES = frozenset({"shell", "apply_patch", "local_shell", "computer"})
_CACHE_AND_STATE = ("truncation", "store", "metadata", "prompt_cache_retention", "prompt_cache_options")
WITHOUT_EFFECT = ("frequency_penalty", "presence_penalty")
"""Settings that this API has no place for."""

_PLAIN_SETTINGS = ("temperature", "top_p", *_CACHE_AND_STATE, "reasoning", "context_management")


def request(model: str | None, asked: ModelRequest) -> dict[str, Any]:
    """The keyword arguments of `responses.create`. `model=None` leaves the choice to the prompt."""
    if asked.previous_response_id and asked.conversation_id:
        raise UserError(
            "a request names both a previous response and a conversation",
            "Use one of previous_response_id and conversation_id: a conversation has one owner.",
        )
    settings, prompt = asked.model_settings, asked.prompt
    check_programs(asked.tools, settings.tool_choice, by_prompt=prompt is not None)
    tool_list, includes = tools_param(asked.tools, asked.handoffs)
    choice = tool_choice_param(settings.tool_choice, asked.tools, asked.handoffs)
    by_prompt = prompt is not None and not tool_list
    said: dict[str, Any] = {
        "model": model,
        "instructions": asked.system_instructions,
        "input": input_param(asked.input),
        "previous_response_id": asked.previous_response_id or None,
        "conversation": asked.conversation_id or None,
        "prompt": to_plain(prompt),
        # An empty list would take away the tools that a prompt brings along.
        "tools": None if by_prompt else tool_list or None,
        "tool_choice": None if by_prompt and isinstance(choice, dict) else choice,
        "parallel_tool_calls": settings.parallel_tool_calls if tool_list or prompt is not None else None,
        "text": text_param(asked.output_schema, settings.verbosity),
        "include": _include(includes, settings),
        "max_output_tokens": settings.max_tokens,
        "top_logprobs": settings.top_logprobs,
        **{name: to_plain(getattr(settings, name)) for name in _PLAIN_SETTINGS},
    }
    arguments = {name: value for name, value in said.items() if value is not None}
    return with_extras(arguments, settings)


def with_extras(arguments: dict[str, Any], settings: ModelSettings) -> dict[str, Any]:
    """Add the settings' `extra_*` to the arguments; refuse a duplicate instead of overriding."""
    doubled = sorted(set(settings.extra_args or ()) & set(arguments))
    if doubled:
        raise SettingTypeError(
            f"extra_args says again what the request already says: {', '.join(doubled)}",
            "Set it in one place: the model setting of that name, or extra_args.",
        )
    extras = {
        "extra_headers": settings.extra_headers,
        "extra_query": settings.extra_query,
        "extra_body": settings.extra_body,
    }
    said = {name: value for name, value in extras.items() if value is not None}
    return {**arguments, **(settings.extra_args or {}), **said}


# --- items -----------------------------------------------------------------------------------------------------------


def input_param(value: str | Iterable[Any]) -> list[Item]:
    """Convert input to the service's form; a str is a user message."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    cleaned = (_clean_item(item) for item in value)
    return [item for item in cleaned if item is not None]


def _clean_item(value: object) -> Item | None:
    item = to_json_item(value)
    foreign = item.pop("provider_data", None)
    if foreign and item.get("type") == "reasoning":
        return None  # another provider's thoughts: neither readable nor checkable by this one
    if item.get("id") == PLACEHOLDER_ID or ("id" in item and item["id"] in (None, "")):
        del item["id"]
    if "status" in item and item["status"] is None:
        del item["status"]
    return item


# --- tools -----------------------------------------------------------------------------------------------------------


def tools_param(tools: Sequence[Any], handoffs: Sequence[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the tools of a request, handoffs last, and the `include` values they need."""
    converted: list[dict[str, Any]] = []
    namespaces: dict[str, dict[str, Any]] = {}
    includes: list[str] = []
    for tool in tools:
        namespace = getattr(tool, "namespace", None)
        if namespace:
            _into_namespace(converted, namespaces, tool, namespace)
        else:
            converted.append(tool_param(tool))
        includes += _includes_of(tool)
    return [*converted, *(handoff_param(handoff) for handoff in handoffs)], includes


def check_programs(tools: Sequence[Any], choice: ToolChoice, *, by_prompt: bool) -> None:
    """Raise UserError if tools for programs are offered without programs, or programs without anything to call."""
    offered = [tool for tool in tools if getattr(tool, "name", None) == _PROGRAMS]
    callable_by_programs = [tool for tool in tools if "programmatic" in _callers(tool)]
    if len(offered) > 1:
        raise UserError("an agent has more than one ProgrammaticToolCallingTool", "Give it one.")
    if offered:
        if not callable_by_programs and not by_prompt and not any(_is_search(tool) for tool in tools):
            raise UserError(
                "an agent lets the model write programs, and none of its tools may be called by one",
                "Give a tool allowed_callers=['programmatic'], or drop ProgrammaticToolCallingTool.",
            )
        return
    alone = next((tool.name for tool in callable_by_programs if "direct" not in _callers(tool)), None)
    if alone is not None or choice == _PROGRAMS:
        what = f"tool {alone!r} may be called by programs only" if alone else f"tool_choice is {choice!r}"
        raise UserError(f"{what}, and the agent lets the model write none", "Add ProgrammaticToolCallingTool().")


def _callers(tool: object) -> Sequence[str]:
    config = getattr(tool, "tool_config", None)
    by_config = config.get("allowed_callers") if isinstance(config, Mapping) else None
    return getattr(tool, "allowed_callers", None) or by_config or ()


def _is_search(tool: object) -> bool:
    return getattr(tool, "name", None) == "tool_search"


def _into_namespace(
    converted: list[dict[str, Any]], namespaces: dict[str, dict[str, Any]], tool: object, name: str
) -> None:
    description = getattr(tool, "namespace_description", None) or ""
    if name not in namespaces:
        namespaces[name] = {"type": "namespace", "name": name, "description": description, "tools": []}
        converted.append(namespaces[name])
    if namespaces[name]["description"] != description:
        raise UserError(
            f"tools of namespace {name!r} describe it differently", "Give all of them one description of the namespace."
        )
    namespaces[name]["tools"].append(tool_param(tool))


def tool_param(tool: object) -> dict[str, Any]:
    """Convert a tool to the service's form: by its own description, as a function, or as a hosted tool."""
    describe = getattr(tool, "to_wire", None)
    if callable(describe):
        return dict(describe())
    if is_function(tool):
        return function_param(tool)
    config = getattr(tool, "tool_config", None)
    if isinstance(config, Mapping):
        return _with_callers(dict(to_plain(config)), tool)
    if isinstance(tool, Mapping) and "type" in tool:
        return dict(to_plain(tool))
    return _hosted_param(tool)


def function_param(tool: OfferedFunction) -> dict[str, Any]:
    """A function tool."""
    param: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": to_plain(tool.params_json_schema),
        "strict": bool(getattr(tool, "strict_json_schema", False)),
    }
    if getattr(tool, "defer_loading", False):
        param["defer_loading"] = True
    output_schema = getattr(tool, "output_json_schema", None)
    if output_schema is not None:
        param["output_schema"] = to_plain(output_schema)
    return _with_callers(param, tool)


def handoff_param(handoff: OfferedHandoff) -> dict[str, Any]:
    """Convert a handoff to a function, its form for the model."""
    return {
        "type": "function",
        "name": handoff.tool_name,
        "description": handoff.tool_description,
        "parameters": to_plain(handoff.input_json_schema),
        "strict": bool(getattr(handoff, "strict_json_schema", False)),
    }


def _with_callers(param: dict[str, Any], tool: object) -> dict[str, Any]:
    callers = getattr(tool, "allowed_callers", None)
    return param if callers is None else {**param, "allowed_callers": to_plain(callers)}


_HOSTED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "web_search": (
        "filters",
        "user_location",
        "search_context_size",
        "external_web_access",
        "search_content_types",
        "image_settings",
    ),
    "file_search": ("vector_store_ids", "max_num_results", "ranking_options", "filters"),
    "tool_search": ("description", "execution", "parameters"),
    "shell": ("environment",),
    "local_shell": (),
    "apply_patch": (),
    "computer": (),
    "programmatic_tool_calling": (),
}
_HOSTED_ALIASES: Mapping[str, str] = {"web_search_preview": "web_search", "computer_use_preview": "computer"}


def _hosted_param(tool: object) -> dict[str, Any]:
    name = getattr(tool, "name", None)
    kind = _HOSTED_ALIASES.get(str(name), name)
    fields = _HOSTED_FIELDS.get(str(kind))
    if fields is None:
        raise UserError(
            f"{describe_type(tool)} is not a tool the Responses API knows",
            "Use a function tool, or give the tool a `tool_config` dict with the service's own description of it.",
        )
    # Zero and an empty filter mean "not said" to the SDK whose tools these are.
    said = {field: to_plain(getattr(tool, field, None)) for field in fields}
    param: dict[str, Any] = {"type": kind, **{field: value for field, value in said.items() if value}}
    if kind == "web_search" and said["external_web_access"] is False:
        param["external_web_access"] = False
    if kind == "shell":
        param["environment"] = {"type": "local", **(param.get("environment") or {})}
    return _with_callers(param, tool)


def _includes_of(tool: object) -> list[str]:
    if getattr(tool, "include_search_results", False):
        return ["file_search_call.results"]
    if "image" in (getattr(tool, "search_content_types", None) or ()):
        return ["web_search_call.results"]
    return []


def _include(includes: Iterable[str], settings: ModelSettings) -> list[str] | None:
    wanted = [*includes, *(settings.response_include or ())]
    if settings.top_logprobs is not None:
        wanted.append("message.output_text.logprobs")
    return list(dict.fromkeys(wanted)) or None


def tool_choice_param(
    choice: ToolChoice | Mapping[str, Any], tools: Sequence[Any] = (), handoffs: Sequence[Any] = ()
) -> str | dict[str, Any] | None:
    """The service's form of a tool choice; a name is a function's unless only a hosted tool is called so."""
    if choice is None or choice in ("auto", "required", "none"):
        return choice
    if isinstance(choice, Mapping):
        return dict(choice)
    if not isinstance(choice, str):  # an MCPToolChoice, ours or the SDK's
        return {"type": "mcp", "server_label": choice.server_label, "name": choice.name}
    functions = {tool.name for tool in tools if is_function(tool)}
    functions |= {handoff.tool_name for handoff in handoffs}
    if choice in functions:
        return {"type": "function", "name": choice}
    if any(getattr(tool, "type", None) == "custom" and tool.name == choice for tool in tools):
        return {"type": "custom", "name": choice}
    kinds = {_HOSTED_ALIASES.get(str(name), name) for name in (getattr(tool, "name", None) for tool in tools)}
    if choice in _HOSTED_CHOICES or (choice in _OWN_KIND_CHOICES and choice in kinds):
        return {"type": choice}
    return {"type": "function", "name": choice}


def text_param(output_schema: OutputSchema | None, verbosity: str | None) -> dict[str, Any] | None:
    """Return the format of the answer: schema and verbosity, or None for the service's default."""
    text: dict[str, Any] = {}
    if output_schema is not None and not output_schema.is_plain_text():
        text["format"] = {
            "type": "json_schema",
            "name": OUTPUT_NAME,
            "schema": output_schema.json_schema(),
            "strict": output_schema.is_strict_json_schema(),
        }
    if verbosity is not None:
        text["verbosity"] = verbosity
    return text or None
