"""Names of the OpenAI Agents SDK that standfast lacks, by kind, with the replacement.

A program that imports one of these names, or a module of one of these kinds, gets an error with the replacement at the
import. Nothing else may be missing: `tests/compat/test_names.py` reads the installed SDK and asks for every name of it.
Like `exports`, this file imports nothing that costs anything.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of missing names."""

    modules: tuple[str, ...]
    """Modules (below `standfast`) that are all about it, with everything below them."""

    names: str
    """Its names in other modules."""

    instead: str
    """What to do instead."""


ABSENT: dict[str, Kind] = {
    "computer use": Kind(
        ("computer",),
        "AsyncComputer Button Computer ComputerCreate ComputerDispose ComputerLike ComputerProvider ComputerT "
        "ComputerT_co ComputerT_contra ComputerTool ComputerToolCustomDataContext ComputerToolCustomDataExtractor "
        "ComputerToolSafetyCheckData Environment dispose_resolved_computers resolve_computer",
        "Offer what the computer should do as function tools.",
    ),
    "shell tools": Kind(
        (),
        "LocalShellCommandRequest LocalShellExecutor LocalShellTool ShellActionRequest ShellApprovalFunction "
        "ShellCallData ShellCallOutcome ShellCommandOutput ShellCommandRequest ShellExecutor "
        "ShellOnApprovalFunction ShellOnApprovalFunctionResult ShellResult ShellTool "
        "ShellToolContainerAutoEnvironment ShellToolContainerNetworkPolicy ShellToolContainerNetworkPolicyAllowlist "
        "ShellToolContainerNetworkPolicyDisabled ShellToolContainerNetworkPolicyDomainSecret "
        "ShellToolContainerReferenceEnvironment ShellToolContainerSkill ShellToolEnvironment "
        "ShellToolHostedEnvironment ShellToolInlineSkill ShellToolInlineSkillSource ShellToolLocalEnvironment "
        "ShellToolLocalSkill ShellToolSkillReference",
        "Write a function tool that runs the command, with needs_approval=True where a person should look first.",
    ),
    "patch tools": Kind(
        ("apply_diff", "editor"),
        "ApplyPatchApprovalFunction ApplyPatchEditor ApplyPatchOnApprovalFunction "
        "ApplyPatchOnApprovalFunctionResult ApplyPatchOperation ApplyPatchResult ApplyPatchTool "
        "ApplyPatchToolCustomDataContext ApplyPatchToolCustomDataExtractor apply_diff",
        "Write a function tool that takes the file and its new text.",
    ),
    "sandbox": Kind(
        ("extensions.sandbox", "sandbox", "testing.sandbox"),
        "InvalidSandboxStep SandboxAgent SandboxArchiveLimits SandboxCall SandboxCallMatcherError "
        "SandboxConcurrencyLimits SandboxRunConfig SandboxScriptError SandboxStepSpec ScriptedSandboxSession "
        "UnconsumedSandboxSteps UnexpectedSandboxCall scripted_sandbox_session",
        "Run commands in an environment of your own, from a function tool.",
    ),
    "codex": Kind(
        ("extensions.experimental.codex",),
        "codex",
        "Write a function tool that starts it as a child process.",
    ),
    "Responses API over a websocket": Kind(
        (),
        "OpenAIResponsesWSModel OpenAIResponsesWebSocketOptions ResponsesWebSocketError ResponsesWebSocketSession "
        "responses_websocket_session set_default_openai_responses_transport",
        "Use OpenAIProvider or OpenAIResponsesModel: HTTP connections stay open from run to run.",
    ),
    "voice pipelines": Kind(
        ("voice",),
        "AudioInput SingleAgentVoiceWorkflow StreamedAudioInput VoicePipeline VoicePipelineConfig VoiceWorkflowBase",
        "Turn speech into text before the run and the run's text into speech after it, or use standfast.realtime.",
    ),
    "sessions on MongoDB": Kind(
        ("extensions.memory.mongodb_session",),
        "MongoDBSession",
        "Use PostgresSession, RedisSession or SQLiteSession, or the SDK's as a plain session.",
    ),
    "sessions on Dapr": Kind(
        ("extensions.memory.dapr_session",),
        "DAPR_CONSISTENCY_EVENTUAL DAPR_CONSISTENCY_STRONG DaprSession",
        "Use PostgresSession, RedisSession or SQLiteSession, or the SDK's as a plain session.",
    ),
    "hosted multi-agent beta": Kind(
        ("extensions.experimental.hosted_multi_agent",),
        "hosted_multi_agent",
        "Give agents to each other as tools or handoffs: the program then sees and keeps what each of them does.",
    ),
    "reasoning content over Chat Completions": Kind(
        ("models.reasoning_content_replay",),
        "InternalChatCompletionMessage InternalToolCall",
        "Use the Responses API, whose reasoning items are kept and sent back; other servers' is left out.",
    ),
    "machinery of the SDK's own loop": Kind(
        ("agent_tool_state", "models.chatcmpl_stream_handler", "tracing.model_tracing"),
        "ReattachedTrace TraceState create_trace_for_run "
        "ensure_function_tool_supports_responses_only_features ensure_tool_choice_supports_backend "
        "get_function_tool_responses_only_features get_model_tracing_impl "
        "has_required_tool_search_surface has_responses_tool_search_surface include_task_and_turn_spans "
        "is_required_tool_search_surface is_responses_tool_search_surface prune_orphaned_tool_search_tools "
        "reattach_trace validate_responses_programmatic_tool_calling_configuration "
        "validate_responses_tool_search_configuration with_function_tool_failure_error_handler",
        "It is no part of that package's documented use; hooks, filters and a Model of your own reach the same places.",
    ),
}
"""Each kind of thing that is not there."""


def absent(module: str, name: str) -> str | None:
    """Return the reason why `module` lacks a name of the OpenAI Agents SDK, and the replacement; None for any other
    name.
    """
    for kind, about in ABSENT.items():
        if name in about.names.split():
            return f"standfast has no {kind}, so there is no {name}. {about.instead}"
    return absent_module(f"{module}.{name}".lstrip("."))


def absent_module(module: str) -> str | None:
    """Return the reason why a module below `standfast` is missing, and the replacement; None for any other module."""
    for kind, about in ABSENT.items():
        if any(module == place or module.startswith(f"{place}.") for place in about.modules):
            return f"standfast has no {kind}, so there is no standfast.{module}. {about.instead}"
    return None
