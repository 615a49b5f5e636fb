"""Layer 4: what carries a run out."""
