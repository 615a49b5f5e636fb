"""Every public name, and where it lives: the one table that `import holdfast` resolves names from.

To make something public, write it with a docstring, add its name under its module in `PUBLIC`, and run
`./dev names`: that writes the `__init__` modules, the alias modules and `docs/reference/names.md`. Nothing here
imports anything, so `import holdfast` costs next to nothing and brings in no package that the program does not use.
"""

from __future__ import annotations

PUBLIC: dict[str, tuple[str, ...]] = {
    "errors": (
        "HoldfastError",
        "AgentsException",
        "CallerError",
        "ModelError",
        "StoreError",
        "InvalidLimitError",
        "InvalidSessionIdError",
        "InvalidNameError",
        "ItemNotStorableError",
        "SessionClosedError",
        "WrongLoopError",
        "AppendGapError",
        "NotFoundError",
        "AbilityMissingError",
        "SessionConflictError",
        "SessionBusyError",
        "LeaseLostError",
        "StoreTimeoutError",
        "OutcomeUnknownError",
        "StoreFullError",
        "StoreUnavailableError",
        "StoreReadOnlyError",
        "NotADatabaseError",
        "SchemaTooNewError",
        "CorruptRecordError",
        "UserError",
        "MaxTurnsExceeded",
        "ModelBehaviorError",
        "ModelRefusalError",
        "ModelTimeoutError",
        "SendOutcomeUnknownError",
        "ToolTimeoutError",
        "MCPToolCancellationError",
        "GuardrailTripped",
        "InputGuardrailTripwireTriggered",
        "OutputGuardrailTripwireTriggered",
        "ToolInputGuardrailTripwireTriggered",
        "ToolOutputGuardrailTripwireTriggered",
        "RunClaimedError",
        "RunStateError",
        "OwnerError",
        "ApprovalError",
        "ResponseFailedError",
        "StreamCutError",
        "ModelReplyError",
        "InvalidSettingError",
        "SettingTypeError",
        "CompactionRefusedError",
        "CompactionError",
        "PartialBatchError",
    ),
    "sessions.protocol": (
        "TResponseInputItem",
        "Session",
        "SessionABC",
        "SessionSettings",
        "Ability",
        "abilities",
        "Head",
        "Position",
        "Generation",
        "Page",
        "SessionInfo",
        "SessionPage",
        "CorruptRecord",
        "Lease",
        "CanAppend",
        "CanReplace",
        "CanRewind",
        "CanFork",
        "CanLease",
        "CanPage",
        "CanList",
        "CanReportCorrupt",
        "HasTimes",
    ),
    "sessions.memory": ("InMemorySession", "InMemoryStore"),
    "sessions.memory_runs": ("InMemoryRunStore",),
    "sessions.sqlite": ("SQLiteSession",),
    "items": (
        "InputItem",
        "MessageOutputItem",
        "ReasoningItem",
        "ToolSearchCallItem",
        "ToolSearchOutputItem",
        "HandoffCallItem",
        "HandoffOutputItem",
        "ToolOriginType",
        "ToolOrigin",
        "ToolCallItem",
        "ToolCallOutputItem",
        "MCPListToolsItem",
        "MCPApprovalRequestItem",
        "MCPApprovalResponseItem",
        "CompactionItem",
        "ToolApprovalItem",
        "RunItem",
        "ModelResponse",
        "ToolOutputText",
        "ToolOutputImage",
        "ToolOutputFileContent",
        "ItemHelpers",
    ),
    "usage": ("Usage",),
    "stream_events": (
        "RawResponsesStreamEvent",
        "RunItemStreamEvent",
        "AgentUpdatedStreamEvent",
        "StreamEvent",
    ),
    "models.interface": ("Model", "ModelProvider", "ModelTracing"),
    "models.settings": ("ModelSettings",),
    "models.retry": (
        "ModelRetryBackoffSettings",
        "ModelRetrySettings",
        "ModelRetryNormalizedError",
        "ModelRetryAdvice",
        "ModelRetryAdviceRequest",
        "RetryDecision",
        "RetryPolicyContext",
        "RetryPolicy",
    ),
    "models.policies": ("retry_policies",),
    "context": ("RunContextWrapper", "AgentHookContext", "ToolContext"),
    "guardrails": (
        "GuardrailFunctionOutput",
        "InputGuardrail",
        "InputGuardrailResult",
        "OutputGuardrail",
        "OutputGuardrailResult",
        "input_guardrail",
        "output_guardrail",
        "ToolGuardrailFunctionOutput",
        "ToolInputGuardrailData",
        "ToolOutputGuardrailData",
        "ToolInputGuardrail",
        "ToolOutputGuardrail",
        "ToolInputGuardrailResult",
        "ToolOutputGuardrailResult",
        "tool_input_guardrail",
        "tool_output_guardrail",
    ),
    "tools.function": (
        "FunctionTool",
        "FunctionToolResult",
        "function_tool",
        "default_tool_error_function",
        "tool_namespace",
        "ToolCaller",
        "FunctionToolCustomDataContext",
        "FunctionToolCustomDataExtractor",
    ),
    "tools.hosted": (
        "Tool",
        "FileSearchTool",
        "WebSearchTool",
        "CodeInterpreterTool",
        "ImageGenerationTool",
        "HostedMCPTool",
        "MCPToolApprovalRequest",
        "MCPToolApprovalFunction",
        "MCPToolApprovalFunctionResult",
        "ToolSearchTool",
        "ProviderTool",
    ),
    "tools.strict": ("ensure_strict_json_schema",),
    "tools.texts": ("ToolErrorFormatter", "ToolErrorFormatterArgs"),
    "agent": ("Agent", "AgentBase", "StopAtTools", "ToolsToFinalOutputFunction", "ToolsToFinalOutputResult"),
    "agent_tool": ("AgentToolStreamEvent",),
    "handoffs": (
        "Handoff",
        "handoff",
        "HandoffInputData",
        "HandoffInputFilter",
        "nest_handoff_history",
        "default_handoff_history_mapper",
        "get_conversation_history_wrappers",
        "set_conversation_history_wrappers",
        "reset_conversation_history_wrappers",
    ),
    "lifecycle": ("RunHooks", "AgentHooks", "RunHooksBase", "AgentHooksBase"),
    "output_type": ("AgentOutputSchema", "AgentOutputSchemaBase"),
    "prompts": ("Prompt", "DynamicPromptFunction", "GenerateDynamicPromptData"),
    "run_config": (
        "RunConfig",
        "ModelInputData",
        "CallModelData",
        "CallModelInputFilter",
        "SessionInputCallback",
        "ToolExecutionConfig",
        "ToolNotFoundBehavior",
        "ToolNameCollisionPolicy",
        "ReasoningItemIdPolicy",
        "OutputGuardrailBlockedMessageArgs",
        "OutputGuardrailBlockedMessageFormatter",
    ),
    "run_error_handlers": (
        "RunErrorDetails",
        "RunErrorData",
        "RunErrorHandler",
        "RunErrorHandlerInput",
        "RunErrorHandlerResult",
        "RunErrorHandlers",
    ),
    "models.openai_responses": ("OpenAIResponsesModel",),
    "models.openai_chat": ("OpenAIChatCompletionsModel",),
    "models.openai_provider": ("OpenAIProvider", "MultiProvider", "MultiProviderMap"),
    "models.openai_client": ("set_default_openai_key", "set_default_openai_client", "set_default_openai_api"),
    "moving": ("copy_history", "CopyReport", "NotCarried"),
    "repair": ("repair_history", "RepairReport", "BrokenItem"),
    "models.settle": ("ModelSettlement", "SendEvidence", "Settled"),
    "sessions.openai_conversations": ("OpenAIConversationsSession", "start_openai_conversations_session"),
    "sessions.compaction": ("OpenAIResponsesCompactionSession",),
    "sessions.compaction_rules": (
        "OpenAIResponsesCompactionArgs",
        "OpenAIResponsesCompactionAwareSession",
        "is_openai_responses_compaction_aware_session",
    ),
    "sessions.summarise": ("SummarisingSession",),
    "runner": ("Runner",),
    "driver.result": ("RunResult", "RunResultStreaming", "AgentToolInvocation"),
    "run_state": ("RunState", "CallRecord"),
    "engine.store": ("RunStore", "SavedRun", "RunSummary", "LogTail"),
}
"""Module (below `holdfast`) to the names it gives to `holdfast`."""

