"""Sessions with contents sealed before a store sees them."""
