"""Loop that drives a run, from its start to its result."""
