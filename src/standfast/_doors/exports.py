"""Every public name, and where it lives: the one table that `import standfast` resolves names from.

To make something public, write it with a docstring, add its name under its module in `PUBLIC`, and run
`./dev names`: that writes the `__init__` modules, the alias modules and `docs/reference/names.md`. Nothing here
imports anything, so `import standfast` costs next to nothing and brings in no package that the program does not use.
"""

from __future__ import annotations

PUBLIC: dict[str, tuple[str, ...]] = {
    "ground.errors": (
        "StandfastError",
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
        "SealKeyError",
        "SealBrokenError",
        "SessionErasedError",
        "ReadBudgetError",
        "StoreTimeoutError",
        "OutcomeUnknownError",
        "StoreFullError",
        "StoreUnavailableError",
        "StoreReadOnlyError",
        "StoreNotFoundError",
        "UnknownSchemeError",
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
        "MCPServerError",
        "GuardrailTripped",
        "InputGuardrailTripwireTriggered",
        "OutputGuardrailTripwireTriggered",
        "ToolInputGuardrailTripwireTriggered",
        "ToolOutputGuardrailTripwireTriggered",
        "RunClaimedError",
        "UnfinishedRunError",
        "RunStateError",
        "OwnerError",
        "ApprovalError",
        "AlreadyDecidedError",
        "ResponseFailedError",
        "StreamCutError",
        "ModelReplyError",
        "InvalidSettingError",
        "SettingTypeError",
        "CompactionRefusedError",
        "CompactionError",
        "PartialBatchError",
        "RealtimeStateError",
        "ConnectionLostError",
        "ConnectionRefusedByServerError",
        "SlowConsumerError",
        "CloseTimeoutError",
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
    "sessions.records": (
        "Record",
        "RecordPage",
        "Hit",
        "SearchPage",
        "Holder",
        "Origin",
        "RequestCost",
        "RunUsage",
        "CanReadRecords",
        "CanWatch",
        "CanSearch",
        "KnowsHolder",
        "KnowsOrigin",
        "KeepsUsage",
    ),
    "operators.opening": ("open_store", "register_store"),
    "operators.store": (
        "Store",
        "Layout",
        "StoreFacts",
        "StoreCounts",
        "StoreUsage",
        "SessionSummary",
        "SessionListing",
        "RunListing",
        "WaitingCall",
    ),
    "operators.run_view": ("RunView", "CallView", "DecisionView"),
    "backends.memory.session": ("InMemorySession", "InMemoryStore"),
    "backends.memory.runs": ("InMemoryRunStore",),
    "backends.sqlite.session": ("SQLiteSession",),
    "backends.sqlite.async_session": ("AsyncSQLiteSession",),
    "backends.redis.session": ("RedisSession",),
    "backends.postgres.session": ("PostgresSession",),
    "backends.sqlalchemy.session": ("SQLAlchemySession",),
    "backends.sealed.session": ("EncryptedSession",),
    "backends.sealed.keys": ("ErasureReceipt", "SessionKeys"),
    "backends.sealed.key_file": ("KeyFile",),
    "words.items": (
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
        "ItemHelpers",
    ),
    "words.tool_outputs": (
        "ToolOutputText",
        "ToolOutputTextDict",
        "ToolOutputImage",
        "ToolOutputImageDict",
        "ToolOutputFileContent",
        "ToolOutputFileContentDict",
    ),
    "words.usage": ("Usage",),
    "words.stream_events": (
        "RawResponsesStreamEvent",
        "RunItemStreamEvent",
        "AgentUpdatedStreamEvent",
        "StreamEvent",
    ),
    "llm.interface": ("Model", "ModelProvider", "ModelTracing"),
    "llm.settings": ("ModelSettings",),
    "llm.retry": (
        "ModelRetryBackoffSettings",
        "ModelRetrySettings",
        "ModelRetryNormalizedError",
        "ModelRetryAdvice",
        "ModelRetryAdviceRequest",
        "RetryDecision",
        "RetryPolicyContext",
        "RetryPolicy",
    ),
    "agents.retry_policies": ("retry_policies",),
    "agents.context": ("RunContextWrapper", "AgentHookContext", "ToolContext", "TContext"),
    "agents.guardrails": (
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
        "WebSearchToolImageSettings",
        "CodeInterpreterTool",
        "ImageGenerationTool",
        "ImageGenerationToolConfig",
        "HostedMCPTool",
        "MCPToolApprovalRequest",
        "MCPToolApprovalFunction",
        "MCPToolApprovalFunctionResult",
        "ToolSearchTool",
        "ProviderTool",
    ),
    "tools.strict": ("ensure_strict_json_schema",),
    "tools.texts": ("ToolErrorFormatter", "ToolErrorFormatterArgs"),
    "agents.agent": ("Agent", "AgentBase", "StopAtTools", "ToolsToFinalOutputFunction", "ToolsToFinalOutputResult"),
    "agents.as_tool": ("AgentToolStreamEvent",),
    "agents.handoffs": (
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
    "agents.hooks": ("RunHooks", "AgentHooks", "RunHooksBase", "AgentHooksBase"),
    "agents.output_type": ("AgentOutputSchema", "AgentOutputSchemaBase"),
    "agents.prompts": ("Prompt", "DynamicPromptFunction", "GenerateDynamicPromptData"),
    "agents.run_config": (
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
    "agents.error_handlers": (
        "RunErrorDetails",
        "RunErrorData",
        "RunErrorHandler",
        "RunErrorHandlerInput",
        "RunErrorHandlerResult",
        "RunErrorHandlers",
    ),
    "providers.responses": ("OpenAIResponsesModel",),
    "providers.chat": ("OpenAIChatCompletionsModel",),
    "providers.provider": ("OpenAIProvider", "MultiProvider", "MultiProviderMap"),
    "providers.client": ("set_default_openai_key", "set_default_openai_client", "set_default_openai_api"),
    "plain.copying": ("copy_history", "CopyReport", "NotCarried"),
    "face.moving": ("move_to_conversation", "move_to_session", "MoveReport", "MoveInterruptedError"),
    "plain.repairing": ("repair_history", "RepairReport", "BrokenItem"),
    "llm.settlement": ("ModelSettlement", "SendEvidence", "Settled"),
    "backends.conversations": ("OpenAIConversationsSession", "start_openai_conversations_session"),
    "backends.compaction.responses": ("OpenAIResponsesCompactionSession",),
    "sessions.compaction_rules": (
        "OpenAIResponsesCompactionArgs",
        "OpenAIResponsesCompactionAwareSession",
        "is_openai_responses_compaction_aware_session",
    ),
    "backends.compaction.summary": ("SummarisingSession",),
    "face.runner": ("Runner",),
    "driver.result": ("RunResult", "RunResultStreaming"),
    "driver.run_scope": ("AgentToolInvocation", "UnfinishedRun"),
    "face.run_state": ("RunState", "CallRecord"),
    "engine.run_store": ("RunStore", "SavedRun", "RunSummary", "LogTail"),
    "face.repl": ("run_demo_loop",),
    "face.logs": ("enable_verbose_stdout_logging",),
    "telemetry.switch": ("set_tracing_disabled",),
    "telemetry.spans": (
        "Trace",
        "trace",
        "Span",
        "custom_span",
        "get_current_trace",
        "gen_trace_id",
        "gen_span_id",
        "flush_traces",
        "set_tracing_export_api_key",
        "add_trace_processor",
        "set_trace_processors",
        "set_trace_provider",
    ),
}
"""Module (below `standfast`) to the names it gives to `standfast`."""

BEHIND_DOORS: dict[str, tuple[str, ...]] = {
    "agents.handoff_prompt": ("RECOMMENDED_PROMPT_PREFIX", "prompt_with_handoff_instructions"),
    "agents.handoffs": ("remove_all_tools",),
    "agents.model_defaults": ("get_default_model_settings",),
    "agents.run_config": ("DEFAULT_MAX_TURNS",),
    "tools.docstrings": ("DocstringStyle",),
    "tools.function": ("tool",),
    "tools.schema": ("FuncSchema", "function_schema"),
    "words.items": ("TResponseOutputItem",),
    "talk.items": (
        "InputText",
        "InputAudio",
        "InputImage",
        "AssistantText",
        "AssistantAudio",
        "SystemMessageItem",
        "UserMessageItem",
        "AssistantMessageItem",
        "RealtimeToolCallItem",
        "RealtimeMessageItem",
        "RealtimeItem",
        "RealtimeResponse",
    ),
    "talk.model_events": (
        "RealtimeConnectionStatus",
        "RealtimeModelErrorEvent",
        "RealtimeModelToolCallEvent",
        "RealtimeModelAudioEvent",
        "RealtimeModelAudioInterruptedEvent",
        "RealtimeModelAudioDoneEvent",
        "RealtimeModelInputAudioTranscriptionCompletedEvent",
        "RealtimeModelInputAudioTimeoutTriggeredEvent",
        "RealtimeModelTranscriptDeltaEvent",
        "RealtimeModelOutputTextDeltaEvent",
        "RealtimeModelItemUpdatedEvent",
        "RealtimeModelItemDeletedEvent",
        "RealtimeModelConnectionStatusEvent",
        "RealtimeModelEndOfStreamEvent",
        "RealtimeModelTurnStartedEvent",
        "RealtimeModelCachedTokensDetails",
        "RealtimeModelInputTokensDetails",
        "RealtimeModelOutputTokensDetails",
        "RealtimeModelUsageEvent",
        "RealtimeModelTurnEndedEvent",
        "RealtimeModelOtherEvent",
        "RealtimeModelExceptionEvent",
        "RealtimeModelRawServerEvent",
        "RealtimeModelEvent",
    ),
    "talk.model_inputs": (
        "RealtimeModelRawClientMessage",
        "RealtimeModelInputTextContent",
        "RealtimeModelInputImageContent",
        "RealtimeModelUserInputMessage",
        "RealtimeModelUserInput",
        "RealtimeModelSendRawMessage",
        "RealtimeModelSendUserInput",
        "RealtimeModelSendAudio",
        "RealtimeModelSendToolOutput",
        "RealtimeModelSendInterrupt",
        "RealtimeModelSendSessionUpdate",
        "RealtimeModelSendEvent",
    ),
    "talk.settings": (
        "RealtimeModelName",
        "RealtimeAudioFormat",
        "RealtimeReasoningEffort",
        "RealtimeCustomVoice",
        "RealtimeVoice",
        "RealtimeClientMessage",
        "RealtimeInputAudioTranscriptionConfig",
        "RealtimeInputAudioNoiseReductionConfig",
        "RealtimeTurnDetectionConfig",
        "RealtimeAudioInputConfig",
        "RealtimeAudioOutputConfig",
        "RealtimeAudioConfig",
        "RealtimeReasoningConfig",
        "RealtimeModelTracingConfig",
        "RealtimeSessionModelSettings",
        "RealtimeUserInputText",
        "RealtimeUserInputImage",
        "RealtimeUserInputMessage",
        "RealtimeUserInput",
        "to_realtime_audio_format",
    ),
    "talk.interface": (
        "RealtimePlaybackState",
        "RealtimePlaybackTracker",
        "RealtimeModelListener",
        "RealtimeModelConfig",
        "RealtimeModel",
        "FrameTransport",
    ),
    "talk.wire": ("DEFAULT_MODEL_SETTINGS",),
    "agents.realtime_agent": (
        "RealtimeAgent",
        "RealtimeAgentHooks",
        "RealtimeRunHooks",
        "realtime_handoff",
    ),
    "agents.realtime_config": (
        "RealtimeGuardrailsSettings",
        "RealtimeToolExecutionConfig",
        "RealtimeReconnectConfig",
        "RealtimeRunConfig",
    ),
    "agents.realtime_events": (
        "RealtimeEventInfo",
        "RealtimeAgentStartEvent",
        "RealtimeAgentEndEvent",
        "RealtimeHandoffEvent",
        "RealtimeToolStart",
        "RealtimeToolEnd",
        "RealtimeToolApprovalRequired",
        "RealtimeRawModelEvent",
        "RealtimeAudioEnd",
        "RealtimeAudio",
        "RealtimeAudioInterrupted",
        "RealtimeError",
        "RealtimeHistoryUpdated",
        "RealtimeHistoryAdded",
        "RealtimeGuardrailTripped",
        "RealtimeInputAudioTimeoutTriggered",
        "RealtimeAudioDropped",
        "RealtimeConnectionLost",
        "RealtimeReconnected",
        "RealtimeCallDropped",
        "RealtimeSessionEvent",
    ),
    "calls.session": (
        "RealtimeSession",
        "REJECTION_MESSAGE",
    ),
    "face.realtime_runner": ("RealtimeRunner",),
    "tools.mcp": ("MCPToolCustomDataContext", "MCPToolMetaContext", "MCPUtil"),
    "mcp_servers.filters": (
        "ToolFilter",
        "ToolFilterCallable",
        "ToolFilterContext",
        "ToolFilterStatic",
        "create_static_tool_filter",
    ),
    "mcp_servers.server": (
        "HttpClientFactory",
        "LocalMCPApprovalCallable",
        "MCPServer",
        "MCPToolCustomDataExtractor",
        "MCPToolMetaResolver",
        "RequireApprovalObject",
        "RequireApprovalPolicy",
        "RequireApprovalSetting",
        "RequireApprovalToolList",
    ),
    "mcp_servers.stdio": ("MCPServerStdio", "MCPServerStdioParams"),
    "mcp_servers.http": (
        "MCPServerSse",
        "MCPServerSseParams",
        "MCPServerStreamableHttp",
        "MCPServerStreamableHttpParams",
    ),
    "mcp_servers.manager": ("MCPServerManager",),
    "transports.websocket": (
        "OpenAIRealtimeWebSocketModel",
        "OpenAIRealtimeSIPModel",
        "TransportConfig",
        "get_api_key",
    ),
    "testing.realtime.scripted": (
        "ScriptedRealtimeModel",
        "RealtimeStep",
        "RealtimeConnectCall",
        "RealtimeScriptError",
        "UnexpectedRealtimeSend",
        "UnconsumedRealtimeSteps",
    ),
}
"""Module to the names it gives only to the doors below: the SDK has them there, and not in `agents` itself."""

DOORS: dict[str, str] = {
    "agent": "Agent AgentBase AgentToolStreamEvent StopAtTools ToolsToFinalOutputFunction ToolsToFinalOutputResult",
    "decorators": "function_tool input_guardrail output_guardrail tool tool_input_guardrail tool_output_guardrail",
    "function_schema": "DocstringStyle FuncSchema function_schema",
    "handoffs": "Handoff HandoffInputData HandoffInputFilter default_handoff_history_mapper "
    "get_conversation_history_wrappers handoff nest_handoff_history reset_conversation_history_wrappers "
    "set_conversation_history_wrappers",
    "items": "CompactionItem HandoffCallItem HandoffOutputItem InputItem ItemHelpers MCPApprovalRequestItem "
    "MCPApprovalResponseItem MCPListToolsItem MessageOutputItem ModelResponse ReasoningItem RunItem "
    "TResponseInputItem TResponseOutputItem ToolApprovalItem ToolCallItem ToolCallOutputItem ToolSearchCallItem "
    "ToolSearchOutputItem",
    "lifecycle": "AgentHooks AgentHooksBase RunHooks RunHooksBase",
    "prompts": "DynamicPromptFunction GenerateDynamicPromptData Prompt",
    "repl": "run_demo_loop",
    "run_config": "CallModelData CallModelInputFilter DEFAULT_MAX_TURNS ModelInputData "
    "OutputGuardrailBlockedMessageArgs OutputGuardrailBlockedMessageFormatter ReasoningItemIdPolicy RunConfig "
    "ToolErrorFormatter ToolErrorFormatterArgs ToolExecutionConfig ToolNameCollisionPolicy ToolNotFoundBehavior",
    "run_error_handlers": "RunErrorData RunErrorHandler RunErrorHandlerInput RunErrorHandlerResult RunErrorHandlers",
    "run_state": "RunState",
    "stream_events": "AgentUpdatedStreamEvent RawResponsesStreamEvent RunItemStreamEvent StreamEvent",
    "usage": "Usage",
    "models": "get_default_model_settings",
    "models.interface": "Model ModelProvider ModelTracing",
    "models.openai_provider": "OpenAIProvider",
    "models.openai_responses": "OpenAIResponsesModel",
    "extensions.handoff_filters": "default_handoff_history_mapper nest_handoff_history remove_all_tools",
    "extensions.handoff_prompt": "RECOMMENDED_PROMPT_PREFIX prompt_with_handoff_instructions",
    "exceptions": "AgentsException InputGuardrailTripwireTriggered MCPToolCancellationError MaxTurnsExceeded "
    "ModelBehaviorError ModelRefusalError ModelTimeoutError OutputGuardrailTripwireTriggered RunErrorDetails "
    "ToolInputGuardrailTripwireTriggered ToolOutputGuardrailTripwireTriggered ToolTimeoutError UserError",
    "guardrail": "GuardrailFunctionOutput InputGuardrail InputGuardrailResult OutputGuardrail OutputGuardrailResult "
    "input_guardrail output_guardrail",
    "agent_output": "AgentOutputSchema AgentOutputSchemaBase",
    "model_settings": "ModelSettings",
    "result": "AgentToolInvocation RunResult RunResultStreaming",
    "retry": "ModelRetryAdvice ModelRetryAdviceRequest ModelRetryBackoffSettings ModelRetryNormalizedError "
    "ModelRetrySettings RetryDecision RetryPolicy RetryPolicyContext retry_policies",
    "run": "CallModelData CallModelInputFilter ModelInputData OutputGuardrailBlockedMessageArgs "
    "OutputGuardrailBlockedMessageFormatter ReasoningItemIdPolicy RunConfig RunContextWrapper RunState Runner "
    "ToolErrorFormatter ToolErrorFormatterArgs ToolExecutionConfig ToolNameCollisionPolicy ToolNotFoundBehavior",
    "run_context": "AgentHookContext RunContextWrapper TContext",
    "strict_schema": "ensure_strict_json_schema",
    "tool": "CodeInterpreterTool FileSearchTool FunctionTool FunctionToolCustomDataContext FunctionToolResult "
    "HostedMCPTool ImageGenerationTool ImageGenerationToolConfig MCPToolApprovalFunction "
    "MCPToolApprovalFunctionResult MCPToolApprovalRequest Tool ToolOrigin ToolOriginType ToolOutputFileContent "
    "ToolOutputFileContentDict ToolOutputImage ToolOutputImageDict ToolOutputText ToolOutputTextDict ToolSearchTool "
    "WebSearchTool WebSearchToolImageSettings default_tool_error_function function_tool tool_namespace",
    "tool_context": "ToolContext",
    "tool_guardrails": "ToolGuardrailFunctionOutput ToolInputGuardrail ToolInputGuardrailData ToolInputGuardrailResult "
    "ToolOutputGuardrail ToolOutputGuardrailData ToolOutputGuardrailResult tool_input_guardrail tool_output_guardrail",
    "tracing": "Span Trace add_trace_processor custom_span flush_traces gen_span_id gen_trace_id get_current_trace "
    "set_trace_processors set_trace_provider set_tracing_disabled set_tracing_export_api_key trace",
    "models.multi_provider": "MultiProvider MultiProviderMap",
    "models.openai_chatcompletions": "OpenAIChatCompletionsModel",
    "computer": "",
    "editor": "",
    "mcp": "LocalMCPApprovalCallable MCPServer MCPServerManager MCPServerSse MCPServerSseParams MCPServerStdio "
    "MCPServerStdioParams MCPServerStreamableHttp MCPServerStreamableHttpParams MCPToolCustomDataContext "
    "MCPToolCustomDataExtractor MCPToolMetaContext MCPToolMetaResolver MCPUtil ToolFilter ToolFilterCallable "
    "ToolFilterContext ToolFilterStatic create_static_tool_filter",
    "mcp.manager": "MCPServerManager",
    "mcp.server": "LocalMCPApprovalCallable MCPServer MCPServerSse MCPServerSseParams MCPServerStdio "
    "MCPServerStdioParams MCPServerStreamableHttp MCPServerStreamableHttpParams RequireApprovalObject "
    "RequireApprovalPolicy RequireApprovalSetting RequireApprovalToolList",
    "mcp.util": "HttpClientFactory MCPToolCustomDataContext MCPToolCustomDataExtractor MCPToolMetaContext "
    "MCPToolMetaResolver MCPUtil ToolFilter ToolFilterCallable ToolFilterContext ToolFilterStatic "
    "create_static_tool_filter",
    "sandbox": "",
    "voice": "",
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
    "realtime": "AssistantAudio AssistantMessageItem AssistantText DEFAULT_MODEL_SETTINGS FrameTransport InputAudio "
    "InputImage InputText OpenAIRealtimeSIPModel OpenAIRealtimeWebSocketModel RealtimeAgent "
    "RealtimeAgentEndEvent RealtimeAgentHooks RealtimeAgentStartEvent RealtimeAudio RealtimeAudioDropped "
    "RealtimeAudioEnd RealtimeAudioFormat RealtimeAudioInterrupted RealtimeCallDropped "
    "RealtimeClientMessage RealtimeConnectionLost RealtimeConnectionStatus RealtimeError "
    "RealtimeEventInfo RealtimeGuardrailTripped RealtimeGuardrailsSettings RealtimeHandoffEvent "
    "RealtimeHistoryAdded RealtimeHistoryUpdated RealtimeInputAudioNoiseReductionConfig "
    "RealtimeInputAudioTimeoutTriggered RealtimeInputAudioTranscriptionConfig RealtimeItem "
    "RealtimeMessageItem RealtimeModel RealtimeModelAudioDoneEvent RealtimeModelAudioEvent "
    "RealtimeModelAudioInterruptedEvent RealtimeModelCachedTokensDetails RealtimeModelConfig "
    "RealtimeModelConnectionStatusEvent RealtimeModelEndOfStreamEvent RealtimeModelErrorEvent "
    "RealtimeModelEvent RealtimeModelExceptionEvent RealtimeModelInputAudioTranscriptionCompletedEvent "
    "RealtimeModelInputTextContent RealtimeModelInputTokensDetails RealtimeModelItemDeletedEvent "
    "RealtimeModelItemUpdatedEvent RealtimeModelListener RealtimeModelName RealtimeModelOtherEvent "
    "RealtimeModelOutputTextDeltaEvent RealtimeModelOutputTokensDetails RealtimeModelRawClientMessage "
    "RealtimeModelSendAudio RealtimeModelSendEvent RealtimeModelSendInterrupt RealtimeModelSendRawMessage "
    "RealtimeModelSendSessionUpdate RealtimeModelSendToolOutput RealtimeModelSendUserInput "
    "RealtimeModelToolCallEvent RealtimeModelTracingConfig RealtimeModelTranscriptDeltaEvent "
    "RealtimeModelTurnEndedEvent RealtimeModelTurnStartedEvent RealtimeModelUsageEvent "
    "RealtimeModelUserInput RealtimeModelUserInputMessage RealtimePlaybackState RealtimePlaybackTracker "
    "RealtimeRawModelEvent RealtimeReasoningConfig RealtimeReasoningEffort RealtimeReconnectConfig "
    "RealtimeReconnected RealtimeResponse RealtimeRunConfig RealtimeRunHooks RealtimeRunner "
    "RealtimeSession RealtimeSessionEvent RealtimeSessionModelSettings RealtimeToolApprovalRequired "
    "RealtimeToolCallItem RealtimeToolEnd RealtimeToolExecutionConfig RealtimeToolStart "
    "RealtimeTurnDetectionConfig RealtimeUserInput RealtimeUserInputMessage RealtimeUserInputText "
    "SystemMessageItem TransportConfig UserMessageItem get_api_key realtime_handoff",
    "realtime.agent": "RealtimeAgent RealtimeAgentHooks RealtimeRunHooks",
    "realtime.audio_formats": "to_realtime_audio_format",
    "realtime.config": "RealtimeAudioConfig RealtimeAudioFormat RealtimeAudioInputConfig RealtimeAudioOutputConfig "
    "RealtimeClientMessage RealtimeCustomVoice RealtimeGuardrailsSettings "
    "RealtimeInputAudioNoiseReductionConfig RealtimeInputAudioTranscriptionConfig RealtimeModelName "
    "RealtimeModelTracingConfig RealtimeReasoningConfig RealtimeReasoningEffort RealtimeReconnectConfig "
    "RealtimeRunConfig RealtimeSessionModelSettings RealtimeToolExecutionConfig "
    "RealtimeTurnDetectionConfig RealtimeUserInput RealtimeUserInputImage RealtimeUserInputMessage "
    "RealtimeUserInputText RealtimeVoice",
    "realtime.events": "RealtimeAgentEndEvent RealtimeAgentStartEvent RealtimeAudio "
    "RealtimeAudioDropped RealtimeAudioEnd "
    "RealtimeAudioInterrupted RealtimeCallDropped RealtimeConnectionLost RealtimeError RealtimeEventInfo "
    "RealtimeGuardrailTripped RealtimeHandoffEvent RealtimeHistoryAdded RealtimeHistoryUpdated "
    "RealtimeInputAudioTimeoutTriggered RealtimeRawModelEvent RealtimeReconnected RealtimeSessionEvent "
    "RealtimeToolApprovalRequired RealtimeToolEnd RealtimeToolStart",
    "realtime.handoffs": "realtime_handoff",
    "realtime.items": "AssistantAudio AssistantMessageItem AssistantText InputAudio InputImage InputText RealtimeItem "
    "RealtimeMessageItem RealtimeResponse RealtimeToolCallItem SystemMessageItem UserMessageItem",
    "realtime.model": "FrameTransport RealtimeModel RealtimeModelConfig RealtimeModelListener RealtimePlaybackState "
    "RealtimePlaybackTracker",
    "realtime.model_events": "RealtimeConnectionStatus RealtimeModelAudioDoneEvent RealtimeModelAudioEvent "
    "RealtimeModelAudioInterruptedEvent RealtimeModelCachedTokensDetails "
    "RealtimeModelConnectionStatusEvent RealtimeModelEndOfStreamEvent RealtimeModelErrorEvent "
    "RealtimeModelEvent RealtimeModelExceptionEvent RealtimeModelInputAudioTimeoutTriggeredEvent "
    "RealtimeModelInputAudioTranscriptionCompletedEvent RealtimeModelInputTokensDetails "
    "RealtimeModelItemDeletedEvent RealtimeModelItemUpdatedEvent RealtimeModelOtherEvent "
    "RealtimeModelOutputTextDeltaEvent RealtimeModelOutputTokensDetails RealtimeModelRawServerEvent "
    "RealtimeModelToolCallEvent RealtimeModelTranscriptDeltaEvent RealtimeModelTurnEndedEvent "
    "RealtimeModelTurnStartedEvent RealtimeModelUsageEvent",
    "realtime.model_inputs": "RealtimeModelInputImageContent "
    "RealtimeModelInputTextContent RealtimeModelRawClientMessage "
    "RealtimeModelSendAudio RealtimeModelSendEvent RealtimeModelSendInterrupt RealtimeModelSendRawMessage "
    "RealtimeModelSendSessionUpdate RealtimeModelSendToolOutput RealtimeModelSendUserInput "
    "RealtimeModelUserInput RealtimeModelUserInputMessage",
    "realtime.openai_realtime": "DEFAULT_MODEL_SETTINGS OpenAIRealtimeSIPModel "
    "OpenAIRealtimeWebSocketModel TransportConfig "
    "get_api_key",
    "realtime.runner": "RealtimeRunner",
    "realtime.session": "REJECTION_MESSAGE RealtimeSession",
    "realtime.testing": "RealtimeConnectCall RealtimeScriptError RealtimeStep "
    "ScriptedRealtimeModel UnconsumedRealtimeSteps "
    "UnexpectedRealtimeSend",
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
when `agents` becomes `standfast`. They are real modules, written by `./dev names`, so that type checkers and editors
see them. A name that is not in `PUBLIC` yet says so when it is asked for, instead of looking like a typing error."""

ABSENT: dict[str, tuple[str, str, str]] = {
    "computer use": (
        "computer",
        "AsyncComputer Button Computer ComputerProvider ComputerTool ComputerToolCustomDataContext "
        "ComputerToolCustomDataExtractor Environment dispose_resolved_computers resolve_computer",
        "Offer what the computer should do as function tools.",
    ),
    "shell tools": (
        "",
        "LocalShellCommandRequest LocalShellExecutor LocalShellTool ShellActionRequest ShellCallData ShellCallOutcome "
        "ShellCommandOutput ShellCommandRequest ShellExecutor ShellResult ShellTool ShellToolContainerAutoEnvironment "
        "ShellToolContainerNetworkPolicy ShellToolContainerNetworkPolicyAllowlist "
        "ShellToolContainerNetworkPolicyDisabled ShellToolContainerNetworkPolicyDomainSecret "
        "ShellToolContainerReferenceEnvironment ShellToolContainerSkill ShellToolEnvironment "
        "ShellToolHostedEnvironment ShellToolInlineSkill ShellToolInlineSkillSource ShellToolLocalEnvironment "
        "ShellToolLocalSkill ShellToolSkillReference",
        "Write a function tool that runs the command, with needs_approval=True where a person should look first.",
    ),
    "patch tools": (
        "editor",
        "ApplyPatchEditor ApplyPatchOperation ApplyPatchResult ApplyPatchTool ApplyPatchToolCustomDataContext "
        "ApplyPatchToolCustomDataExtractor apply_diff",
        "Write a function tool that takes the file and its new text.",
    ),
    "tools with free-form input": (
        "",
        "CustomTool CustomToolCustomDataContext CustomToolCustomDataExtractor ProgrammaticToolCallingTool",
        "Write a function tool with one parameter of type str.",
    ),
    "websocket transport for responses": (
        "",
        "OpenAIResponsesWSModel OpenAIResponsesWebSocketOptions ResponsesWebSocketSession responses_websocket_session "
        "set_default_openai_responses_transport",
        "Use OpenAIResponsesModel, which streams over HTTP.",
    ),
    "registration of agents at OpenAI": (
        "",
        "OpenAIAgentRegistrationConfig set_default_openai_agent_registration set_default_openai_harness",
        "Leave it out; runs do not need it.",
    ),
    "sandbox": (
        "sandbox",
        "SandboxAgent SandboxRunConfig",
        "Run commands in an environment of your own, from a function tool.",
    ),
    "voice pipelines": (
        "voice",
        "AudioInput SingleAgentVoiceWorkflow StreamedAudioInput VoicePipeline VoicePipelineConfig VoiceWorkflowBase",
        "Turn speech into text before the run, and the run's text into speech after it.",
    ),
    "models over LiteLLM and any-llm": (
        "",
        "AnyLLMModel AnyLLMProvider LitellmModel LitellmProvider",
        "Use OpenAIChatCompletionsModel with the provider's compatible endpoint, or write a Model: two methods.",
    ),
    "trimming of tool outputs": (
        "",
        "ToolOutputTrimmer",
        "Shorten them in RunConfig(call_model_input_filter=...), which leaves the history as it is.",
    ),
    "drawings of agents": (
        "",
        "draw_graph get_main_graph",
        "Walk agent.handoffs and agent.tools.",
    ),
    "tracing system of its own": (
        "",
        "AgentSpanData CustomSpanData FunctionSpanData GenerationSpanData GuardrailSpanData HandoffSpanData "
        "MCPListToolsSpanData ResponseSpanData SpanData SpanError SpeechGroupSpanData SpeechSpanData TaskSpanData "
        "TracingProcessor TranscriptionSpanData TurnSpanData agent_span function_span generation_span "
        "get_current_span guardrail_span handoff_span mcp_tools_span response_span speech_group_span speech_span "
        "task_span transcription_span turn_span",
        "Runs make OpenTelemetry spans by themselves: read them with a span processor of OpenTelemetry's, and add your "
        "own with trace() and custom_span(). docs/how-to/trace-runs.md shows both.",
    ),
}
"""What the OpenAI Agents SDK has and standfast has not, by kind: the module that is all about it ("" if there is none),
its names, and what to do instead."""

KITS: tuple[str, ...] = ("conformance", "testing")
"""Packages for tests. Their public names are those of their own `__all__`; nothing here loads them."""

EXTRAS: dict[str, str] = {
    "openai": "openai",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "httpx2": "mcp",
    "anyio": "mcp",
    "redis": "redis",
    "psycopg": "postgres",
    "cryptography": "encrypt",
    "sqlalchemy": "sqlalchemy",
    "websockets": "realtime",
    "starlette": "testing",
    "uvicorn": "testing",
    "hypothesis": "conformance",
    "pytest": "conformance",
    "pytest_asyncio": "conformance",
}
"""Third-party package to the extra of standfast that installs it."""


def homes(module: str) -> dict[str, str]:
    """The names that lazy module `module` offers, each with the module it lives in (both below `standfast`)."""
    everything = {name: home for home, names in PUBLIC.items() for name in names}
    if module == "":
        return everything
    everything |= {name: home for home, names in BEHIND_DOORS.items() for name in names}
    return {name: everything[name] for name in DOORS[module].split() if name in everything}


def absent(module: str, name: str) -> str | None:
    """Why `module` does not have `name`, though the OpenAI Agents SDK does, and what to do instead; None if it is ours
    or nobody's."""
    for kind, (place, names, instead) in ABSENT.items():
        # Of a family's own module every class is meant; other names are asked for by programs that look around.
        if name in names.split() or (place == module != "" and name[:1].isupper()):
            return f"standfast has no {kind}, so there is no {name}. {instead}"
    return None


def planned(module: str) -> set[str]:
    """The names that an alias module will offer once they exist."""
    return set(DOORS.get(module, "").split()) - homes(module).keys()
