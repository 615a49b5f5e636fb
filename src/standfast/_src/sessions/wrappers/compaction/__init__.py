"""Sessions with compaction of a long history."""
