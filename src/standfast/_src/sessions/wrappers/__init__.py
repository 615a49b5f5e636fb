"""Sessions around other sessions: encryption, compaction, branches."""
