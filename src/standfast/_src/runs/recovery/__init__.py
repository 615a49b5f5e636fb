"""Layer 4: runs of other processes: watched, gone on with when their worker is gone, handed over when one stops."""
