"""Sessions that make a long history shorter."""