PACKAGES: tuple[str, ...] = ("sessions",)
"""Packages that offer the public names of their own modules too: `from holdfast.sessions import Session`."""

ALIASES: dict[str, str] = {
    "exceptions": "AgentsException InputGuardrailTripwireTriggered MaxTurnsExceeded ModelBehaviorError "
    "ModelRefusalError ModelTimeoutError OutputGuardrailTripwireTriggered RunErrorDetails "
    "ToolInputGuardrailTripwireTriggered ToolOutputGuardrailTripwireTriggered ToolTimeoutError UserError",
    "guardrail": "GuardrailFunctionOutput InputGuardrail InputGuardrailResult OutputGuardrail OutputGuardrailResult "
    "input_guardrail output_guardrail",
    "agent_output": "AgentOutputSchema AgentOutputSchemaBase",
    "model_settings": "ModelSettings",
    "result": "RunResult RunResultStreaming",
    "retry": "ModelRetryAdvice ModelRetryAdviceRequest ModelRetryBackoffSettings ModelRetryNormalizedError "
    "ModelRetrySettings RetryDecision RetryPolicy RetryPolicyContext retry_policies",
    "run": "CallModelData CallModelInputFilter ModelInputData RunConfig Runner",
    "run_context": "AgentHookContext RunContextWrapper",
    "strict_schema": "ensure_strict_json_schema",
    "tool": "CodeInterpreterTool FileSearchTool FunctionTool FunctionToolResult HostedMCPTool ImageGenerationTool Tool "
    "ToolOutputFileContent ToolOutputImage ToolOutputText WebSearchTool default_tool_error_function function_tool",
    "tool_context": "ToolContext",
    "tool_guardrails": "ToolGuardrailFunctionOutput ToolInputGuardrail ToolInputGuardrailData ToolInputGuardrailResult "
    "ToolOutputGuardrail ToolOutputGuardrailData ToolOutputGuardrailResult tool_input_guardrail tool_output_guardrail",
    "memory": "OpenAIConversationsSession OpenAIResponsesCompactionArgs OpenAIResponsesCompactionAwareSession "
    "OpenAIResponsesCompactionSession SQLiteSession Session SessionABC SessionInputCallback SessionSettings "
    "is_openai_responses_compaction_aware_session",
    "memory.session": "OpenAIResponsesCompactionArgs OpenAIResponsesCompactionAwareSession Session SessionABC "
    "is_openai_responses_compaction_aware_session",
    "memory.session_settings": "SessionSettings",
    "memory.sqlite_session": "SQLiteSession",
    "memory.openai_conversations_session": "OpenAIConversationsSession start_openai_conversations_session",
    "memory.openai_responses_compaction_session": "OpenAIResponsesCompactionSession",
    "memory.util": "SessionInputCallback",
    "extensions": "",
    "extensions.memory": "AdvancedSQLiteSession AsyncSQLiteSession DaprSession EncryptedSession MongoDBSession "
    "RedisSession SQLAlchemySession",
    "extensions.memory.advanced_sqlite_session": "AdvancedSQLiteSession",
    "extensions.memory.async_sqlite_session": "AsyncSQLiteSession",
    "extensions.memory.dapr_session": "DaprSession",
    "extensions.memory.encrypt_session": "EncryptedSession",
    "extensions.memory.mongodb_session": "MongoDBSession",
    "extensions.memory.redis_session": "RedisSession",
    "extensions.memory.sqlalchemy_session": "SQLAlchemySession",
}
"""Module paths that the OpenAI Agents SDK documents, to the names it has there. Programs that import them keep working
when `agents` becomes `holdfast`. They are real modules, written by `./dev names`, so that type checkers and editors see
them. A name that is not in `PUBLIC` yet says so when it is asked for, instead of looking like a typing error."""

KITS: tuple[str, ...] = ("conformance", "testing")
"""Packages for tests. Their public names are those of their own `__all__`; nothing here loads them."""

EXTRAS: dict[str, str] = {
    "openai": "openai",
    "starlette": "testing",
    "uvicorn": "testing",
    "hypothesis": "conformance",
    "pytest": "conformance",
    "pytest_asyncio": "conformance",
}
"""Third-party package to the extra of holdfast that installs it."""


def homes(module: str) -> dict[str, str]:
    """The names that lazy module `module` offers, each with the module it lives in (both below `holdfast`)."""
    everything = {name: home for home, names in PUBLIC.items() for name in names}
    if module == "":
        return everything
    if module in PACKAGES:
        return {name: home for name, home in everything.items() if home.startswith(f"{module}.")}
    return {name: everything[name] for name in ALIASES[module].split() if name in everything}


def planned(module: str) -> set[str]:
    """The names that an alias module will offer once they exist."""
    return set(ALIASES.get(module, "").split()) - homes(module).keys()
