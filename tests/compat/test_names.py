"""Every public name of the OpenAI Agents SDK is in standfast under the same path, or says why not and what to do."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import agents as sdk
import pytest

import standfast
from standfast._doors import exports

# Where the SDK keeps what it offers from elsewhere; its documentation imports these names from the outer module.
INSIDE = ("agents.tracing.", "agents.handoffs.history", "agents.models.openai_agent_registration")
# Modules whose only name is one that standfast has not, and says so where it is imported from `standfast`.
OF_ABSENT_NAMES = ("agents.apply_diff", "agents.responses_websocket_session", "agents.models.openai_responses")

# Import lines that programs use, chosen from the SDK's guides and examples; those of its guides for realtime, sandbox,
# voice and MCP are not among them, because standfast has none of these yet.
PATHS = """
agents.agent: Agent StopAtTools ToolsToFinalOutputResult
agents.agent_output: AgentOutputSchema AgentOutputSchemaBase
agents.decorators: tool input_guardrail output_guardrail tool_input_guardrail tool_output_guardrail
agents.exceptions: AgentsException MaxTurnsExceeded ModelBehaviorError UserError InputGuardrailTripwireTriggered
agents.extensions.handoff_filters: remove_all_tools
agents.extensions.handoff_prompt: RECOMMENDED_PROMPT_PREFIX prompt_with_handoff_instructions
agents.function_schema: FuncSchema function_schema DocstringStyle
agents.guardrail: GuardrailFunctionOutput InputGuardrail OutputGuardrail input_guardrail output_guardrail
agents.handoffs: Handoff HandoffInputData HandoffInputFilter handoff nest_handoff_history
agents.items: ItemHelpers MessageOutputItem ModelResponse ReasoningItem RunItem ToolApprovalItem ToolCallItem
agents.items: ToolCallOutputItem TResponseInputItem TResponseOutputItem HandoffCallItem HandoffOutputItem
agents.lifecycle: AgentHooks AgentHooksBase RunHooks RunHooksBase
agents.memory: OpenAIConversationsSession Session SessionABC SessionSettings SQLiteSession SessionInputCallback
agents.memory: OpenAIResponsesCompactionSession OpenAIResponsesCompactionArgs
agents.memory.session: Session SessionABC
agents.memory.session_settings: SessionSettings
agents.memory.sqlite_session: SQLiteSession
agents.model_settings: ModelSettings
agents.models.interface: Model ModelProvider ModelTracing
agents.models.multi_provider: MultiProvider MultiProviderMap
agents.models.openai_chatcompletions: OpenAIChatCompletionsModel
agents.models.openai_provider: OpenAIProvider
agents.models.openai_responses: OpenAIResponsesModel
agents.prompts: Prompt DynamicPromptFunction GenerateDynamicPromptData
agents.repl: run_demo_loop
agents.result: RunResult RunResultStreaming AgentToolInvocation
agents.retry: ModelRetrySettings ModelRetryBackoffSettings RetryDecision RetryPolicyContext retry_policies
agents.run: RunConfig Runner CallModelData CallModelInputFilter ModelInputData RunContextWrapper RunState
agents.run_config: RunConfig CallModelData ModelInputData ToolExecutionConfig ToolErrorFormatterArgs
agents.run_context: RunContextWrapper AgentHookContext TContext
agents.run_error_handlers: RunErrorData RunErrorHandlerInput RunErrorHandlerResult RunErrorHandlers
agents.run_state: RunState
agents.stream_events: AgentUpdatedStreamEvent RawResponsesStreamEvent RunItemStreamEvent StreamEvent
agents.strict_schema: ensure_strict_json_schema
agents.testing: ScriptedModel ModelStep ModelCall assistant_message function_call ModelScriptError UnexpectedModelCall
agents.tool: FunctionTool FunctionToolResult HostedMCPTool Tool WebSearchTool FileSearchTool CodeInterpreterTool
agents.tool: ImageGenerationTool function_tool default_tool_error_function ToolOutputText ToolOutputImage ToolOrigin
agents.tool_context: ToolContext
agents.tool_guardrails: ToolGuardrailFunctionOutput ToolInputGuardrail ToolInputGuardrailData ToolOutputGuardrailData
agents.tracing: trace custom_span gen_trace_id get_current_trace set_tracing_disabled add_trace_processor Trace Span
agents.usage: Usage
"""
LISTED = [
    (module, name)
    for line in PATHS.strip().splitlines()
    for module, _, names in [line.partition(": ")]
    for name in names.split()
]
PUBLIC = sorted(sdk.__all__)


def ours(module: str, name: str) -> Any:
    """What the same import gives with one word changed; the reason as a text if standfast has no such thing."""
    scope: dict[str, Any] = {}
    try:
        exec(f"from {module.replace('agents', 'standfast', 1)} import {name}", scope)
    except ImportError as error:
        if str(error).startswith("standfast has no "):
            return str(error)
        raise
    return scope[name]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_of_the_sdk_is_there_or_says_what_to_do_instead(name: str):
    reason = ours("agents", name)
    absent = exports.absent("", name)
    assert (absent is None) is not (isinstance(reason, str) and reason.startswith("standfast has no "))


@pytest.mark.parametrize("name", PUBLIC)
def test_it_is_there_too_where_the_sdk_defines_it(name: str):
    value = getattr(sdk, name)
    if isinstance(value, ModuleType):
        return  # a module is where it is
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not module.startswith("agents") or module.startswith(INSIDE):
        return
    if module in OF_ABSENT_NAMES and exports.absent("", name):
        return
    assert ours(module, name) is not None


@pytest.mark.parametrize(("module", "name"), LISTED, ids=[f"{module}.{name}" for module, name in LISTED])
def test_an_import_line_that_programs_use_works_with_one_word_changed(module: str, name: str):
    getattr(import_module(module), name)  # the SDK has it
    assert not isinstance(ours(module, name), str) or isinstance(getattr(import_module(module), name), str)


ABSENT = [(kind, name) for kind, (_, names, _) in exports.ABSENT.items() for name in names.split()]


@pytest.mark.parametrize(("kind", "name"), ABSENT, ids=[name for _, name in ABSENT])
def test_a_name_that_is_not_there_says_so_and_what_to_do(kind: str, name: str):
    instead = exports.ABSENT[kind][2]
    with pytest.raises(ImportError) as caught:
        exec(f"from standfast import {name}")
    assert str(caught.value) == f"standfast has no {kind}, so there is no {name}. {instead}"


@pytest.mark.parametrize("module", [place for place, _, _ in exports.ABSENT.values() if place])
def test_anything_from_a_module_that_is_not_there_says_so(module: str):
    with pytest.raises(ImportError, match=r"standfast has no .*, so there is no Whatever"):
        exec(f"from standfast.{module} import Whatever")


def test_what_is_not_there_is_not_offered_either():
    assert not {name for _, name in ABSENT} & set(dir(standfast))


def test_the_guide_to_moving_lists_every_kind_of_thing_that_is_not_there():
    from pathlib import Path

    guide = Path(__file__).parents[2] / "docs" / "how-to" / "move-from-openai-agents.md"
    text = guide.read_text(encoding="utf-8")
    assert [kind for kind in exports.ABSENT if f"| {kind} |" not in text] == []
