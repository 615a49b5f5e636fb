"""Layer 3: agents and what belongs to them."""
