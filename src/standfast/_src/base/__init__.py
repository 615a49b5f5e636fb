"""Layer 0: errors and JSON values."""
