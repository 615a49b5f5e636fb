"""Layer 3: what works on anybody's session: the adapter for plain ones, copying, repairing."""
