"""Module paths imported by programs written for the OpenAI Agents SDK, with their names.

`table` says where a name lives; `./dev names` writes a public module for each path from both.
"""

from __future__ import annotations

DOORS: dict[str, str] = {
    "util": "",
    "tool_guardrails": "AllowBehavior RaiseExceptionBehavior RejectContentBehavior ToolGuardrailFunctionOutput "
    "ToolInputGuardrail ToolInputGuardrailData ToolInputGuardrailResult ToolOutputGuardrail ToolOutputGuardrailData "
    "ToolOutputGuardrailResult tool_input_guardrail tool_output_guardrail",
    "tool": "CodeInterpreterTool CustomTool CustomToolApprovalFunction CustomToolCustomDataContext "
    "CustomToolCustomDataExtractor CustomToolExecutor CustomToolOnApprovalFunction "
    "CustomToolOnApprovalFunctionResult DEFAULT_APPROVAL_REJECTION_MESSAGE FileSearchTool FunctionTool "
    "FunctionToolCustomDataContext FunctionToolResult HostedMCPTool ImageGenerationTool "
    "ImageGenerationToolConfig MCPToolApprovalFunction MCPToolApprovalFunctionResult MCPToolApprovalRequest "
    "ProgrammaticToolCallingTool RunContextWrapper Tool ToolContext ToolErrorFunction ToolFunction ToolOrigin "
    "ToolOriginType ToolOutputFileContent ToolOutputFileContentDict ToolOutputImage ToolOutputImageDict "
    "ToolOutputText ToolOutputTextDict ToolParams ToolSearchTool WebSearchTool WebSearchToolImageSettings "
    "default_tool_error_function default_tool_timeout_error_message function_tool get_function_tool_origin "
    "invoke_function_tool maybe_invoke_function_tool_failure_error_function "
    "resolve_function_tool_failure_error_function set_function_tool_failure_error_function tool_namespace",
    "testing.model": "InvalidModelStep ModelCall ModelScriptError ModelStep ModelStepSpec ScriptedModel "
    "UnconsumedModelSteps UnexpectedModelCall assistant_message function_call",
    "run_config": "CallModelData CallModelInputFilter DEFAULT_MAX_TURNS ModelInputData "
    "OutputGuardrailBlockedMessageArgs OutputGuardrailBlockedMessageFormatter ReasoningItemIdPolicy RunConfig "
    "RunOptions ToolErrorFormatter ToolErrorFormatterArgs ToolExecutionConfig ToolNameCollisionPolicy "
    "ToolNotFoundBehavior",
    "run": "AgentRunner CallModelData CallModelInputFilter DEFAULT_MAX_TURNS ModelInputData "
    "OutputGuardrailBlockedMessageArgs OutputGuardrailBlockedMessageFormatter ReasoningItemIdPolicy RunConfig "
    "RunContextWrapper RunOptions RunState Runner ToolErrorFormatter ToolErrorFormatterArgs "
    "ToolExecutionConfig ToolNameCollisionPolicy ToolNotFoundBehavior get_default_agent_runner "
    "set_default_agent_runner",
    "result": "AgentToolInvocation QueueCompleteSentinel RunResult RunResultBase RunResultStreaming",
    "prompts": "DynamicPromptFunction GenerateDynamicPromptData Prompt PromptUtil",
    "models.openai_responses": "ConvertedTools Converter OpenAIResponsesModel _HEADERS_OVERRIDE",
    "models.openai_client_utils": "is_official_openai_base_url is_official_openai_client",
    "models.openai_agent_registration": "OPENAI_HARNESS_ID_TRACE_METADATA_KEY OpenAIAgentRegistrationConfig "
    "ResolvedOpenAIAgentRegistrationConfig add_openai_harness_id_to_metadata "
    "get_default_openai_agent_registration_config resolve_openai_agent_registration_config "
    "resolve_openai_harness_id_for_model_provider set_default_openai_agent_registration_config",
    "models.fake_id": "FAKE_RESPONSES_ID",
    "models.chatcmpl_helpers": "ChatCmplHelpers HEADERS HEADERS_OVERRIDE",
    "models.chatcmpl_converter": "Converter",
    "memory.session_settings": "SessionSettings coerce_session_settings resolve_session_limit",
    "memory.openai_responses_compaction_session": "DEFAULT_COMPACTION_THRESHOLD OpenAIResponsesCompactionSession "
    "default_should_trigger_compaction is_openai_model_name logger select_compaction_candidate_items",
    "logger": "log_model_action_debug log_model_action_error log_model_action_warning log_model_and_tool_action_debug "
    "log_model_and_tool_action_error log_model_and_tool_action_warning log_model_and_tool_data_warning "
    "log_tool_action_debug log_tool_action_error log_tool_action_warning logger",
    "lifecycle": "AgentHookContext AgentHooks AgentHooksBase RunHooks RunHooksBase TAgent",
    "items": "CompactionItem HandoffCallItem HandoffOutputItem InputItem ItemHelpers MCPApprovalRequestItem "
    "MCPApprovalResponseItem MCPListToolsItem MessageOutputItem ModelResponse ReasoningItem RunItem RunItemBase "
    "TResponseInputItem TResponse TResponseOutputItem TResponseStreamEvent ToolApprovalItem ToolApprovalRawItem "
    "ToolCallItem ToolCallItemTypes ToolCallOutputItem ToolCallOutputTypes ToolSearchCallItem ToolSearchCallRawItem "
    "ToolSearchOutputItem ToolSearchOutputRawItem coerce_tool_search_call_raw_item coerce_tool_search_output_raw_item",
    "handoffs.history": "default_handoff_history_mapper get_conversation_history_wrappers nest_handoff_history "
    "reset_conversation_history_wrappers set_conversation_history_wrappers",
    "handoffs": "Handoff HandoffHistoryMapper HandoffInputData HandoffInputFilter default_handoff_history_mapper "
    "get_conversation_history_wrappers handoff nest_handoff_history reset_conversation_history_wrappers "
    "set_conversation_history_wrappers",
    "function_schema": "DocstringStyle FuncDocumentation FuncSchema function_schema generate_func_documentation",
    "extensions.experimental": "",
    "extensions.visualization": "draw_graph get_all_edges get_all_nodes get_main_graph",
    "extensions.tool_output_trimmer": "ToolOutputTrimmer logger",
    "extensions": "ToolOutputTrimmer",
    "agent_tool_input": "AgentAsToolInput STRUCTURED_INPUT_PREAMBLE StructuredInputSchemaInfo "
    "StructuredToolInputBuilder StructuredToolInputBuilderOptions StructuredToolInputResult "
    "build_structured_input_schema_info default_tool_input_builder is_agent_tool_input resolve_agent_tool_input",
    "agent": "Agent AgentBase AgentToolStreamEvent MCPConfig StopAtTools ToolsToFinalOutputFunction "
    "ToolsToFinalOutputResult",
    "decorators": "function_tool input_guardrail output_guardrail tool tool_input_guardrail tool_output_guardrail",
    "repl": "run_demo_loop",
    "run_error_handlers": "RunErrorData RunErrorHandler RunErrorHandlerInput RunErrorHandlerResult RunErrorHandlers",
    "run_state": "ContextDeserializer ContextOverride ContextSerializer RunState",
    "stream_events": "AgentUpdatedStreamEvent RawResponsesStreamEvent RunItemStreamEvent StreamEvent",
    "usage": "RequestUsage Usage deserialize_usage model_usage_to_span_usage serialize_usage task_usage_to_span_data "
    "total_usage_to_span_metadata turn_usage_to_span_data",
    "version": "",
    "models": "OpenAIAgentRegistrationConfig get_default_model get_default_model_settings "
    "gpt_5_reasoning_settings_required is_gpt_5_default",
    "models.default_models": "OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME get_default_model get_default_model_settings "
    "gpt_5_reasoning_settings_required is_gpt_5_default",
    "models.interface": "Model ModelProvider ModelTracing",
    "models.openai_provider": "OpenAIProvider",
    "extensions.handoff_filters": "default_handoff_history_mapper nest_handoff_history remove_all_tools",
    "extensions.handoff_prompt": "RECOMMENDED_PROMPT_PREFIX prompt_with_handoff_instructions",
    "exceptions": "AgentsException InputGuardrailTripwireTriggered MCPToolCancellationError MaxTurnsExceeded "
    "ModelBehaviorError ModelRefusalError ModelTimeoutError OutputGuardrailTripwireTriggered RunErrorDetails "
    "ToolInputGuardrailTripwireTriggered ToolOutputGuardrailTripwireTriggered ToolTimeoutError UserError",
    "guardrail": "GuardrailFunctionOutput InputGuardrail InputGuardrailResult OutputGuardrail OutputGuardrailResult "
    "input_guardrail output_guardrail",
    "agent_output": "AgentOutputSchema AgentOutputSchemaBase",
    "model_settings": "Headers MCPToolChoice ModelSettings ToolChoice",
    "retry": "ModelRetryAdvice ModelRetryAdviceRequest ModelRetryBackoffSettings ModelRetryNormalizedError "
    "ModelRetrySettings RetryDecision RetryPolicy RetryPolicyContext retry_policies",
    "run_context": "AgentHookContext RunContextWrapper TContext",
    "strict_schema": "ensure_strict_json_schema",
    "tool_context": "ToolContext",
    "tracing": "AgentSpanData CustomSpanData FunctionSpanData GenerationSpanData GuardrailSpanData HandoffSpanData "
    "MCPListToolsSpanData ResponseSpanData Span SpanData SpanError SpeechGroupSpanData SpeechSpanData TaskSpanData "
    "Trace TraceCtxManager TraceProvider TracingConfig TracingProcessor TranscriptionSpanData TurnSpanData "
    "add_trace_processor agent_span custom_span flush_traces function_span gen_span_id gen_trace_id generation_span "
    "get_current_span get_current_trace get_trace_provider guardrail_span handoff_span mcp_tools_span response_span "
    "set_trace_processors set_trace_provider set_tracing_disabled set_tracing_export_api_key speech_group_span "
    "speech_span task_span trace transcription_span turn_span",
    "models.multi_provider": "MultiProvider MultiProviderMap",
    "models.openai_chatcompletions": "OpenAIChatCompletionsModel",
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
    "memory": "OpenAIConversationsSession OpenAIResponsesCompactionArgs OpenAIResponsesCompactionAwareSession "
    "OpenAIResponsesCompactionSession SQLiteSession Session SessionABC SessionInputCallback SessionSettings "
    "is_openai_responses_compaction_aware_session",
    "memory.session": "OpenAIResponsesCompactionArgs OpenAIResponsesCompactionAwareSession Session SessionABC "
    "is_openai_responses_compaction_aware_session",
    "memory.sqlite_session": "SQLiteSession",
    "memory.openai_conversations_session": "OpenAIConversationsSession start_openai_conversations_session",
    "memory.util": "SessionInputCallback",
    "realtime": "AssistantAudio AssistantMessageItem AssistantText DEFAULT_MODEL_SETTINGS FrameTransport InputAudio "
    "InputImage InputText OpenAIRealtimeSIPModel OpenAIRealtimeWebSocketModel RealtimeAgent RealtimeAgentEndEvent "
    "RealtimeAgentHooks RealtimeAgentStartEvent RealtimeAudio RealtimeAudioDropped RealtimeAudioEnd "
    "RealtimeAudioFormat RealtimeAudioInterrupted RealtimeCallDropped RealtimeClientMessage RealtimeConnectionLost "
    "RealtimeConnectionStatus RealtimeError RealtimeEventInfo RealtimeGuardrailTripped RealtimeGuardrailsSettings "
    "RealtimeHandoffEvent RealtimeHistoryAdded RealtimeHistoryUpdated RealtimeInputAudioNoiseReductionConfig "
    "RealtimeInputAudioTimeoutTriggered RealtimeInputAudioTranscriptionConfig RealtimeItem RealtimeMessageItem "
    "RealtimeModel RealtimeModelAudioDoneEvent RealtimeModelAudioEvent RealtimeModelAudioInterruptedEvent "
    "RealtimeModelCachedTokensDetails RealtimeModelConfig RealtimeModelConnectionStatusEvent "
    "RealtimeModelEndOfStreamEvent RealtimeModelErrorEvent RealtimeModelEvent RealtimeModelExceptionEvent "
    "RealtimeModelInputAudioTranscriptionCompletedEvent RealtimeModelInputTextContent RealtimeModelInputTokensDetails "
    "RealtimeModelItemDeletedEvent RealtimeModelItemUpdatedEvent RealtimeModelListener RealtimeModelName "
    "RealtimeModelOtherEvent RealtimeModelOutputTextDeltaEvent RealtimeModelOutputTokensDetails "
    "RealtimeModelRawClientMessage RealtimeModelSendAudio RealtimeModelSendEvent RealtimeModelSendInterrupt "
    "RealtimeModelSendRawMessage RealtimeModelSendSessionUpdate RealtimeModelSendToolOutput "
    "RealtimeModelSendUserInput RealtimeModelToolCallEvent RealtimeModelTracingConfig "
    "RealtimeModelTranscriptDeltaEvent RealtimeModelTurnEndedEvent RealtimeModelTurnStartedEvent "
    "RealtimeModelUsageEvent RealtimeModelUserInput RealtimeModelUserInputMessage RealtimePlaybackState "
    "RealtimePlaybackTracker RealtimeRawModelEvent RealtimeReasoningConfig RealtimeReasoningEffort "
    "RealtimeReconnectConfig RealtimeReconnected RealtimeResponse RealtimeRunConfig RealtimeRunHooks RealtimeRunner "
    "RealtimeSession RealtimeSessionEvent RealtimeSessionModelSettings RealtimeToolApprovalRequired "
    "RealtimeToolCallItem RealtimeToolEnd RealtimeToolExecutionConfig RealtimeToolStart RealtimeTurnDetectionConfig "
    "RealtimeUserInput RealtimeUserInputMessage RealtimeUserInputText SystemMessageItem TransportConfig "
    "UserMessageItem get_api_key realtime_handoff",
    "realtime.agent": "RealtimeAgent RealtimeAgentHooks RealtimeRunHooks",
    "realtime.audio_formats": "to_realtime_audio_format",
    "realtime.config": "RealtimeAudioConfig RealtimeAudioFormat RealtimeAudioInputConfig RealtimeAudioOutputConfig "
    "RealtimeClientMessage RealtimeCustomVoice RealtimeGuardrailsSettings RealtimeInputAudioNoiseReductionConfig "
    "RealtimeInputAudioTranscriptionConfig RealtimeModelName RealtimeModelTracingConfig RealtimeReasoningConfig "
    "RealtimeReasoningEffort RealtimeReconnectConfig RealtimeRunConfig RealtimeSessionModelSettings "
    "RealtimeToolExecutionConfig RealtimeTurnDetectionConfig RealtimeUserInput RealtimeUserInputImage "
    "RealtimeUserInputMessage RealtimeUserInputText RealtimeVoice",
    "realtime.events": "RealtimeAgentEndEvent RealtimeAgentStartEvent RealtimeAudio RealtimeAudioDropped "
    "RealtimeAudioEnd RealtimeAudioInterrupted RealtimeCallDropped RealtimeConnectionLost RealtimeError "
    "RealtimeEventInfo RealtimeGuardrailTripped RealtimeHandoffEvent RealtimeHistoryAdded RealtimeHistoryUpdated "
    "RealtimeInputAudioTimeoutTriggered RealtimeRawModelEvent RealtimeReconnected RealtimeSessionEvent "
    "RealtimeToolApprovalRequired RealtimeToolEnd RealtimeToolStart",
    "realtime.handoffs": "realtime_handoff",
    "realtime.items": "AssistantAudio AssistantMessageItem AssistantText InputAudio InputImage InputText RealtimeItem "
    "RealtimeMessageItem RealtimeResponse RealtimeToolCallItem SystemMessageItem UserMessageItem",
    "realtime.model": "FrameTransport RealtimeModel RealtimeModelConfig RealtimeModelListener RealtimePlaybackState "
    "RealtimePlaybackTracker",
    "realtime.model_events": "RealtimeConnectionStatus RealtimeModelAudioDoneEvent RealtimeModelAudioEvent "
    "RealtimeModelAudioInterruptedEvent RealtimeModelCachedTokensDetails RealtimeModelConnectionStatusEvent "
    "RealtimeModelEndOfStreamEvent RealtimeModelErrorEvent RealtimeModelEvent RealtimeModelExceptionEvent "
    "RealtimeModelInputAudioTimeoutTriggeredEvent RealtimeModelInputAudioTranscriptionCompletedEvent "
    "RealtimeModelInputTokensDetails RealtimeModelItemDeletedEvent RealtimeModelItemUpdatedEvent "
    "RealtimeModelOtherEvent RealtimeModelOutputTextDeltaEvent RealtimeModelOutputTokensDetails "
    "RealtimeModelRawServerEvent RealtimeModelToolCallEvent RealtimeModelTranscriptDeltaEvent "
    "RealtimeModelTurnEndedEvent RealtimeModelTurnStartedEvent RealtimeModelUsageEvent",
    "realtime.model_inputs": "RealtimeModelInputImageContent RealtimeModelInputTextContent "
    "RealtimeModelRawClientMessage RealtimeModelSendAudio RealtimeModelSendEvent RealtimeModelSendInterrupt "
    "RealtimeModelSendRawMessage RealtimeModelSendSessionUpdate RealtimeModelSendToolOutput "
    "RealtimeModelSendUserInput RealtimeModelUserInput RealtimeModelUserInputMessage",
    "realtime.openai_realtime": "DEFAULT_MODEL_SETTINGS OpenAIRealtimeSIPModel OpenAIRealtimeWebSocketModel "
    "TransportConfig get_api_key",
    "realtime.runner": "RealtimeRunner",
    "realtime.session": "REJECTION_MESSAGE RealtimeSession",
    "realtime.testing": "RealtimeConnectCall RealtimeScriptError RealtimeStep ScriptedRealtimeModel "
    "UnconsumedRealtimeSteps UnexpectedRealtimeSend",
    "extensions.models": "",
    "extensions.models.any_llm_model": "AnyLLMModel",
    "extensions.models.any_llm_provider": "AnyLLMProvider",
    "extensions.models.litellm_model": "LitellmModel",
    "extensions.models.litellm_provider": "LitellmProvider",
    "extensions.memory": "AdvancedSQLiteSession AsyncSQLiteSession EncryptedSession RedisSession SQLAlchemySession",
    "extensions.memory.advanced_sqlite_session": "AdvancedSQLiteSession",
    "extensions.memory.async_sqlite_session": "AsyncSQLiteSession",
    "extensions.memory.encrypt_session": "EncryptedEnvelope EncryptedSession",
    "extensions.memory.redis_session": "RedisSession",
    "extensions.memory.sqlalchemy_session": "SQLAlchemySession",
    "tracing.config": "TracingConfig",
    "tracing.context": "TraceCtxManager",
    "tracing.create": "agent_span custom_span function_span generation_span get_current_span get_current_trace "
    "guardrail_span handoff_span mcp_tools_span response_span speech_group_span speech_span task_span trace "
    "transcription_span turn_span",
    "tracing.logger": "logger",
    "tracing.processor_interface": "TracingExporter TracingProcessor",
    "tracing.processors": "BackendSpanExporter BatchTraceProcessor ConsoleSpanExporter TracingExporter "
    "TracingProcessor default_exporter default_processor",
    "tracing.provider": "DefaultTraceProvider SynchronousMultiTracingProcessor TraceProvider",
    "tracing.scope": "Scope",
    "tracing.setup": "get_trace_provider set_trace_provider",
    "tracing.span_data": "AgentSpanData CustomSpanData FunctionSpanData GenerationSpanData GuardrailSpanData "
    "HandoffSpanData MCPListToolsSpanData ResponseSpanData SpanData SpeechGroupSpanData SpeechSpanData TaskSpanData "
    "TranscriptionSpanData TurnSpanData",
    "tracing.spans": "NoOpSpan Span SpanError SpanImpl TSpanData",
    "tracing.traces": "NoOpTrace Trace TraceImpl",
    "tracing.util": "gen_group_id gen_span_id gen_trace_id time_iso",
}
"""Module paths that the OpenAI Agents SDK documents, to the names it has there. Programs that import them keep working
when `agents` becomes `standfast`. They are real modules, written by `./dev names`, so that type checkers and editors
see them. A name that is not in `PUBLIC` yet says so when it is asked for, instead of looking like a typing error."""

OWN_HOMES: dict[str, dict[str, str]] = {
    "models.chatcmpl_converter": {"Converter": "_src.models.providers.chat_converter"},
    "models.openai_responses": {"Converter": "_src.models.providers.responses_converter"},
}
"""Public module to names that mean something else there than in other public modules."""
