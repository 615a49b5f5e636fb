"""Tools for operators: a store opened by its URL, saved runs as data, and decisions without the agents."""
