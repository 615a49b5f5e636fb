"""Layer 1: items, usage and events, and rules about lists of items."""
