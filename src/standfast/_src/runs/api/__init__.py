"""Layer 5: entry points for programs."""
