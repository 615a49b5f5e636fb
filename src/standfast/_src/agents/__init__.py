"""Layer 3: agents, their handoffs, guardrails, hooks and settings."""
