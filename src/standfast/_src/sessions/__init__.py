"""Layer 2: what a session promises, and every rule that keeps it, without I/O."""
