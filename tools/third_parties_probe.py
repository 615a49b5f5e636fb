"""Use one package on whatever `agents` is, and print what was seen of it, as JSON. `tools/third_parties.py` runs this.

Tracers are given one run: an agent that hands over to another, which calls a tool. What they record is printed without
ids and times, so that it can be compared.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

MARK = "SEEN "
Seen = list[tuple[str, list[str]]]
"""Name of each span, and the names of its attributes."""


def run_program() -> Any:
    """Run the program on scripted models; its final output."""
    from agents import Agent, Runner, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call

    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    called = [function_call("add", '{"a": 1, "b": 2}', call_id="call_2")]
    helper = Agent(name="Helper", tools=[add], model=ScriptedModel([called, [assistant_message("3")]]))
    handed = [function_call("transfer_to_helper", "{}", call_id="call_1")]
    return Runner.run_sync(Agent(name="Desk", handoffs=[helper], model=ScriptedModel([handed])), "1 + 2?").final_output


def instrumented(module: str) -> Seen:
    """Give an OpenTelemetry instrumentor a provider of its own."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    importlib.import_module(module).OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    run_program()
    return [(span.name, sorted(span.attributes or {})) for span in exporter.get_finished_spans()]


def logfire() -> Seen:
    """Collect Logfire's spans."""
    import logfire  # type: ignore[import-not-found]  # in its own environment
    from logfire.testing import TestExporter  # type: ignore[import-not-found]  # in its own environment
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    exporter = TestExporter()
    logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[SimpleSpanProcessor(exporter)])
    logfire.instrument_openai_agents()
    run_program()
    return [(span["name"], sorted(span["attributes"])) for span in exporter.exported_spans_as_dict()]


def langsmith() -> Seen:
    """Collect the runs that LangSmith's processor sends."""
    from unittest.mock import MagicMock

    from agents import set_trace_processors
    from langsmith.wrappers import OpenAIAgentsTracingProcessor  # type: ignore[import-not-found]  # in its own environment

    client = MagicMock()
    set_trace_processors([OpenAIAgentsTracingProcessor(client=client)])
    run_program()
    sent = [call.kwargs for call in client.create_run.mock_calls if "name" in call.kwargs]
    return [(one["name"], [str(one.get("run_type"))]) for one in sent]


def braintrust() -> Seen:
    """Collect what Braintrust's processor logs."""
    from agents import set_trace_processors
    from braintrust.wrappers.openai import BraintrustTracingProcessor  # type: ignore[import-not-found]  # in its own environment

    logged: Seen = []

    class Logger:
        id = "1"

        def start_span(self, *_: Any, **given: Any) -> Logger:
            logged.append((str(given.get("name")), []))
            return self

        def log(self, **given: Any) -> None:
            logged.append(("log", sorted(given)))

        def __getattr__(self, name: str) -> Callable[..., str]:
            return lambda *_, **__: "1"

    set_trace_processors([BraintrustTracingProcessor(Logger())])
    run_program()
    return logged


def imported(*modules: str) -> Callable[[], Seen]:
    """Import the modules, then run the program beside them."""

    def probe() -> Seen:
        for module in modules:
            importlib.import_module(module)
        return [("imported and ran", [str(run_program())])]

    return probe


PROBES: dict[str, Callable[[], Seen]] = {
    "openinference": lambda: instrumented("openinference.instrumentation.openai_agents"),
    "traceloop": lambda: instrumented("opentelemetry.instrumentation.openai_agents"),
    "agentops": lambda: instrumented("agentops.instrumentation.agentic.openai_agents"),
    "logfire": logfire,
    "langsmith": langsmith,
    "braintrust": braintrust,
    "chatkit": imported("chatkit.agents", "chatkit.server"),
    "guardrails": imported("guardrails"),
    "dbos": imported("dbos_openai_agents"),
    "restate": imported("restate.ext.openai"),
    "composio": imported("composio_openai_agents"),
    "respan": imported("respan_exporter_openai_agents"),
    "temporalio": imported("temporalio.contrib.openai_agents"),
}

if __name__ == "__main__":
    try:
        found: dict[str, Any] = {"seen": PROBES[sys.argv[1]]()}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(found))
