"""Layer 3: support for foreign sessions: the adapter, copying, repairing."""
