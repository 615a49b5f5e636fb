"""Layer 2: a run as data, and what should happen next."""
