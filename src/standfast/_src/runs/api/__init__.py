"""Layer 5: what a program calls."""
