"""Layer 2: models, requests and replies, as data."""
