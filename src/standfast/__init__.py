"""An agent runtime whose conversations hold.

Every public name can be imported from here; each is loaded when it is first used.
Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from ._src.exports.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._kits.conformance.live.verify_store import (
        Verification as Verification,
        VerificationPlan as VerificationPlan,
        plan_verification as plan_verification,
        verify_store as verify_store,
    )
    from ._kits.operators.backlog import Backlog as Backlog
    from ._kits.operators.budgets import BudgetView as BudgetView
    from ._kits.operators.copy_sessions import (
        CopyProgress as CopyProgress,
        SessionCopied as SessionCopied,
        SessionsCopied as SessionsCopied,
        copy_sessions as copy_sessions,
    )
    from ._kits.operators.doctor.checks import Examination as Examination, examine_store as examine_store
    from ._kits.operators.doctor.findings import Finding as Finding
    from ._kits.operators.doctor.repair import (
        RepairReport as RepairReport,
        SessionRepair as SessionRepair,
        repair_store as repair_store,
        undo_repair as undo_repair,
    )
    from ._kits.operators.export_session import export_session as export_session, import_session as import_session
    from ._kits.operators.hold_runs import RunsHeld as RunsHeld
    from ._kits.operators.open_store import open_store as open_store, register_store as register_store
    from ._kits.operators.run_view import (
        CallView as CallView,
        DecisionView as DecisionView,
        HoldView as HoldView,
        RunView as RunView,
        SpokenView as SpokenView,
    )
    from ._kits.operators.run_worker import RunWorker as RunWorker
    from ._kits.operators.store import (
        Layout as Layout,
        RunListing as RunListing,
        SessionListing as SessionListing,
        SessionSummary as SessionSummary,
        Store as Store,
        StoreCounts as StoreCounts,
        StoreFacts as StoreFacts,
        StoreUsage as StoreUsage,
        WaitingCall as WaitingCall,
        store_of as store_of,
    )
    from ._src.agents.agent import (
        Agent as Agent,
        AgentBase as AgentBase,
        StopAtTools as StopAtTools,
        ToolsToFinalOutputFunction as ToolsToFinalOutputFunction,
        ToolsToFinalOutputResult as ToolsToFinalOutputResult,
    )
    from ._src.agents.as_tool import AgentToolStreamEvent as AgentToolStreamEvent
    from ._src.agents.context import (
        AgentHookContext as AgentHookContext,
        RunContextWrapper as RunContextWrapper,
        TContext as TContext,
    )
    from ._src.agents.error_handlers import (
        RunErrorData as RunErrorData,
        RunErrorDetails as RunErrorDetails,
        RunErrorHandler as RunErrorHandler,
        RunErrorHandlerInput as RunErrorHandlerInput,
        RunErrorHandlerResult as RunErrorHandlerResult,
        RunErrorHandlers as RunErrorHandlers,
    )
    from ._src.agents.guardrails import (
        GuardrailFunctionOutput as GuardrailFunctionOutput,
        InputGuardrail as InputGuardrail,
        InputGuardrailResult as InputGuardrailResult,
        OutputGuardrail as OutputGuardrail,
        OutputGuardrailResult as OutputGuardrailResult,
        input_guardrail as input_guardrail,
        output_guardrail as output_guardrail,
    )
    from ._src.agents.handoff_data import HandoffInputData as HandoffInputData, HandoffInputFilter as HandoffInputFilter
    from ._src.agents.handoffs import (
        Handoff as Handoff,
        default_handoff_history_mapper as default_handoff_history_mapper,
        get_conversation_history_wrappers as get_conversation_history_wrappers,
        handoff as handoff,
        nest_handoff_history as nest_handoff_history,
        reset_conversation_history_wrappers as reset_conversation_history_wrappers,
        set_conversation_history_wrappers as set_conversation_history_wrappers,
    )
    from ._src.agents.hooks import (
        AgentHooks as AgentHooks,
        AgentHooksBase as AgentHooksBase,
        RunHooks as RunHooks,
        RunHooksBase as RunHooksBase,
    )
    from ._src.agents.output_type import (
        AgentOutputSchema as AgentOutputSchema,
        AgentOutputSchemaBase as AgentOutputSchemaBase,
    )
    from ._src.agents.prompts import (
        DynamicPromptFunction as DynamicPromptFunction,
        GenerateDynamicPromptData as GenerateDynamicPromptData,
        Prompt as Prompt,
    )
    from ._src.agents.retry_policies import retry_policies as retry_policies
    from ._src.agents.run_config import (
        CallModelData as CallModelData,
        CallModelInputFilter as CallModelInputFilter,
        ModelInputData as ModelInputData,
        OutputGuardrailBlockedMessageArgs as OutputGuardrailBlockedMessageArgs,
        OutputGuardrailBlockedMessageFormatter as OutputGuardrailBlockedMessageFormatter,
        ReasoningItemIdPolicy as ReasoningItemIdPolicy,
        RunConfig as RunConfig,
        SessionInputCallback as SessionInputCallback,
        StoredInputFilter as StoredInputFilter,
        ToolExecutionConfig as ToolExecutionConfig,
        ToolNameCollisionPolicy as ToolNameCollisionPolicy,
        ToolNotFoundBehavior as ToolNotFoundBehavior,
    )
    from ._src.agents.tool_context import ToolContext as ToolContext
    from ._src.agents.usage_limits import Budget as Budget, PriceFunction as PriceFunction, UsageLimits as UsageLimits
    from ._src.base.errors import (
        AbilityMissingError as AbilityMissingError,
        AgentsException as AgentsException,
        AlreadyDecidedError as AlreadyDecidedError,
        AppendGapError as AppendGapError,
        ApprovalError as ApprovalError,
        BudgetExceeded as BudgetExceeded,
        CallerError as CallerError,
        ChangedCallError as ChangedCallError,
        CloseTimeoutError as CloseTimeoutError,
        CompactionError as CompactionError,
        CompactionRefusedError as CompactionRefusedError,
        ConnectionLostError as ConnectionLostError,
        ConnectionRefusedByServerError as ConnectionRefusedByServerError,
        CorruptRecordError as CorruptRecordError,
        ExportFileError as ExportFileError,
        GuardrailTripped as GuardrailTripped,
        InputGuardrailTripwireTriggered as InputGuardrailTripwireTriggered,
        InvalidLimitError as InvalidLimitError,
        InvalidNameError as InvalidNameError,
        InvalidSessionIdError as InvalidSessionIdError,
        InvalidSettingError as InvalidSettingError,
        ItemNotStorableError as ItemNotStorableError,
        LeaseLostError as LeaseLostError,
        MaxTurnsExceeded as MaxTurnsExceeded,
        MCPServerError as MCPServerError,
        MCPToolCancellationError as MCPToolCancellationError,
        ModelBehaviorError as ModelBehaviorError,
        ModelError as ModelError,
        ModelRefusalError as ModelRefusalError,
        ModelReplyError as ModelReplyError,
        ModelTimeoutError as ModelTimeoutError,
        NotADatabaseError as NotADatabaseError,
        NotFoundError as NotFoundError,
        OutcomeUnknownError as OutcomeUnknownError,
        OutputGuardrailTripwireTriggered as OutputGuardrailTripwireTriggered,
        OwnerError as OwnerError,
        PartialBatchError as PartialBatchError,
        ReadBudgetError as ReadBudgetError,
        RealtimeStateError as RealtimeStateError,
        ResponseFailedError as ResponseFailedError,
        RunCancelledError as RunCancelledError,
        RunClaimedError as RunClaimedError,
        RunHandedOverError as RunHandedOverError,
        RunStateError as RunStateError,
        SchemaTooNewError as SchemaTooNewError,
        SealBrokenError as SealBrokenError,
        SealKeyError as SealKeyError,
        SendOutcomeUnknownError as SendOutcomeUnknownError,
        SessionBusyError as SessionBusyError,
        SessionClosedError as SessionClosedError,
        SessionConflictError as SessionConflictError,
        SessionErasedError as SessionErasedError,
        SettingTypeError as SettingTypeError,
        SlowConsumerError as SlowConsumerError,
        StandfastError as StandfastError,
        StoreError as StoreError,
        StoreFullError as StoreFullError,
        StoreNotFoundError as StoreNotFoundError,
        StoreReadOnlyError as StoreReadOnlyError,
        StoreTimeoutError as StoreTimeoutError,
        StoreUnavailableError as StoreUnavailableError,
        StreamCutError as StreamCutError,
        ToolInputGuardrailTripwireTriggered as ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered as ToolOutputGuardrailTripwireTriggered,
        ToolTimeoutError as ToolTimeoutError,
        UndoFileError as UndoFileError,
        UnfinishedRunError as UnfinishedRunError,
        UnknownSchemeError as UnknownSchemeError,
        UsageLimitExceeded as UsageLimitExceeded,
        UserError as UserError,
        WrongLoopError as WrongLoopError,
    )
    from ._src.base.logs import enable_verbose_stdout_logging as enable_verbose_stdout_logging
    from ._src.exports.sdk_alias import install_as_agents as install_as_agents
    from ._src.items.items import (
        CompactionItem as CompactionItem,
        HandoffCallItem as HandoffCallItem,
        HandoffOutputItem as HandoffOutputItem,
        InputItem as InputItem,
        ItemHelpers as ItemHelpers,
        MCPApprovalRequestItem as MCPApprovalRequestItem,
        MCPApprovalResponseItem as MCPApprovalResponseItem,
        MCPListToolsItem as MCPListToolsItem,
        MessageOutputItem as MessageOutputItem,
        ModelResponse as ModelResponse,
        ReasoningItem as ReasoningItem,
        RunItem as RunItem,
        ToolApprovalItem as ToolApprovalItem,
        ToolCallItem as ToolCallItem,
        ToolCallOutputItem as ToolCallOutputItem,
        ToolOrigin as ToolOrigin,
        ToolOriginType as ToolOriginType,
        ToolSearchCallItem as ToolSearchCallItem,
        ToolSearchOutputItem as ToolSearchOutputItem,
    )
    from ._src.items.stream_events import (
        AgentUpdatedStreamEvent as AgentUpdatedStreamEvent,
        RawResponsesStreamEvent as RawResponsesStreamEvent,
        RunItemStreamEvent as RunItemStreamEvent,
        StreamEvent as StreamEvent,
    )
    from ._src.items.texts_for_models import ModelTexts as ModelTexts, set_model_texts as set_model_texts
    from ._src.items.tool_outputs import (
        ToolOutputFileContent as ToolOutputFileContent,
        ToolOutputFileContentDict as ToolOutputFileContentDict,
        ToolOutputImage as ToolOutputImage,
        ToolOutputImageDict as ToolOutputImageDict,
        ToolOutputText as ToolOutputText,
        ToolOutputTextDict as ToolOutputTextDict,
    )
    from ._src.items.usage import Usage as Usage
    from ._src.models.interface import Model as Model, ModelProvider as ModelProvider, ModelTracing as ModelTracing
    from ._src.models.model_settings import ModelSettings as ModelSettings
    from ._src.models.outcome_query import (
        ModelSettlement as ModelSettlement,
        SendEvidence as SendEvidence,
        Settled as Settled,
    )
    from ._src.models.prices import Price as Price, price_of as price_of, price_of_run as price_of_run
    from ._src.models.providers.chat_model import OpenAIChatCompletionsModel as OpenAIChatCompletionsModel
    from ._src.models.providers.client import (
        set_default_openai_api as set_default_openai_api,
        set_default_openai_client as set_default_openai_client,
        set_default_openai_key as set_default_openai_key,
    )
    from ._src.models.providers.provider import (
        MultiProvider as MultiProvider,
        MultiProviderMap as MultiProviderMap,
        OpenAIProvider as OpenAIProvider,
    )
    from ._src.models.providers.registration import (
        OpenAIAgentRegistrationConfig as OpenAIAgentRegistrationConfig,
        set_default_openai_agent_registration as set_default_openai_agent_registration,
        set_default_openai_harness as set_default_openai_harness,
    )
    from ._src.models.providers.responses_model import OpenAIResponsesModel as OpenAIResponsesModel
    from ._src.models.retry import (
        ModelRetryAdvice as ModelRetryAdvice,
        ModelRetryAdviceRequest as ModelRetryAdviceRequest,
        ModelRetryBackoffSettings as ModelRetryBackoffSettings,
        ModelRetryNormalizedError as ModelRetryNormalizedError,
        ModelRetrySettings as ModelRetrySettings,
        RetryDecision as RetryDecision,
        RetryPolicy as RetryPolicy,
        RetryPolicyContext as RetryPolicyContext,
    )
    from ._src.runs.api.move_conversation import (
        MoveInterruptedError as MoveInterruptedError,
        MoveReport as MoveReport,
        move_to_conversation as move_to_conversation,
        move_to_session as move_to_session,
    )
    from ._src.runs.api.repl import run_demo_loop as run_demo_loop
    from ._src.runs.api.run_state import CallRecord as CallRecord, RunState as RunState
    from ._src.runs.api.runner import Runner as Runner
    from ._src.runs.engine.run_store import (
        LogTail as LogTail,
        RunStore as RunStore,
        RunSummary as RunSummary,
        SavedRun as SavedRun,
    )
    from ._src.runs.loop.result import RunResult as RunResult
    from ._src.runs.loop.run_scope import AgentToolInvocation as AgentToolInvocation, UnfinishedRun as UnfinishedRun
    from ._src.runs.loop.streamed_result import RunResultStreaming as RunResultStreaming
    from ._src.runs.recovery.recover import RecoveredRun as RecoveredRun, RecoveryReport as RecoveryReport
    from ._src.runs.recovery.run_updates import (
        CallBegan as CallBegan,
        CallEnded as CallEnded,
        ItemSaved as ItemSaved,
        PendingCall as PendingCall,
        RunEnded as RunEnded,
        RunStatusChanged as RunStatusChanged,
        RunUpdate as RunUpdate,
    )
    from ._src.runs.recovery.shutdown import handing_over_on as handing_over_on
    from ._src.sessions.backends.memory.memory_runs import InMemoryRunStore as InMemoryRunStore
    from ._src.sessions.backends.memory.memory_session import (
        InMemorySession as InMemorySession,
        InMemoryStore as InMemoryStore,
    )
    from ._src.sessions.backends.openai_conversations import (
        OpenAIConversationsSession as OpenAIConversationsSession,
        start_openai_conversations_session as start_openai_conversations_session,
    )
    from ._src.sessions.backends.postgres.postgres_session import PostgresSession as PostgresSession
    from ._src.sessions.backends.redis.redis_session import RedisSession as RedisSession
    from ._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession as SQLAlchemySession
    from ._src.sessions.backends.sqlite.async_session import AsyncSQLiteSession as AsyncSQLiteSession
    from ._src.sessions.backends.sqlite.sqlite_session import SQLiteSession as SQLiteSession
    from ._src.sessions.foreign.carried_items import NotCarried as NotCarried
    from ._src.sessions.protocol import (
        Ability as Ability,
        CanAppend as CanAppend,
        CanFork as CanFork,
        CanLease as CanLease,
        CanList as CanList,
        CanPage as CanPage,
        CanReplace as CanReplace,
        CanReportCorrupt as CanReportCorrupt,
        CanRewind as CanRewind,
        CorruptRecord as CorruptRecord,
        Generation as Generation,
        HasTimes as HasTimes,
        Head as Head,
        Lease as Lease,
        Page as Page,
        Position as Position,
        Session as Session,
        SessionABC as SessionABC,
        SessionInfo as SessionInfo,
        SessionPage as SessionPage,
        SessionSettings as SessionSettings,
        TResponseInputItem as TResponseInputItem,
        abilities as abilities,
    )
    from ._src.sessions.records import (
        CanReadRecords as CanReadRecords,
        CanSearch as CanSearch,
        CanWatch as CanWatch,
        Hit as Hit,
        Holder as Holder,
        KeepsUsage as KeepsUsage,
        KnowsHolder as KnowsHolder,
        KnowsOrigin as KnowsOrigin,
        Origin as Origin,
        Record as Record,
        RecordPage as RecordPage,
        RequestCost as RequestCost,
        RunUsage as RunUsage,
        SearchPage as SearchPage,
    )
    from ._src.sessions.rules.compaction import (
        OpenAIResponsesCompactionArgs as OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession as OpenAIResponsesCompactionAwareSession,
        is_openai_responses_compaction_aware_session as is_openai_responses_compaction_aware_session,
    )
    from ._src.sessions.rules.messages import Receipt as Receipt, WaitingMessage as WaitingMessage
    from ._src.sessions.wrappers.branches.advanced_session import AdvancedSQLiteSession as AdvancedSQLiteSession
    from ._src.sessions.wrappers.compaction.responses import (
        OpenAIResponsesCompactionSession as OpenAIResponsesCompactionSession,
    )
    from ._src.sessions.wrappers.compaction.summary import SummarisingSession as SummarisingSession
    from ._src.sessions.wrappers.encrypted.encrypted_session import EncryptedSession as EncryptedSession
    from ._src.sessions.wrappers.encrypted.key_file import KeyFile as KeyFile
    from ._src.sessions.wrappers.encrypted.keys import (
        ErasureReceipt as ErasureReceipt,
        SessionKeys as SessionKeys,
        key_from_password as key_from_password,
    )
    from ._src.sessions.wrappers.encrypted.sdk_rows import EncryptedEnvelope as EncryptedEnvelope
    from ._src.tools.custom_tool import (
        CustomTool as CustomTool,
        CustomToolApprovalFunction as CustomToolApprovalFunction,
        CustomToolCustomDataContext as CustomToolCustomDataContext,
        CustomToolCustomDataExtractor as CustomToolCustomDataExtractor,
        CustomToolExecutor as CustomToolExecutor,
        CustomToolOnApprovalFunction as CustomToolOnApprovalFunction,
        CustomToolOnApprovalFunctionResult as CustomToolOnApprovalFunctionResult,
    )
    from ._src.tools.function_tool import (
        FunctionTool as FunctionTool,
        FunctionToolCustomDataContext as FunctionToolCustomDataContext,
        FunctionToolCustomDataExtractor as FunctionToolCustomDataExtractor,
        FunctionToolResult as FunctionToolResult,
        function_tool as function_tool,
        tool_namespace as tool_namespace,
    )
    from ._src.tools.hosted_tools import (
        CodeInterpreterTool as CodeInterpreterTool,
        FileSearchTool as FileSearchTool,
        HostedMCPTool as HostedMCPTool,
        ImageGenerationTool as ImageGenerationTool,
        ImageGenerationToolConfig as ImageGenerationToolConfig,
        MCPToolApprovalFunction as MCPToolApprovalFunction,
        MCPToolApprovalFunctionResult as MCPToolApprovalFunctionResult,
        MCPToolApprovalRequest as MCPToolApprovalRequest,
        ProgrammaticToolCallingTool as ProgrammaticToolCallingTool,
        ProviderTool as ProviderTool,
        Tool as Tool,
        ToolSearchTool as ToolSearchTool,
        WebSearchTool as WebSearchTool,
        WebSearchToolImageSettings as WebSearchToolImageSettings,
    )
    from ._src.tools.local_tool import (
        ToolCaller as ToolCaller,
        default_tool_error_function as default_tool_error_function,
    )
    from ._src.tools.refusal_texts import (
        ToolErrorFormatter as ToolErrorFormatter,
        ToolErrorFormatterArgs as ToolErrorFormatterArgs,
    )
    from ._src.tools.strict_schema import ensure_strict_json_schema as ensure_strict_json_schema
    from ._src.tools.tool_guardrails import (
        ToolGuardrailFunctionOutput as ToolGuardrailFunctionOutput,
        ToolInputGuardrail as ToolInputGuardrail,
        ToolInputGuardrailData as ToolInputGuardrailData,
        ToolInputGuardrailResult as ToolInputGuardrailResult,
        ToolOutputGuardrail as ToolOutputGuardrail,
        ToolOutputGuardrailData as ToolOutputGuardrailData,
        ToolOutputGuardrailResult as ToolOutputGuardrailResult,
        tool_input_guardrail as tool_input_guardrail,
        tool_output_guardrail as tool_output_guardrail,
    )
    from ._src.tracing.span_data import (
        AgentSpanData as AgentSpanData,
        CustomSpanData as CustomSpanData,
        FunctionSpanData as FunctionSpanData,
        GenerationSpanData as GenerationSpanData,
        GuardrailSpanData as GuardrailSpanData,
        HandoffSpanData as HandoffSpanData,
        MCPListToolsSpanData as MCPListToolsSpanData,
        ResponseSpanData as ResponseSpanData,
        SpanData as SpanData,
        SpeechGroupSpanData as SpeechGroupSpanData,
        SpeechSpanData as SpeechSpanData,
        TaskSpanData as TaskSpanData,
        TranscriptionSpanData as TranscriptionSpanData,
        TurnSpanData as TurnSpanData,
    )
    from ._src.tracing.spans import (
        add_trace_processor as add_trace_processor,
        agent_span as agent_span,
        custom_span as custom_span,
        flush_traces as flush_traces,
        function_span as function_span,
        generation_span as generation_span,
        get_current_span as get_current_span,
        get_current_trace as get_current_trace,
        guardrail_span as guardrail_span,
        handoff_span as handoff_span,
        mcp_tools_span as mcp_tools_span,
        response_span as response_span,
        set_trace_processors as set_trace_processors,
        set_trace_provider as set_trace_provider,
        set_tracing_export_api_key as set_tracing_export_api_key,
        speech_group_span as speech_group_span,
        speech_span as speech_span,
        task_span as task_span,
        trace as trace,
        transcription_span as transcription_span,
        turn_span as turn_span,
    )
    from ._src.tracing.trace_records import (
        Span as Span,
        SpanError as SpanError,
        Trace as Trace,
        TracingProcessor as TracingProcessor,
        gen_span_id as gen_span_id,
        gen_trace_id as gen_trace_id,
    )
    from ._src.tracing.tracing_switch import set_tracing_disabled as set_tracing_disabled

__version__ = "0.2.0"
__getattr__, __dir__ = lazy(__name__)
