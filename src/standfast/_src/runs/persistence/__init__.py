"""What is kept of a run: its lock on a session, saving, resuming, unfinished runs."""
