"""Sessions whose contents are sealed before a store sees them."""
