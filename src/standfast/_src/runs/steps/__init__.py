"""The performers of a run's effects: requests, tool calls, handoffs, guardrails."""
