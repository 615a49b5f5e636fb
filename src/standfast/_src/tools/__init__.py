"""Layer 3: tools, and the path of one call."""
