"""Loop of a run, from its start to its result."""
