"""Layer 3: tools, and the execution of tool calls."""
