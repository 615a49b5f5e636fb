"""Persistence of runs: lock on a session, saving, resuming, unfinished runs."""
