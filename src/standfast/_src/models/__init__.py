"""Layer 2: what a model is, what is sent to one and what comes back, as data."""
