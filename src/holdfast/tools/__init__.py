"""Tools: Python functions and provider features that a model may call, and the policy of one call."""
