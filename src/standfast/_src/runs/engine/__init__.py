"""Layer 2: state machine of a run, as data."""
