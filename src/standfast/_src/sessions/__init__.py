"""Layer 2: protocol of sessions, and all rules of their contract, without I/O."""
